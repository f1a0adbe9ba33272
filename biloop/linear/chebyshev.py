"""The Chebyshev semi-iteration.

G. H. Golub and R. S. Varga, Chebyshev semi-iterative methods, successive overrelaxation iterative
methods, and second order Richardson iterative methods, Numerische Mathematik 3 (1961).
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from biloop.linear.base import LinearSolver, linear_info
from biloop.loops.adaptive import adaptivity, curvature_state
from biloop.loops.iteration import Rule, iterate, limit
from biloop.schedules import (
    Adaptive,
    Schedule,
    as_steps,
    as_tolerance,
    is_concrete,
    positive,
    step_count,
)
from biloop.vectors import accumulator, add_scaled, scaled, subtract, zeros_like


class _State(NamedTuple):
    v: PyTree
    d: PyTree  # the last step
    weight: Float[Array, ""]  # ω
    first: Bool[Array, ""]


class Chebyshev(LinearSolver):
    """The Chebyshev semi-iteration for H with eigenvalues between μ and L.

    d ← (ω − 1) d + 2ω/(L + μ) (b − H v),   v ← v + d,   ω ← 1 / (1 − ω ((L − μ)/(L + μ))²/4)

    with ω = 1 in the first step and as if it had been 2 for the second. Q products. The polynomial
    of H that multiplies the error is the smallest on [μ, L]:

        ‖v^Q − v*‖ ≤ ‖v⁰ − v*‖ / T_Q((L + μ)/(L − μ)) ≤ 2 ((√κ − 1)/(√κ + 1))^Q ‖v⁰ − v*‖

    with T_Q the Chebyshev polynomial: √κ steps where Richardson takes κ. Unlike CG it needs no
    inner products, and v depends linearly on b and v⁰; but it must be told μ and L, and diverges
    for eigenvalues beyond L + μ. The residual is that of the last v that was multiplied: the one
    returned where it is at most the tolerance, else v^{Q−1}.

    Parameters
    ----------
    L, mu : numbers or schedules of k
        Bounds of the eigenvalues of H.
    steps : integer or schedule of k
        Q, the largest number of steps.
    tolerance : number or schedule of k
        The loop ends at ‖Hv − b‖ ≤ tolerance. 0, the default, spends all steps.

    Examples
    --------
    >>> solver = bl.Chebyshev(L=4.0, mu=1.0, steps=20)
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3))
    [1.   0.5  0.25]
    """

    L: Float[Array, ""] = eqx.field(converter=positive("L"))
    mu: Float[Array, ""] = eqx.field(converter=positive("mu"))
    steps: Schedule = eqx.field(converter=as_steps(minimum=1))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    def __check_init__(self):
        known = is_concrete(self.L) and is_concrete(self.mu)
        if known and float(self.mu) > float(self.L):
            raise ValueError(
                f"The eigenvalue bounds must satisfy mu <= L, got mu={self.mu}, L={self.L}."
            )

    @property
    def judges(self):
        return self.tolerance is not None or isinstance(self.steps, Adaptive)

    def init(self, v):
        return curvature_state(self.steps, v)

    def __call__(self, matvec, b, v0, state, k):
        L, mu = self.L.astype(accumulator(b)), self.mu.astype(accumulator(b))
        ratio = (L - mu) / (L + mu)

        def step(s: _State) -> tuple[_State, PyTree]:
            residual = subtract(b, matvec(s.v))
            weight = jnp.where(s.first, jnp.ones_like(s.weight), s.weight)
            d = add_scaled(scaled(weight - 1, s.d), 2 * weight / (L + mu), residual)
            weight = 1 / (1 - s.weight * ratio**2 / 4)
            return _State(add_scaled(s.v, 1.0, d), d, weight, jnp.zeros((), bool)), residual

        rule = Rule(
            step_count(self.steps, k),
            limit(self.tolerance, k),
            adaptivity(self.steps, v0, lambda before, _: before.v, state),
        )
        start = _State(v0, zeros_like(v0), jnp.full_like(L, 2.0), jnp.ones((), bool))
        loop = iterate(step, start, b, rule, residual_first=True)
        info = linear_info(loop.residual, loop.steps, loop.steps, loop.result)
        return loop.state.v, loop.curvature, info

    def stability(self, L):
        # It diverges for eigenvalues beyond L + μ: as a step of gradient descent 2/(L + μ) would.
        return 2 / float(self.L + self.mu), 2 / L
