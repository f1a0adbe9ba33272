"""What is shown to a reader is what happens: code runs and prints what stands below it."""

import re
import types
from fnmatch import fnmatch

import pytest

import biloop as bl

from . import documents
from .documents import DOCUMENTS, ROOT, blocks, difference, marks


def read(path):
    return path.read_text(encoding="utf-8")


def collected():
    """Documents that have code, the long ones among the slow tests.

    That of CONTRIBUTING.md is run, and used further, by tests/test_examples.py.
    """
    for path in DOCUMENTS:
        if blocks(read(path)) and path.name != "CONTRIBUTING.md":
            slow = [pytest.mark.slow] if "slow" in marks(read(path)) else []
            yield pytest.param(path, id=documents.name(path), marks=slow)


@pytest.mark.parametrize("path", list(collected()))
def test_code_runs_and_prints_what_stands_below_it(path, tmp_path, monkeypatch):
    text = read(path)
    if "needs mnist" in marks(text):
        monkeypatch.setattr("biloop.data.fetch.ways", lambda data: iter(()))  # no download
        try:
            bl.data.mnist()
        except FileNotFoundError as error:
            pytest.skip(str(error))
    pieces = blocks(text)
    printed = documents.run(path, pieces, tmp_path)
    for block, output in zip(pieces, printed, strict=True):
        if block.claim:
            differs = difference(block.claim, output)
            assert not differs, f"{path.name}, line {block.line}:\n{differs}\n\nprinted:\n{output}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=documents.name)
def test_nothing_is_amiss(path):
    text = read(path)
    assert not documents.placeholders(text)
    assert not documents.missing_files(text, path.parent)
    assert not documents.missing_targets(text)
    assert not documents.wrong_calls(text, bl)


PAGES = [path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")]


@pytest.mark.parametrize("path", PAGES, ids=documents.name)
def test_code_fits_the_column_of_a_page(path):
    def longer(text, most):
        code = re.findall(r"^```(?:python|py)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        return [line for line in "".join(code).splitlines() if len(line) > most]

    text = read(path)
    side_by_side = re.findall(r"^::::\{grid\} 1 1 1 2\n(.*?)^::::$", text, re.DOTALL | re.MULTILINE)
    assert not longer(text, 100), "see docs/_static/site.css"
    assert not longer("".join(side_by_side), 57), "a window of 1280 pixels cuts it off"


def test_the_example_of_the_first_screen_is_ten_lines():
    code = blocks(read(ROOT / "README.md"))[0].code
    lines = [line for line in code.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10


def test_every_public_name_has_an_entry_in_the_reference():
    page = read(ROOT / "docs/reference/api.md")
    entries = re.findall(r"^\.\. auto\w+:: biloop\.(?:problem\.)?(\w+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted({*bl.__all__, "sklearn", "torch"})


def test_every_status_has_its_row():
    page = read(ROOT / "docs/reference/status_codes.md").replace("\\", "")
    for status in bl.Status:
        assert f"| {int(status)} | `{status.name}` | {status.sentence} |" in page


def test_every_page_is_in_the_navigation():
    """A page that is listed nowhere is not found: Sphinx would refuse it, this is quicker."""
    index = read(ROOT / "docs/index.md")
    listed = re.findall(r"^([\w/\[\]]+\*?)$", index, re.MULTILINE)
    pages = list(map(documents.name, PAGES))
    missing = [p for p in pages if not any(fnmatch(p, f"{page}.md") for page in listed)]
    assert missing == ["index.md"], "add the others to docs/index.md"
    assert len(listed) == len(set(listed))


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["wandb", "tensorboardX", "mlflow"])
def test_what_is_logged_elsewhere(logger, tmp_path, monkeypatch):
    pytest.importorskip(logger)
    offline = {
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": (tmp_path / "mlflow").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    for variable, value in offline.items():
        monkeypatch.setenv(variable, value)
    path = ROOT / "docs/howto/log.md"
    text = read(path)
    theirs = re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (code,) = [code for code in theirs if re.search(rf"^(import|from) {logger}", code)]
    program = documents.Block(1, code + "\nprint(run.status.name)", "")
    printed = documents.run(path, [*blocks(text), program], tmp_path)
    assert "CONVERGED" in printed[-1]
    assert any(tmp_path.iterdir()), "nothing was written"


def test_the_version_is_in_the_changelog():
    assert f"## {bl.__version__}" in read(ROOT / "CHANGELOG.md")


# --- the checks can fail ------------------------------------------------------------------------

DOCUMENT = """# A page

```python
x = 2.0
print("x is", x / 3)
```

```text
x is 0.6667
```

More.

```python
print(x)
```

```text
not claimed by the block above: that one is, this is
```

```text
nobody's
```
"""


def test_blocks_are_found_with_their_lines_and_claims():
    first, second = blocks(DOCUMENT)
    assert (first.line, first.claim) == (4, "x is 0.6667\n")
    assert DOCUMENT.splitlines()[second.line - 1] == "print(x)"
    assert "nobody" not in second.claim


def test_blocks_share_an_interpreter_and_an_error_names_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(DOCUMENT, encoding="utf-8")
    assert documents.run(page, blocks(DOCUMENT), tmp_path)[1] == "2.0\n"
    broken = DOCUMENT.replace("print(x)", "print(y)")
    with pytest.raises(AssertionError, match=r'page.md", line 15'):
        documents.run(page, blocks(broken), tmp_path)


def test_jax_is_what_a_user_has(tmp_path):
    code = "import jax, os\nprint(jax.numpy.zeros(1).dtype, os.environ.get('XLA_FLAGS'))"
    (printed,) = documents.run(tmp_path / "page.md", [documents.Block(1, code, "")], tmp_path)
    assert printed == "float32 None\n"


@pytest.mark.parametrize(
    ("claim", "output"),
    [
        ("value 1.14 to 0.17", "value 1.14 to\n  0.17\n"),
        ("0.2546, about 7.855;", "0.2547, about 7.854;"),
        ("1.94e-09", "1.95e-09"),
        ("took 0.03 s and 12ms", "took 0.41 s and 7ms"),
        ("(3, 2, 5) {'a': 0.1}", "(3, 2, 5) {'a': 0.1}"),
        ("a … b 1,000", "a long way to b 1,000"),
        ("N = 20.", "N = 20."),
    ],
)
def test_what_agrees(claim, output):
    assert not difference(claim, output)


@pytest.mark.parametrize(
    ("claim", "output"),
    [
        ("value 1.14 to 0.17", "value 1.14 to 0.18"),
        ("value 0.25", "value 0.29"),
        ("about 7.855", "about 7.857"),
        ("cost 6600", "cost 6601"),
        ("steps 6,600", "steps 6,601"),
        ("1.94e-09", "1.94e-08"),
        ("converged", "diverged"),
        ("converged", "converged, but"),
        ("x -1.50", "x 1.50"),
        ("0.5", "nan"),
        ("a … b", "a b c"),
        ("anything", ""),
    ],
)
def test_what_does_not(claim, output):
    assert difference(claim, output)


@pytest.mark.parametrize("text", ["\n@@TABLE@@\n", "TODO: why", "XXX times", "<NUMBER>"])
def test_placeholders_are_refused(text):
    assert documents.placeholders(text)


def test_what_is_not_there_is_missed():
    text = "[a](docs/no.md) `biloop/no.py` [b](README.md)\n\n    python benchmarks/no.py --all\n"
    text += "    python -m benchmarks.nobody\n    make nothing\n"
    found = documents.missing_files(text, ROOT)
    assert found == ["docs/no.md", "biloop/no.py", "benchmarks/no.py", "benchmarks/nobody.py"]
    assert documents.missing_targets(text) == ["nothing"]


def test_calls_in_a_sentence_must_fit():
    def make(N, *, step):
        """A scheme."""

    library = types.SimpleNamespace(schemes=types.SimpleNamespace(make=make))
    good = "`bl.schemes.make(20, step=0.1)`, `bl.schemes.make(…)`, `bl.schemes`"
    assert not documents.wrong_calls(good, library)
    assert documents.wrong_calls("`bl.schemes.made`", library)
    assert documents.wrong_calls("`bl.schemes.make(20, 0.1, 0.1)`", library)
    assert documents.wrong_calls('over `{"N": bl.schemes.make(20, 0.1)}`', library)
    assert documents.wrong_calls('`over={"N": bl.schemes.make(20, 0.1)}` of', library)


# Names that tests/test_sweep.py borrows.
CODE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def words(text):
    return [re.sub(r"(\d\.\d)\d+", r"\1…", word) for word in text.split()]
