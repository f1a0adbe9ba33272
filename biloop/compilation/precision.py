"""float64 for some programs, whatever JAX is set to."""

from contextlib import AbstractContextManager

import jax

if hasattr(jax, "enable_x64"):
    _enabled = jax.enable_x64
else:  # before JAX 0.8
    from jax.experimental import enable_x64 as _enabled  # pyright: ignore[reportAttributeAccessIssue]


def double_precision() -> AbstractContextManager:
    """A context in which float64 is float64."""
    return _enabled(True)
