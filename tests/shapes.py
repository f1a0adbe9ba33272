"""Shapes and dtypes of what the package's functions take and return, looked at in each call.

BILOOP_CHECK_SHAPES=1 pytest
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException
from jaxtyping import AbstractArray

CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Beartype's check of the arrays; other arguments the package refuses by its own sentences."""
    hints = getattr(function, "__annotations__", {})
    function.__annotations__ = {name: hint for name, hint in hints.items() if of_arrays(hint)}
    try:
        return beartype(conf=CONF)(function)
    except BeartypeDecorHintException:  # beside the array stands what cannot be looked at
        return function


def of_arrays(hint: Any) -> bool:
    """Float[Array, "n d"], or a union or container with one in it."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(of_arrays(part) for part in get_args(hint))
