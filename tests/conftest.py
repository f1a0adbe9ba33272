"""Strict JAX: no silent promotion of ranks or dtypes, double precision unless a test says no."""

# ruff: noqa: E402, because XLA reads its flags when JAX is imported

import gc
import os
import subprocess
import sys
from pathlib import Path

# Most of the time of these tests is compilation, of programs that run for microseconds: these flags
# take three quarters of it away. What users have is what the documents and
# tests/test_default_level.py run with.
LEVEL = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=while-loop-invariant-code-motion"
)
QUICK = (
    f"{LEVEL} --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    LEVEL,
)


def understood(flags):
    """Whether this jaxlib has such flags: XLA ends the process at one that it does not know."""
    code = "import jax; jax.devices('cpu')"
    environment = os.environ | {"XLA_FLAGS": flags}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    return run.returncode == 0


# What is imported is compiled once and kept: else each process compiles the package and rewrites
# the assertions of all tests again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if "XLA_FLAGS" not in os.environ:  # or the first process has found them for the others
    os.environ["XLA_FLAGS"] = next(filter(understood, QUICK), "")

import jax
import pytest
from hypothesis import settings
from jax._src import compiler
from jax._src.interpreters import mlir

if os.environ.get("BILOOP_CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    from . import shapes as shapes  # the hook finds it by name

    install_import_hook("biloop", "tests.shapes.checked")

if not hasattr(jax, "enable_x64"):  # before JAX 0.8
    from jax.experimental import enable_x64

    jax.enable_x64 = enable_x64

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many objects, few of them garbage: looking for it less often saves a tenth.
gc.freeze()
gc.set_threshold(100_000, 20, 50)

# Each lowering makes a context of MLIR, in three quarters of the time that a small program is
# lowered in. A context can take any number of programs: those of a file share one, except for what
# is compiled while another is being lowered, which would be written into that one.
make_context, contexts = getattr(mlir, "make_ir_context", None), []


def shared_context():
    if mlir.ir.Context.current is not None:
        return make_context()
    if not contexts:
        contexts.append(make_context())
    return contexts[0]


if make_context is not None:  # private to JAX
    mlir.make_ir_context = shared_context

# Problems that tests make anew are often the same program: within a file it is compiled once.
compile_program, programs = getattr(compiler, "compile_or_get_cached", None), {}


def compiled_once(backend, module, devices, options, callbacks, *others):
    text = module.operation.get_asm(enable_debug_info=False)
    places = tuple(device.id for device in devices.flat)
    key = hash(text), len(text), options.SerializeAsString(), places
    if callbacks or key not in programs:  # a callback belongs to its program
        made = compile_program(backend, module, devices, options, callbacks, *others)
        if callbacks:
            return made
        programs[key] = made
    return programs[key]


if compile_program is not None:  # private to JAX as well
    compiler.compile_or_get_cached = compiled_once

# Compilation makes first examples slow; fixed seeds make failures repeat.
settings.register_profile("biloop", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("biloop")

# Files are handed out whole, the longest first: else one worker ends with a long one, alone.
LONGEST = [
    "documents", "examples", "compare", "shard", "estimators", "sampled_runs", "argmin", "proximal",
    "protocol", "docstrings", "sampled_cost", "truth_runs", "killed", "networks", "methods",
    "endings", "truth_loops", "growing", "streams", "clock", "checkpoint", "failure", "tasks",
    "cost", "truth_ends", "itd_memory", "equilibrium", "compare_batches", "fingerprint",
    "first_order", "constants", "certificates", "cli", "solve", "sweep", "sampled_problems",
    "sampled_protocol", "compact", "adaptive", "sampled_aid",
]  # fmt: skip

MEMORY_MAPS, MOST_MAPS = Path("/proc/self/maps"), 12_000  # Linux allows 65 530, memory fewer


def pytest_collection_modifyitems(items):
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(autouse=True, scope="module")
def _programs():
    """Programs are shared by files until there are many: they would exhaust the memory maps."""
    yield
    contexts.clear()
    programs.clear()
    if not MEMORY_MAPS.exists() or MEMORY_MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
