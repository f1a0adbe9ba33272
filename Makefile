# Everything runs in an environment that these targets make: no step before them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all test-oldest test-torch test-peers mutants lint format docs bench bench-all clean

demo: $(VENV)/.installed          ## which loops pay on the embedded digits: table, verdict, page
	$(BIN)/biloop compare --report out/demo.html

test: $(VENV)/.installed          ## the tests that run in minutes
	$(BIN)/python -m pytest $(PARALLEL)

# Shapes and dtypes of what the package's functions take and return are checked as well; browser
# tests run where there is a browser.
test-all: $(VENV)/.installed      ## the slow ones too, and what they cover
	BILOOP_CHECK_SHAPES=1 $(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term -m "slow or not slow"

mutants: $(VENV)/.installed       ## plant small bugs and print those that no test sees: ARGS="--count 40 --seed 0"
	$(BIN)/python tools/mutants.py --jobs 2 $(ARGS)

lint: $(VENV)/.installed          ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/.installed        ## rewrite the files in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)-docs/.installed     ## the documentation site, into out/docs; a warning is an error
	$(VENV)-docs/bin/python -m sphinx -W --keep-going -q -b html docs out/docs
	@echo "open out/docs/index.html"

bench: $(VENV)-bench/.installed   ## biloop beside hand-written loops and its peers, in minutes
	$(VENV)-bench/bin/python benchmarks/tiny.py
	$(VENV)-bench/bin/python -m benchmarks.peers --short

bench-all: $(VENV)-bench/.installed  ## all works; writes docs/benchmarks.md
	$(VENV)-bench/bin/python -m benchmarks.peers --write docs/benchmarks.md

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-oldest: $(VENV)-oldest/.installed
	$(VENV)-oldest/bin/python -m pytest $(PARALLEL)

test-torch: $(VENV)-torch/.installed  ## biloop.torch, with the versions of PyTorch and torchax that go together
	$(VENV)-torch/bin/python -m pytest tests/test_torch.py

test-peers: $(VENV)-bench/.installed  ## what pages show of other libraries, and that it gives what ours does
	$(VENV)-bench/bin/python -m pip install --quiet hypothesis pytest
	$(VENV)-bench/bin/python -m pytest -m slow tests/test_coming_from.py

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "biloop needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)-oldest/.installed: pyproject.toml tests/oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-oldest/bin/python -m pip install --quiet --editable '.[dev]' --constraint tests/oldest.txt
	touch $@

$(VENV)-torch/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-torch/bin/python -m pip install --quiet --editable '.[dev,torch]'
	touch $@

$(VENV)-docs/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-docs/bin/python -m pip install --quiet --editable '.[docs]'
	touch $@

# betty-ml's metadata are refused by newer versions of pip, and boat-torch asks for NumPy 1; both run
# without their requirements, and without them the benchmark goes on.
$(VENV)-bench/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --upgrade 'pip<24.1'
	$(VENV)-bench/bin/python -m pip install --quiet --editable '.[bench]'
	-$(VENV)-bench/bin/python -m pip install --quiet --no-deps --ignore-requires-python betty-ml==0.2.1 boat-torch==1.1.1
	touch $@

clean:                            ## remove the environments and what the tools left
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-docs $(VENV)-bench $(VENV)-torch .pytest_cache .ruff_cache .hypothesis .coverage
