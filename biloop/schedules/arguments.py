"""Converters of what users give: each says its name, what it expects, and what it got.

Nothing that a user writes may end in an error of Python or of JAX that does not name the argument:
no comparison of a string with a number, no overflow, no array where one number is meant.
The way back, numbers as readers want them, is at the end.
"""

import dataclasses
import difflib
import inspect
import math
import os
from collections.abc import Callable, Collection
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

MOST = 2**31 - 2  # outer steps: one more still fits into 32 bits
LONGEST = 10**7  # steps of a loop in one outer step, where neither Ctrl-C nor a clock can end it


def number(value: Any, name: str) -> Float[Array, ""]:
    """`value` as a real float array without axes, or a TypeError that names it."""
    # What is no part of a trace is none of it here: inside of jit it can be looked at as well.
    with jax.ensure_compile_time_eval() if is_concrete(value) else nullcontext():
        real = _real(value, name)
        if not isinstance(real, jax.Array):  # by NumPy: an operation of JAX would compile a program
            with np.errstate(over="ignore"):  # infinite where it is too large, as JAX has it
                real = np.asarray(real, jnp.result_type(float))
        return jnp.asarray(real, float)


def scalar(name: str) -> Callable[[Any], Num[Array, ""]]:
    """A converter for a single real number of any value; integers stay integers."""
    return lambda value: jnp.asarray(_real(value, name))


def finite(name: str) -> Callable[[Any], Float[Array, ""]]:
    """A converter for a finite number."""
    return _judged(name, "a finite number", math.isfinite)


def positive(name: str) -> Callable[[Any], Float[Array, ""]]:
    """A converter for a finite number greater than 0."""
    return _judged(name, "a finite number greater than 0", lambda v: 0 < v < math.inf)


def not_negative(name: str) -> Callable[[Any], Float[Array, ""]]:
    """A converter for a finite number of at least 0."""
    return _judged(name, "finite and at least 0", lambda v: 0 <= v < math.inf)


def fraction(name: str) -> Callable[[Any], Float[Array, ""]]:
    """A converter for a number strictly between 0 and 1."""
    return _judged(name, "between 0 and 1", lambda v: 0 < v < 1)


def chance(name: str) -> Callable[[Any], Float[Array, ""] | None]:
    """A converter for a probability that is not 0, or None for none."""
    judged = _judged(name, "above 0 and at most 1", lambda v: 0 < v <= 1)
    return lambda value: None if value is None else judged(value)


def as_count(
    name: str, minimum: int = 1, *, optional: bool = False, maximum: int = MOST, why: str = ""
) -> Callable[[Any], Any]:
    """A converter for an integer of at least `minimum`; `why` is what is said of the maximum."""
    expected = f"{name} must be an integer of at least {minimum}{' or None' if optional else ''}"

    def convert(value: Any) -> int | None:
        if value is None and optional:
            return None
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise TypeError(f"{expected}, got {shown(value)} ({type(value).__name__}).")
        if value < minimum:
            raise ValueError(f"{expected}, got {shown(value)}.")
        if value > maximum:
            raise ValueError(f"{name} must be at most {maximum}, got {shown(value)}.{why}")
        return int(value)

    return convert


def as_length(name: str, minimum: int = 1) -> Callable[[Any], Any]:
    """A converter for the number of steps of a loop within one outer step."""
    why = " Nothing can end a loop early; more outer steps do the same, each where the last ended."
    return as_count(name, minimum, maximum=LONGEST, why=why)


def as_seed(name: str) -> Callable[[Any], int]:
    """A converter for an integer that randomness begins with."""
    return as_count(name, -(2**63), maximum=2**63 - 1)


def as_flag(name: str, *, optional: bool = False) -> Callable[[Any], Any]:
    """A converter for True or False, and nothing that only behaves so; None if `optional`."""

    def convert(value: Any) -> bool | None:
        if value is None and optional:
            return None
        if not isinstance(value, bool | np.bool_):
            also = " or None" if optional else ""
            raise TypeError(f"{name} must be True or False{also}, got {shown(value)}.")
        return bool(value)

    return convert


def as_folder(name: str) -> Callable[[Any], Path | None]:
    """A converter for the path of a folder, or None for none."""

    def convert(value: Any) -> Path | None:
        if value is None:
            return None
        path = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(path, str) or not path:  # "" would be the folder one is in
            raise TypeError(f"{name} must be the path of a folder, got {shown(value)}.")
        return Path(path)

    return convert


def as_function(name: str, of: str, count: int) -> Callable[[Any], Any]:
    """A converter for a function of so many arguments, `of` in words, or None for none."""

    def convert(value: Any) -> Callable[..., Any] | None:
        if value is not None and not (callable(value) and _takes(value, count)):
            raise TypeError(f"{name} must be a function of {of}, got {shown(value)}.")
        return value

    return convert


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions of C may have none
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def as_text(name: str) -> Callable[[Any], str]:
    """A converter for a string."""

    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, got {shown(value)}.")
        return value

    return convert


def listed(value: Any, name: str, expected: str) -> list[Any]:
    """The entries of what must be a sequence; a string is none of names."""
    if isinstance(value, str | bytes) or not np.iterable(value):
        raise TypeError(f"{name} must be {expected}, got {shown(value)}.")
    return list(value)


def one_of(name: str, choices: Collection[str]) -> Callable[[Any], Any]:
    """A converter for one of a few words."""

    def convert(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            words = ", ".join(map(repr, choices))
            raise ValueError(f"{name} must be one of {words}; got {shown(value)}.")
        return value

    return convert


def nearest(word: str, candidates: Collection[str]) -> str:
    """The candidate that looks most like the word."""
    return max(candidates, key=lambda c: difflib.SequenceMatcher(None, word, c).ratio())


class Described(eqx.Module):
    """A value with numbers in it, shown as one would write it; what is None is left out."""

    def __repr__(self) -> str:
        """With its numbers."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        parts = [f"{name}={_as_written(v)}" for name, v in fields.items() if v is not None]
        return f"{type(self).__name__}({', '.join(parts)})"

    # Its methods are functions: equinox would make a module of each, whenever one is looked up.
    if not TYPE_CHECKING:  # a checker would not know its attributes any more
        __getattribute__ = object.__getattribute__


def _as_written(value: Any) -> str:
    single = isinstance(value, jax.Array | np.ndarray | np.generic) and value.ndim == 0
    if single and is_concrete(value) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return f"{np.asarray(value).item():.6g}"
    return repr(value)


def is_concrete(value: Any) -> bool:
    """Whether the value can be looked at, i.e. is not being traced."""
    return not isinstance(value, jax.core.Tracer)


def shown(value: Any) -> str:
    """`repr` for a sentence: on one line, not long, and without an error of its own."""
    try:
        number = isinstance(value, np.generic | np.ndarray | jax.Array) and value.ndim == 0
        text = " ".join((str(value) if number else repr(value)).split())
    except Exception:  # integers of more than 4300 digits have none, nor have some objects
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _judged(
    name: str, expected: str, good: Callable[[float], bool]
) -> Callable[[Any], Float[Array, ""]]:
    def convert(value: Any) -> Float[Array, ""]:
        array = number(value, name)
        if is_concrete(array) and not good(float(array)):
            raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
        return array

    return convert


def _real(value: Any, name: str) -> Any:
    """`value`, if it is one integer or float: of Python, or an array without axes."""
    refusal = f"{name} must be a number, got {shown(value)} ({type(value).__name__})."
    if isinstance(value, bool | np.bool_ | str | bytes):
        raise TypeError(refusal)
    try:
        value = _narrow(value)
        array = np.asarray(value) if isinstance(value, _OF_THE_HOST) else jnp.asarray(value)
    except OverflowError:
        raise ValueError(
            f"{name} must be finite, got {shown(value)}, too large a number."
        ) from None
    except Exception:  # whatever a foreign object raises when it is made an array
        raise TypeError(refusal) from None
    if array.ndim != 0:
        raise TypeError(f"{name} must be a single number, got an array of shape {array.shape}.")
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise TypeError(refusal)
    return value if isinstance(value, int | float) else array


_OF_THE_HOST = int | float | np.ndarray | np.generic


def _narrow(value: Any) -> Any:
    """Integers that JAX would cut to 32 bits as floats; other numbers of Python as floats too."""
    if isinstance(value, np.ndarray | np.generic):
        integer = value.ndim == 0 and np.issubdtype(value.dtype, np.integer)
        value = value.item() if integer else value
    if isinstance(value, int):
        return value if abs(value) <= MOST else float(value)
    return float(value) if isinstance(value, Fraction | Decimal) else value


# --- numbers as a reader wants them: few digits, no padding, no `e+08` ----------------------------

LARGEST_WRITTEN_OUT = 10**5
FEW = 10  # of what may be no whole number


def short(value: float, digits: int = 3) -> str:
    """The number to `digits` significant digits: 0.05, 2.5, 1.84e-4, 2.13e8; ∞ and NaN by name."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "NaN")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -3 <= int(exponent) < digits or float(mantissa) == 0.0:
        return f"{float(f'{mantissa}e{exponent}'):.{digits}g}"
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def count(value: float, digits: int = 3) -> str:
    """A number of things: in full while it is short, N/A where it is infinite.

    Where there are few, parts of them count, as passes over samples have: two digits.
    """
    if value == math.inf:
        return "N/A"
    if value < FEW and value != round(value):
        return short(value, 2)
    return f"{value:.0f}" if value < LARGEST_WRITTEN_OUT else short(value, digits)
