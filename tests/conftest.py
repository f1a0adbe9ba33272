"""Strict JAX: no silent promotion of ranks or dtypes, double precision unless a test says no."""

import os

# Most of the time of these tests is compilation, of programs that run for microseconds. What users
# have, XLA's default level, is what the documents and tests/test_default_level.py run at.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import pytest
from hypothesis import settings

if os.environ.get("BILOOP_CHECK_SHAPES"):
    from jaxtyping import install_import_hook

    from . import shapes as shapes  # the hook finds it by name

    install_import_hook("biloop", "tests.shapes.checked")

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Compilation makes first examples slow; fixed seeds make failures repeat.
settings.register_profile("biloop", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("biloop")


@pytest.fixture(autouse=True, scope="module")
def _programs_of_one_file():
    """The programs of a file go with it: thousands in one process exhaust the memory maps."""
    yield
    jax.clear_caches()
