"""y*(x) as a function that JAX can differentiate: argmin with our solvers, implicit with any."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from biloop.inner import FISTA, Anderson, InnerSolver, NewtonCG
from biloop.inner.solution_maps.finding import Find, Ours, Theirs
from biloop.inner.solution_maps.root import root, stopped
from biloop.linear import CG, GMRES, LinearSolver
from biloop.loops.iteration import LoopInfo
from biloop.problem import Problem, check, evaluating
from biloop.problem.variables import as_variable, frozen_like, thawed
from biloop.schedules import Adaptive
from biloop.schedules.arguments import as_flag, as_function, fraction

_TIGHT = 1e-12  # the share of an error that default solvers leave, or rounding where that is more
_SOLVER = _TIGHT ** (2 / 3)  # ... as it is given to an inner solver, whose first loop leaves s^1.5
_MOST = 10_000

Solver = TypeVar("Solver", InnerSolver, LinearSolver)


class SolutionMap(eqx.Module):
    """ystar(x, y0, *data): y*(x) under grad, jvp, jacfwd, jacrev, hessian, vmap and jit.

    It can be differentiated with respect to x, data, and arrays that `inner` closes over or holds.
    Made by `argmin` and `implicit`.
    """

    inner: Callable[..., Any]
    find: Find
    linear: LinearSolver
    prox: Callable[..., Any] | None
    is_equilibrium: bool = eqx.field(static=True, converter=as_flag("is_equilibrium"))
    accuracy: Array

    def __call__(self, x: PyTree, y0: PyTree, *data: PyTree) -> PyTree:
        """y*(x), looked for from y0."""
        return self.with_info(x, y0, *data)[0]

    def with_info(self, x: PyTree, y0: PyTree, *data: PyTree) -> tuple[PyTree, LoopInfo]:
        """y*(x), and the residual, steps, cost and result of finding it."""
        x, y0 = as_variable(x, "x"), as_variable(y0, "y0")
        problem = self._problem(x, y0, data)
        check(problem, x, y0)
        # Solvers are not differentiated: a root does not depend on how it was found.
        find, linear, accuracy = stopped((self.find, self.linear, self.accuracy))
        y, info = root(problem, x, y0, find=find, linear=linear, accuracy=accuracy)
        return thawed(y), info

    # By identity, so that `jax.jit(ystar)` works: by value, its arrays have no hash.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _problem(self, x: PyTree, y: PyTree, data: tuple[PyTree, ...]) -> Problem:
        """inner as a problem, with all that is being differentiated as leaves of it."""
        with evaluating("inner(x, y, *data)", x, y, data):
            inner = _WithData(_closed(self.inner, x, y, *data))
        prox = None
        if self.prox is not None:
            step = jnp.ones((), jnp.result_type(jax.tree.leaves(y)[0]))
            prox = _closed(self.prox, x, y, step)
        # As one pytree: here arrays in data need not be samples.
        given = (list(data),) if data else ()
        return Problem(inner, _no_outer, given, prox=prox, is_equilibrium=self.is_equilibrium)


def argmin(
    inner: Callable[..., Any],
    solver: InnerSolver | None = None,
    linear: LinearSolver | None = None,
    *,
    prox: Callable[..., Any] | None = None,
    accuracy: float = 1e-6,
) -> SolutionMap:
    """y*(x) = argmin_y inner(x, y, *data), as a function that JAX can differentiate.

    Parameters
    ----------
    inner : function
        inner(x, y, *data), a scalar, smooth in y.
    solver : InnerSolver, optional
        Finds y*. By default `NewtonCG`, with a prox `FISTA`. Steps "auto" end here when only
        rounding is left: a tenth of the error of any start is no accuracy.
    linear : LinearSolver, optional
        Solves the linear systems of derivatives, in the same way. By default `CG`.
    prox : function, optional
        The proximal map of a second term, see `Problem`.
    accuracy : number
        Derivatives at a y with a larger relative residual are NaN, and so are those whose linear
        system is left with one; unless the solver has a tolerance of its own, and reached it.

    Returns
    -------
    SolutionMap
        `ystar(x, y0, *data)`, and `ystar.with_info(x, y0, *data)` for (y, info).

    Examples
    --------
    >>> ystar = bl.argmin(lambda x, y: jnp.sum((y - x) ** 2))
    >>> jax.grad(lambda x: jnp.sum(ystar(x, jnp.zeros(2)) ** 2))(jnp.array([1.0, 2.0]))
    Array([2., 4.], dtype=float32)
    """
    if solver is None:
        solver = NewtonCG() if prox is None else FISTA(step_size="auto", steps="auto")
    return _map(inner, _ours("argmin", solver), linear, prox, False, accuracy)


def equilibrium(
    T: Callable[..., Any],
    solver: InnerSolver | None = None,
    linear: LinearSolver | None = None,
    *,
    accuracy: float = 1e-6,
) -> SolutionMap:
    """y*(x) = T(x, y*(x), *data), as a function that JAX can differentiate.

    Parameters
    ----------
    T : function
        T(x, y, *data), something like y.
    solver : InnerSolver, optional
        Finds y*, as for `argmin`. By default `Anderson`.
    linear : LinearSolver, optional
        Solves the linear systems of derivatives. By default `GMRES`.
    accuracy : number
        As for `argmin`.

    Examples
    --------
    >>> ystar = bl.equilibrium(lambda x, y: jnp.cos(x * y))
    >>> print(f"{jax.grad(ystar)(1.0, 0.5):.5f}")
    -0.29747
    """
    solver = Anderson(steps="auto") if solver is None else solver
    return _map(T, _ours("equilibrium", solver), linear, None, True, accuracy)


def implicit(
    inner: Callable[..., Any],
    linear: LinearSolver | None = None,
    *,
    prox: Callable[..., Any] | None = None,
    is_equilibrium: bool = False,
    accuracy: float = 1e-3,
    host: bool = False,
) -> Callable[[Callable[..., PyTree]], SolutionMap]:
    """A decorator that gives the derivatives of y*(x) to a solver that is not ours.

    The solver is a function solve(x, y0, *data) that returns y*; a closed form, a solver of another
    JAX library, or with `host=True` any Python (SciPy, say), which is given NumPy arrays. Whatever
    it does is not differentiated. A y whose residual is larger than `accuracy` (see `argmin`) does
    not minimise `inner`: it is UNCONVERGED, and its derivatives are NaN.

    Parameters
    ----------
    inner : function
        g(x, y, *data), or T(x, y, *data) of an equilibrium.
    linear : LinearSolver, optional
        Solves the linear systems of derivatives, as for `argmin`.
    prox : function (x, z, α) or one of `bl.prox`, optional
        As for `argmin`.
    is_equilibrium : bool
        Whether y = T(x, y) is solved instead of a minimisation.
    accuracy : number
        As for `argmin`.
    host : bool
        Whether the solver is Python outside of JAX.

    Examples
    --------
    >>> @bl.implicit(lambda x, y, b: jnp.sum(jnp.exp(x) * y**2 / 2 - b * y))
    ... def ystar(x, y0, b):
    ...     return b * jnp.exp(-x)
    >>> jax.grad(ystar)(0.0, 0.0, 3.0)
    Array(-3., dtype=float32, weak_type=True)
    """

    def decorate(solve: Callable[..., PyTree]) -> SolutionMap:
        if not callable(solve):
            raise TypeError(f"implicit decorates a function solve(x, y0, *data), got {solve!r}.")
        return _map(inner, Theirs(solve, host), linear, prox, is_equilibrium, accuracy)

    return decorate


def _ours(name: str, solver: Any) -> Ours:
    if not isinstance(solver, InnerSolver):
        raise TypeError(
            f"{name} needs an inner solver, e.g. NewtonCG(), got {solver!r}; for a solver that is "
            f"not ours there is the decorator bl.implicit(inner)."
        )
    return Ours(*_until_rounding(solver, _SOLVER))


def _map(
    inner: Callable[..., Any],
    find: Find,
    linear: LinearSolver | None,
    prox: Callable[..., Any] | None,
    is_equilibrium: bool,
    accuracy: float,
) -> SolutionMap:
    if not callable(inner):
        raise TypeError(f"inner must be a function inner(x, y, *data), got {inner!r}.")
    prox = as_function("prox", "x, z and a step, e.g. bl.prox.L1(0.1)", 3)(prox)
    if linear is None:
        linear = GMRES("auto") if is_equilibrium else CG("auto")
    if not isinstance(linear, LinearSolver):
        raise TypeError(f"linear must be a linear solver, e.g. CG(steps=100); got {linear!r}.")
    if is_equilibrium:
        linear.refuse_symmetric_only()
    share = fraction("accuracy")(accuracy)
    linear, _ = _until_rounding(linear, _TIGHT)
    return SolutionMap(inner, find, linear, prox, is_equilibrium, share)


def _until_rounding(solver: Solver, share: float) -> tuple[Solver, bool]:
    """The solver with loops that leave this share of an error where it says "auto", if it does.

    One that has a tolerance besides ends by that.
    """
    is_auto = lambda node: isinstance(node, Adaptive) and node.is_auto  # noqa: E731
    nodes, structure = jax.tree.flatten(solver, is_leaf=is_auto)
    if getattr(solver, "tolerance", None) is not None or not any(map(is_auto, nodes)):
        return solver, False
    tight = Adaptive(share, _MOST)
    return jax.tree.unflatten(structure, [tight if is_auto(a) else a for a in nodes]), True


def _closed(function: Callable[..., Any], *arguments: PyTree) -> Any:
    """The function with what it closes over as leaves, where that may be differentiated."""
    # In a function of its own: what it hoists out of must have a hash, which modules have not.
    pure, hoisted = jax.closure_convert(lambda *given: function(*map(thawed, given)), *arguments)
    return _Converted(pure, tuple(map(jax.tree.structure, arguments)), tuple(hoisted))


class _Converted(eqx.Module):
    pure: Callable[..., Any] = eqx.field(static=True)
    structures: tuple[Any, ...] = eqx.field(static=True)
    hoisted: tuple[Array, ...]

    def __call__(self, *arguments: PyTree) -> Any:
        likes = [jax.tree.unflatten(s, range(s.num_leaves)) for s in self.structures]
        return self.pure(*map(frozen_like, arguments, likes), *self.hoisted)


class _WithData(eqx.Module):
    """inner(x, y, [*data]) for an inner(x, y, *data)."""

    function: Callable[..., Any]

    def __call__(self, x: PyTree, y: PyTree, *data: PyTree) -> Any:
        return self.function(x, y, *(data[0] if data else ()))


def _no_outer(x: PyTree, y: PyTree) -> Array:
    return jnp.zeros(())
