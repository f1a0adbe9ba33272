"""Block conjugate gradients: several right-hand sides at once.

D. P. O'Leary, The block conjugate gradient algorithm and related methods, Linear Algebra Appl. 29
(1980), in the form with orthonormal residuals of A. A. Dubrulle, Retooling the method of block
conjugate gradients, Electron. Trans. Numer. Anal. 12 (2001), which does not break down where some
of the right-hand sides are dependent, or solved before the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.loops.iteration import LoopInfo, Rule, iterate, limit
from biloop.loops.results import Code, Status, code, code_if, first_failure
from biloop.oracles import Cost, Product
from biloop.problem.variables import as_variable
from biloop.schedules import Count, as_steps, as_tolerance, step_count
from biloop.schedules.arguments import as_function
from biloop.vectors import accumulator, eps, where


class _State(NamedTuple):
    V: Float[Array, "q p"]
    Q: Float[Array, "q m"]  # orthonormal columns; the residual B − HV is QC
    C: Float[Array, "m p"]
    P: Float[Array, "q m"]  # search directions
    result: Code


def block_cg(
    matvec: Product,
    B: PyTree,
    V0: PyTree,
    *,
    steps: Count,
    tolerance: float | Float[Array, ""] | None = None,
) -> tuple[PyTree, LoopInfo]:
    """V ≈ H⁻¹B for p right-hand sides, stacked along a leading axis of each leaf of B and V.

    A = (PᵀHP)⁻¹,   V ← V + PAC,   Q⁺S = Q − HPA (QR),   P ← Q⁺ + PSᵀ,   C ← SC

    from QC = B − HV⁰ and P = Q. A step is p products, and never later than p separate CGs: each
    column minimises the energy over the directions of all. Ends when ‖HV − B‖ over all columns is
    at most `tolerance`, if there is one. The residual is computed, not taken from the recurrence: p
    products at the start, and p at the end; where it has drifted, the recurrence starts anew from
    it as long as that halves it. A step costs p products, or q if p exceeds the dimension q.

    Parameters
    ----------
    matvec : function
        v ↦ Hv, for one vector.
    B, V0 : pytrees
        Right-hand sides and where to start, each leaf with a leading axis of p.
    steps : int
        The most steps, of p products each.
    tolerance : number, optional
        For ‖HV − B‖ over all columns; 0 spends all steps, as for the other loops.

    Returns
    -------
    V, LoopInfo

    Examples
    --------
    >>> V, info = bl.block_cg(matvec, jnp.eye(3), jnp.zeros((3, 3)), steps=3)
    >>> print(np.diagonal(V).round(3))
    [1.   0.5  0.25]
    """
    B, V0 = _checked(matvec, B, V0)
    system = _System(matvec, B)
    most = step_count(as_steps(minimum=1)(steps), 0)
    target = limit(as_tolerance(tolerance), 0)
    target = None if target is None else target.astype(system.dtype) / system.scale

    def unfinished(s: _Round) -> Array:
        return s.running

    def body(s: _Round) -> _Round:
        start = system.start(s.V, s.residual)
        rule = Rule(jnp.asarray(most, jnp.int32) - s.steps, target)
        loop = iterate(system.step, start, start.C, rule, residual_first=False, hopeless=_broken)
        V = loop.state.V
        residual = system.residual(V)
        before, after = vectors.norm(s.residual), vectors.norm(residual)
        used = s.steps + loop.steps
        reached = jnp.zeros((), bool) if target is None else after <= target
        failed = loop.state.result != code(Status.COMPLETED)
        again = ~reached & (after <= 0.5 * before) & (used < most) & ~failed
        again = again if target is not None else jnp.zeros((), bool)
        return _Round(V, residual, used, s.rounds + 1, reached, again, loop.state.result)

    V = _columns(V0).astype(system.dtype) / system.scale
    no, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    start = _Round(V, system.residual(V), zero, zero, no, ~no, code(Status.COMPLETED))
    end = lax.while_loop(unfinished, body, start)
    missed = code_if(~end.reached, Status.UNCONVERGED)
    result = end.result if target is None else first_failure(end.result, missed)
    width, p = min(system.columns.shape), system.columns.shape[1]
    cost = Cost(zero, end.steps * width + (end.rounds + 1) * p)
    residual = vectors.norm(end.residual) * system.scale
    return system.unscaled(end.V), LoopInfo(residual, end.steps, cost, result)


def _checked(matvec: Product, B: PyTree, V0: PyTree) -> tuple[PyTree, PyTree]:
    """Right-hand sides and starts as arrays, of the same shapes."""
    if as_function("matvec", "one vector", 1)(matvec) is None:
        raise TypeError("matvec must be a function of one vector, got None.")
    B, V0 = as_variable(B, "B"), as_variable(V0, "V0")
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (B, V0)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"V0 must have the shapes of B, {shapes[0]}; they are {shapes[1]}.")
    counts = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(B)}
    if len(counts) != 1 or () in counts:
        raise ValueError(
            f"Each leaf of B needs a leading axis with one entry for each right-hand side; the "
            f"shapes are {shapes[0]}."
        )
    return B, V0


class _Round(NamedTuple):
    """From one computed residual to the next."""

    V: Float[Array, "q p"]
    residual: Float[Array, "q p"]
    steps: Int[Array, ""]
    rounds: Int[Array, ""]
    reached: Bool[Array, ""]
    running: Bool[Array, ""]
    result: Code


class _System:
    """HV = B with the right-hand sides as columns, scaled to size one by a power of two."""

    def __init__(self, matvec: Product, B: PyTree) -> None:
        _, self._unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], B))
        self._matvec = matvec
        columns = _columns(B)
        self._narrow, self._rounding = columns.dtype, eps(columns)
        self.dtype = accumulator(columns)
        self.scale = vectors.power_of_two(vectors.largest(columns))
        self.columns = columns.astype(self.dtype) / self.scale

    def product(self, P: Float[Array, "q m"]) -> Float[Array, "q m"]:
        one = jax.vmap(
            lambda v: ravel_pytree(self._matvec(self._unravel(v)))[0], in_axes=1, out_axes=1
        )
        return one(P.astype(self._narrow)).astype(self.dtype)

    def residual(self, V: Float[Array, "q p"]) -> Float[Array, "q p"]:
        return self.columns - self.product(V)

    def start(self, V: Float[Array, "q p"], residual: Float[Array, "q p"]) -> _State:
        Q, C = jnp.linalg.qr(residual)
        return _State(V, Q, C, Q, code(Status.COMPLETED))

    def step(self, s: _State) -> tuple[_State, Array]:
        HP = self.product(s.P)
        energy = s.P.T @ HP
        curvatures, U = jnp.linalg.eigh((energy + energy.T) / 2)
        lowest, cutoff = curvatures[0], self._rounding * curvatures[-1]
        breakdown = jnp.where(
            lowest < -jnp.abs(cutoff),
            code(Status.INDEFINITE),
            jnp.where(lowest <= cutoff, code(Status.SINGULAR), code(Status.COMPLETED)),
        )
        result = first_failure(s.result, breakdown)
        A = U @ jnp.diag(1 / curvatures) @ U.T
        Q, S = jnp.linalg.qr(s.Q - HP @ A)
        after = _State(s.V + s.P @ (A @ s.C), Q, S @ s.C, Q + s.P @ S.T, result)
        # After a breakdown V stays what it was before it.
        after = where(result == code(Status.COMPLETED), after, s._replace(result=result))
        return after, after.C

    def unscaled(self, V: Float[Array, "q p"]) -> PyTree:
        return jax.vmap(self._unravel, in_axes=1)((V * self.scale).astype(self._narrow))


def _broken(s: _State) -> Bool[Array, ""]:
    return s.result != code(Status.COMPLETED)


def _columns(stack: PyTree) -> Float[Array, "q p"]:
    return jax.vmap(lambda leaf: ravel_pytree(leaf)[0], out_axes=1)(stack)
