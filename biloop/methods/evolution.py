"""Hypergradients by chance: inner loops from a few perturbed x, and no derivative of them."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from biloop import vectors
from biloop.inner import Descent
from biloop.loops.results import Status, code_if, first_failure
from biloop.methods.base import Info, Residuals, checked_loops, checked_start
from biloop.methods.directions import Drawing, check_samples, judged
from biloop.methods.sampled_aid import check_loop, counted, descend
from biloop.oracles import Cost, SampleCount, outer_gradients, outer_value
from biloop.samples import Pair, Samples
from biloop.schedules import positive, step_count
from biloop.schedules.arguments import as_count, as_flag
from biloop.vectors import add_scaled, inner_product, norm, subtract


class EvolutionState(NamedTuple):
    """The inner solution, what the inner loop keeps, and the draws so far."""

    y: PyTree
    inner: PyTree
    draws: Int[Array, ""]


class Evolution(Drawing):
    """PZOBO of Sow, Ji and Liang (2022), https://arxiv.org/abs/2110.07004.

    y_j ← N steps on g(x + r u_j, ·) from the last y, u_0 = 0 and u_j normal, j = 1, …, Q
    h = ∇_x f(x, y_0) + (1/Q) Σ_j ⟨∇_y f(x, y_0), (y_j − y_0)/r⟩ u_j

    With `jacobian=False` only values of f are used, as in HOZOG of Gu et al. (2021):
    h = (1/Q) Σ_j (f(x + r u_j, y_j) − f(x, y_0))/r u_j. All loops see the same rows. The variance
    grows with the dimension of x. (Q + 1) N gradients, and 2 with the Jacobian.

    Parameters
    ----------
    inner : Descent
    samples : Samples
    directions : int
        Q, in which x is moved.
    radius : number
        r, how far.
    jacobian : bool
        Whether ∇_y f is used, or values of f alone.

    Examples
    --------
    >>> samples = bl.Samples(bl.All(), bl.All(), key=0)
    >>> loop = bl.GradientDescent(step_size=0.3, steps=30)
    >>> bl.Evolution(loop, samples, directions=4).directions
    4
    """

    inner: Descent
    samples: Samples
    directions: int = eqx.field(default=1, static=True, converter=as_count("directions"))
    radius: Float[Array, ""] = eqx.field(default=1e-3, converter=positive("radius"))
    jacobian: bool = eqx.field(default=True, static=True, converter=as_flag("jacobian"))

    def __check_init__(self):
        if not isinstance(self.inner, Descent):
            raise TypeError(f"Evolution needs single gradient steps, got {self.inner!r}.")
        check_loop(self.inner)
        check_samples(self.samples)

    def init(self, problem, x, y):
        x, y = checked_start(problem, x, y)
        self.samples.check(problem, x, y)
        checked_loops(problem, self.inner)
        return EvolutionState(y, self.inner.init(y), jnp.zeros((), jnp.int32))

    def __call__(self, problem, x, state, k):
        inner, (N, bad_N) = self.inner.at(k), counted(step_count(self.inner.steps, k))
        rows, outer = self.samples.draws(problem, state.draws, N, k)

        loop = lambda x: descend(inner, problem, x, state, rows, N)  # noqa: E731
        key = self.samples.chance(k)
        batch = problem.batch(None, outer)
        y, kept, gradient = loop(x)
        value, f_x, f_y = outer_gradients(batch, x, y)

        def along(key: Array) -> tuple[PyTree, Array]:
            u = _normal_like(key, x)
            there = add_scaled(x, self.radius, u)
            y_there, _, _ = loop(there)
            if self.jacobian:
                change = inner_product(f_y, subtract(y_there, y))
            else:
                change = outer_value(batch, there, y_there) - value
            return u, change / self.radius.astype(change.dtype)

        us, slopes = jax.vmap(along)(jax.random.split(key, self.directions))
        mean = jax.tree.map(
            lambda u: jnp.tensordot(slopes.astype(u.dtype), u, axes=(0, 0)) / self.directions, us
        )
        h = add_scaled(f_x, 1.0, mean) if self.jacobian else mean
        size = norm(gradient)
        bad_h = code_if(~jnp.isfinite(norm(h)), Status.HYPERGRADIENT_NOT_FINITE)
        result = first_failure(judged(size, value, bad_steps=bad_N), bad_h)
        y, own = vectors.where(result == 0, (y, kept), (state.y, state.inner))
        sizes = self.samples.sizes(problem)
        spent = SampleCount(
            inner=(self.directions + 1) * N * sizes.inner,
            outer=2 * sizes.outer if self.jacobian else 0,
        )
        info = Info(value, Cost(0, 0), result, Residuals(size), spent)
        return h, EvolutionState(y, own, state.draws + N), info

    def reads(self, draws, k):
        N = max(int(step_count(self.inner.steps, k)), 0)
        return Pair(range(draws, draws + N), range(k, k + 1))

    def stability(self, L):
        numbers = self.inner.stability(L)
        return [] if numbers is None else [("inner", *numbers)]


def _normal_like(key: Array, x: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(x)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves)]  # noqa: B905
    return jax.tree.unflatten(structure, drawn)
