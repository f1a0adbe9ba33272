"""float64 for a part of a program, whatever JAX is set to."""

from contextlib import AbstractContextManager

import jax

PARTS_OF_PROGRAMS = jax.__version_info__ >= (0, 8)
"""Whether a part of a program may have it: before JAX 0.8 a program has one precision."""

if PARTS_OF_PROGRAMS:
    _enabled = jax.enable_x64
else:
    from jax.experimental import enable_x64 as _enabled  # pyright: ignore[reportAttributeAccessIssue]


def double_precision() -> AbstractContextManager:
    """A context in which float64 is float64."""
    return _enabled(True)
