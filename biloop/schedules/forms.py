"""Functions of the outer iteration k, and what a loop reads from them."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PyTree

from biloop.schedules.arguments import (
    LONGEST,
    Described,
    as_count,
    as_length,
    finite,
    fraction,
    is_concrete,
    scalar,
    shown,
)

Count = int | Int[Array, ""]

# Powers such as 16^(1/4)/2 may come out so many units in the last place above the integer they are.
_ROUNDING = 8

# What "auto" stands for.
_SHARE, _LOOP = 0.1, 1000


class Schedule(Described):
    """A number as a function of the outer iteration: `schedule(k)`."""

    @abstractmethod
    def __call__(self, k: Count) -> float | Num[Array, ""]:
        """The number at outer iteration k = 0, 1, 2, …"""


class Fixed(Schedule):
    """The same integer for every k, known when the program is compiled.

    Parameters
    ----------
    value : int

    Examples
    --------
    >>> bl.schedules.Fixed(20)(7)
    20
    """

    value: int = eqx.field(static=True, converter=as_count("value", minimum=0))

    def __call__(self, k):
        return self.value

    def __repr__(self) -> str:
        """The number that was given."""
        return repr(self.value)


class Constant(Schedule):
    """The same number for every k, passed to the compiled program: changing it compiles nothing.

    Parameters
    ----------
    value : number

    Examples
    --------
    >>> float(bl.schedules.Constant(0.5)(7))
    0.5
    """

    value: Num[Array, ""] = eqx.field(converter=scalar("value"))

    def __call__(self, k):
        return self.value

    def __repr__(self) -> str:
        """The number that was given, where it can be looked at."""
        return f"{self.value.item():.6g}" if is_concrete(self.value) else repr(self.value)


class Power(Schedule):
    """scale · (k + 1)^power. BA's loop is `Power(1/2, 1/4)`, HOAG's tolerance `Power(0.1, -2)`.

    Parameters
    ----------
    scale, power : numbers

    Examples
    --------
    >>> schedule = bl.schedules.Power(0.1, -1.0)
    >>> print([round(float(schedule(k)), 3) for k in range(4)])
    [0.1, 0.05, 0.033, 0.025]
    """

    scale: Float[Array, ""] = eqx.field(converter=finite("scale"))
    power: Float[Array, ""] = eqx.field(converter=finite("power"))

    def __call__(self, k):
        return self.scale * (jnp.asarray(k).astype(self.scale.dtype) + 1) ** self.power


class Geometric(Schedule):
    """scale · ratio^k.

    Parameters
    ----------
    scale, ratio : numbers

    Examples
    --------
    >>> schedule = bl.schedules.Geometric(8.0, 0.5)
    >>> [float(schedule(k)) for k in range(4)]
    [8.0, 4.0, 2.0, 1.0]
    """

    scale: Float[Array, ""] = eqx.field(converter=finite("scale"))
    ratio: Float[Array, ""] = eqx.field(converter=finite("ratio"))

    def __call__(self, k):
        return self.scale * self.ratio ** jnp.asarray(k).astype(self.scale.dtype)


class Function(Schedule):
    """Any function of k that JAX can trace.

    Parameters
    ----------
    function : function of k
        Of an integer array, with a number as its result.

    Examples
    --------
    >>> solver = bl.GradientDescent(step_size=0.1, steps=lambda k: 1 + k // 10)
    >>> int(solver.steps(25))
    3
    """

    function: Callable[..., Any] = eqx.field(
        static=True, converter=lambda f: traceable(f, "function")
    )

    def __call__(self, k):
        return _evaluate(self.function, jnp.asarray(k))


class Adaptive(Schedule):
    """As many steps as it takes to remove all but a share of the error that a loop starts with.

    ‖residual‖ / μ ≤ share · ‖y − y⁰‖

    The left side bounds the error that is left; the way that the loop has come, from its warm start
    y⁰, is (but for that) the error that the last outer step brought in. For μ stands the smallest
    curvature that the run has seen. So the loop follows the problem: it is short where y*(x) hardly
    moves and long where it does. It ends after `most` steps at the latest, and when rounding stops
    its progress. `steps="auto"` is `Adaptive()`.

    Parameters
    ----------
    share : number
        Of the error that a loop starts with, what it may leave.
    most : int
        The most steps.
    left : integer, optional
        What a budget leaves for the loop: a run sets it anew in each outer step.

    Examples
    --------
    >>> solver = bl.CG(bl.Adaptive(share=0.01, most=100))
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> int(info.steps)
    3
    """

    share: Float[Array, ""] = eqx.field(default=_SHARE, converter=fraction("share"))
    most: int = eqx.field(default=_LOOP, static=True, converter=as_length("most"))
    left: Count | None = None

    def __call__(self, k):
        return self.most if self.left is None else jnp.minimum(self.most, self.left)

    @property
    def is_auto(self) -> bool:
        """Whether this is what "auto" stands for."""
        if self.most != _LOOP or not is_concrete(self.share):
            return False
        return bool(np.float32(self.share) == np.float32(_SHARE))


def within(tree: PyTree, left: Count) -> PyTree:
    """The same with adaptive loops that spend no more than so many evaluations each."""
    is_adaptive = lambda node: isinstance(node, Adaptive)  # noqa: E731
    limited = lambda node: replace(node, left=left) if is_adaptive(node) else node  # noqa: E731
    return jax.tree.map(limited, tree, is_leaf=is_adaptive)


def step_count(schedule: Schedule, k: Count) -> Count:
    """⌈schedule(k)⌉, or −1 where that is no number of steps: negative, NaN, or above 10⁷.

    A Python integer where it is known at compile time, else int32. What is an integer but for
    rounding (a millionth of it in float32) is that integer.
    """
    value = schedule(k)
    if isinstance(value, int):
        return value if 0 <= value <= LONGEST else -1
    value = jnp.asarray(value)
    if jnp.issubdtype(value.dtype, jnp.floating):
        value = value if value.dtype.itemsize >= 4 else value.astype(jnp.float32)
        nearest = jnp.round(value)
        close = jnp.abs(value - nearest) <= _ROUNDING * jnp.finfo(value.dtype).eps * nearest
        steps = jnp.where(close, nearest, jnp.ceil(value))
        good = (value >= 0) & (steps <= LONGEST)
    else:
        steps = value if value.dtype.itemsize >= 4 else value.astype(jnp.int32)
        good = (steps >= 0) & (steps <= LONGEST)
    # Looked at before it is cast: a number that int32 cannot hold would become another one.
    return jnp.where(good, steps, jnp.zeros_like(steps)).astype(jnp.int32) - (~good).astype(
        jnp.int32
    )


def number_at(schedule: Schedule, k: Count) -> Float[Array, ""]:
    """schedule(k) as a floating array; NaN, so that it is noticed, where that is negative or ∞."""
    value = jnp.asarray(schedule(k))
    floating = jnp.issubdtype(value.dtype, jnp.floating)
    value = value if floating else value.astype(jnp.result_type(float))
    return jnp.where((value >= 0) & (value < jnp.inf), value, jnp.full_like(value, jnp.nan))


def is_first(k: Count) -> Bool[Array, ""]:
    """Whether this is the first outer step."""
    return jnp.asarray(k) == 0


def _evaluate(function: Callable[..., Any], k: Array) -> Array:
    with jax.numpy_dtype_promotion("standard"):  # 0.5 * k is no mistake in a schedule
        return jnp.asarray(function(k))


def traceable(function: Any, name: str) -> Callable[..., Any]:
    """The function, if JAX can trace it to a single real number for an integer k."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of k, got {shown(function)}.")
    try:
        result = jax.eval_shape(lambda k: _evaluate(function, k), jnp.zeros((), jnp.int32))
    except Exception as error:  # whatever the user's code raises
        raise TypeError(
            f"{name} must be a schedule of k that JAX can trace, but {shown(function)} raises "
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        ) from error
    real = jnp.issubdtype(result.dtype, jnp.integer) or jnp.issubdtype(result.dtype, jnp.floating)
    if result.shape != () or not real:
        raise TypeError(
            f"{name} must be a schedule that gives one real number for each k, but "
            f"{shown(function)} gives {result.dtype} of shape {result.shape}."
        )
    return function
