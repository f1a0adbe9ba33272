"""The recurrence of conjugate gradients, as the loops that need it see it.

M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems (1952).

How it differs from the textbook:

- b is scaled to size one by a power of two, so that no square underflows.
- The residual of the recurrence drifts from b − Hv by about eps · ‖H‖‖v‖ in each step, this way or
  that (A. Greenbaum, Estimating the attainable accuracy of recursively computed residual methods,
  1997).
  Both numbers are known, so the size that is judged includes the drift; where only the drift stands
  between the residual and the tolerance, one product computes b − Hv and the recurrence starts anew
  from it. A residual that does not halve between two such products has reached rounding.
- Negative curvature and a singular H end in a result code; v is then the last one before it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from biloop import vectors
from biloop.loops.adaptive import Adaptivity, Curvature, Observation
from biloop.loops.iteration import Loop, Rule, iterate
from biloop.loops.results import Code, Status, code, code_if, first_failure
from biloop.oracles import Product
from biloop.schedules import Count
from biloop.vectors import add_scaled, inner_product, scaled, subtract

_SOLVED = 0.3  # of b: a residual that is larger is no solution, whatever keeps it there
_PRODUCT_ERROR = 10.0  # eps: the rounding of one product, beside that of the steps
_WAVES = 2.0  # times √κ: the residual may rise for so long before it falls


class State(NamedTuple):
    """v, its residual and the direction to go on, with the numbers that are known of them."""

    v: PyTree
    r: PyTree  # b − H v
    p: PyTree  # search direction
    rr: Float[Array, ""]  # ⟨r, r⟩
    rz: Float[Array, ""]  # ⟨r, M⁻¹r⟩
    pp: Float[Array, ""]  # ⟨p, Mp⟩
    top: Float[Array, ""]  # the largest |⟨p, Hp⟩| / ⟨p, Mp⟩ so far: a lower bound of ‖M⁻¹H‖
    lowest: Float[Array, ""]  # the smallest ⟨p, Hp⟩ / ⟨p, Mp⟩ so far
    rayleigh: Float[Array, ""]  # that of the last step, 0 if it was none
    stiff: Float[Array, ""]  # a lower bound of ‖H‖, without M: `top`, or the largest ‖Hp‖ / ‖p‖
    dd: Float[Array, ""]  # ⟨d, d⟩ for d = v − v⁰
    dp: Float[Array, ""]  # ⟨d, p⟩, without M
    age: Float[Array, ""]  # steps since r was computed as b − Hv
    computed: Float[Array, ""]  # ‖b − Hv‖ when it was last computed
    stalled: Bool[Array, ""]  # it did not halve since the time before
    result: Code


class Found(NamedTuple):
    """A direction, what was learnt, the products, and ‖Hδ − d‖; the extreme curvatures."""

    direction: PyTree
    learnt: Curvature
    products: Int[Array, ""]
    left: Float[Array, ""]
    lowest: Float[Array, ""]
    top: Float[Array, ""]
    arrived: Bool[Array, ""]


def newton_direction(
    matvec: Product,
    d: PyTree,
    known: Curvature,
    share: Float[Array, ""],
    most: Count,
    travelled: Float[Array, ""],
) -> Found:
    """δ ≈ H⁻¹d from zero under the rule of `Adaptive`, as a part of a loop that has travelled.

    At negative curvature it is the direction so far, which descends.
    """
    system = System(matvec, d, None, None)
    nothing = jnp.zeros_like(known.inverse_mu)
    rule = Adaptivity(share, known.inverse_mu, nothing, _unseen, (), travelled)
    delta, loop = system.solve(Rule(most, None, rule))
    assert isinstance(loop.curvature, Curvature)
    s: State = loop.state
    return Found(delta, loop.curvature, loop.steps, loop.residual, s.lowest, s.top, loop.arrived)


def _unseen(*_: PyTree) -> tuple[PyTree, Observation]:
    raise AssertionError("CG observes its steps by its own recurrences.")


class System:
    """H v = b from v⁰ (zero if None, where the residual is known), scaled to ‖b‖ ≈ 1."""

    def __init__(
        self,
        matvec: Product,
        b: PyTree,
        v0: PyTree | None,
        precondition: Callable[[PyTree], PyTree] | None,
    ) -> None:
        size = vectors.largest(b)
        self.scale = vectors.power_of_two(size)
        self._matvec, self._precondition = matvec, precondition
        self._alone = v0 is not None
        self._b = scaled(1 / self.scale, b)
        start = vectors.zeros_like(b)
        if v0 is not None:  # b = 0 has no scale; nor does it need one, as v = 0 then
            start = vectors.where(size > 0, scaled(1 / self.scale, v0), start)
        self.v0 = start
        self.r = self._b if v0 is None else subtract(self._b, matvec(start))

    def solve(self, rule: Rule) -> tuple[PyTree, Loop]:
        """v and the loop, in the scale of b."""
        like, eps = self._b, vectors.eps(self._b)
        start_norm = vectors.norm(self.v0)
        tolerance = rule.tolerance
        if tolerance is not None:
            tolerance = (tolerance.astype(start_norm.dtype) / self.scale).astype(start_norm.dtype)
        adaptive = self._observed(rule.adaptive)

        def drift(s: State) -> Float[Array, ""]:
            length = start_norm + jnp.sqrt(jnp.maximum(s.dd, 0))
            return jnp.where(
                s.age > 0, (jnp.sqrt(s.age) + _PRODUCT_ERROR) * eps * s.stiff * length, 0.0
            )

        def size(s: State, _residual: PyTree) -> Float[Array, ""]:
            return jnp.sqrt(s.rr) + drift(s).astype(s.rr.dtype)

        def due(s: State) -> Bool[Array, ""]:
            """Whether only the drift stands between the residual and the tolerance."""
            if tolerance is None:
                return jnp.zeros((), bool)
            return (jnp.sqrt(s.rr) <= tolerance) & (s.age > 0) & (size(s, None) > tolerance)

        loop = iterate(
            lambda s: self._step(s, due(s) if tolerance is not None else None),
            self._first(),
            like,
            Rule(rule.steps, tolerance, adaptive),
            residual_first=False,
            size=size,
            hopeless=lambda s: s.stalled | (s.result != code(Status.COMPLETED)),
        )
        s: State = loop.state
        residual = loop.residual * self.scale
        result = first_failure(s.result, loop.result)
        loop = loop._replace(residual=residual, result=result)
        return scaled(self.scale, s.v), loop

    def _first(self) -> State:
        r = self.r
        z = r if self._precondition is None else self._precondition(r)
        rr, rz = inner_product(r, r), inner_product(r, z)
        none = jnp.zeros_like(rr)
        return State(
            self.v0, r, z, rr, rz, rz, none, none + jnp.inf, none, none, none, none, none,
            jnp.sqrt(rr), jnp.zeros((), bool), code(Status.COMPLETED),
        )  # fmt: skip

    def _step(self, s: State, check: Bool[Array, ""] | None) -> tuple[State, PyTree]:
        """One product: with the search direction, or with v to compute the residual anew."""
        if check is None:
            after = self._conjugate(s, self._matvec(s.p), judged=False)
            return after, after.r
        product = self._matvec(vectors.where(check, s.v, s.p))
        after = vectors.where(
            check, self._anew(s, product), self._conjugate(s, product, judged=True)
        )
        return after, after.r

    def _conjugate(self, s: State, Hp: PyTree, *, judged: bool) -> State:
        eps = vectors.eps(self._b)
        curvature = inner_product(s.p, Hp)
        # Below this the residual is rounding error, and another step would divide zero by zero.
        # (The CG of several bilevel libraries returns the iterate before the converged one.)
        least = jnp.maximum(inner_product(self._b, self._b), s.computed**2)
        # Nor is the rounding of products followed, where no tolerance asks for it: an H that is
        # singular by the constraints of y never takes it away, and would be blamed for it.
        if not judged:
            least = jnp.maximum(least, (_PRODUCT_ERROR * s.stiff) ** 2 * s.dd)
        solved = s.rr <= eps**2 * least
        rayleigh = curvature / jnp.where(s.pp > 0, s.pp, jnp.ones_like(s.pp))
        top = jnp.maximum(s.top, jnp.abs(rayleigh))
        result = first_failure(s.result, _breakdown(s, rayleigh, eps * top, solved))

        stop = solved | (result != code(Status.COMPLETED))
        a = jnp.where(stop, jnp.zeros_like(s.rr), s.rz / jnp.where(stop, 1.0, curvature))
        v, r = add_scaled(s.v, a, s.p), add_scaled(s.r, -a, Hp)
        z = r if self._precondition is None else self._precondition(r)
        rr, rz = inner_product(r, r), inner_product(r, z)
        ratio = jnp.where(stop, jnp.zeros_like(rr), rz / jnp.where(stop, 1.0, s.rz))
        if self._precondition is None:
            stiff = top
            dd = s.dd + 2 * a * s.dp + a**2 * s.pp
            dp = ratio * (s.dp + a * s.pp)  # as ⟨d⁺, r⁺⟩ = 0
        else:
            # The recurrences are in the norm of M, and say nothing of the rounding of Hv.
            length, d = vectors.norm(s.p), vectors.norm(subtract(v, self.v0))
            stiff = vectors.norm(Hp) / jnp.where(length > 0, length, jnp.ones_like(length))
            stiff, dd, dp = jnp.maximum(s.stiff, stiff), jnp.maximum(s.dd, d**2), s.dp
        return State(
            v=v,
            r=r,
            p=add_scaled(z, ratio, s.p),
            rr=rr,
            rz=rz,
            pp=rz + ratio**2 * s.pp,  # as ⟨p, r⁺⟩ = 0
            top=top,
            lowest=jnp.where(solved, s.lowest, jnp.minimum(s.lowest, rayleigh)),
            rayleigh=jnp.where(stop, jnp.zeros_like(rayleigh), rayleigh),
            stiff=stiff,
            dd=dd,
            dp=dp,
            age=jnp.where(solved, s.age, s.age + 1),
            computed=s.computed,
            stalled=s.stalled,
            result=result,
        )

    def _anew(self, s: State, Hv: PyTree) -> State:
        """From the residual at v as it is, not as the recurrence has it."""
        r = subtract(self._b, Hv)
        z = r if self._precondition is None else self._precondition(r)
        rr, rz = inner_product(r, r), inner_product(r, z)
        computed, zero = jnp.sqrt(rr), jnp.zeros_like(rr)
        stalled = computed > 0.5 * s.computed
        return s._replace(
            r=r, p=z, rr=rr, rz=rz, pp=rz, rayleigh=zero, dp=zero, age=zero,
            computed=computed, stalled=stalled,
        )  # fmt: skip

    def _observed(self, rule: Adaptivity | None) -> Adaptivity | None:
        """The rule of `Adaptive` in this scale; without M from numbers that are known anyway.

        T. Steihaug, The conjugate gradient method and trust regions in large scale optimization
        (1983), has the recurrence for ‖v − v⁰‖.
        """
        if rule is None:
            return None
        travelled = jnp.asarray(rule.travelled, self.scale.dtype) / self.scale
        # The size of a residual includes its drift; but two per cent are no rounding.
        most_rounding = 0.02 / vectors.eps(self._b)
        rounding = min(2 * _PRODUCT_ERROR, most_rounding)
        # As long as v = 0 does nearly as well, only stiff directions have been seen, or all is
        # rounding. (A part of a longer loop may be done before it has begun.)
        b = vectors.norm(self._b)
        most = jnp.where((b > 0) & self._alone, _SOLVED * b, jnp.inf)
        rule = rule._replace(travelled=travelled, rounding=rounding, most=most, waves=_WAVES)
        if self._precondition is not None:
            return rule

        def observe(
            own: PyTree, _before: State, s: State, _r: PyTree
        ) -> tuple[PyTree, Observation]:
            safe = jnp.where(s.rayleigh > 0, s.rayleigh, 1.0)
            inverse = jnp.where(s.rayleigh > 0, 1 / safe, jnp.zeros_like(safe))
            # What is rounding grows with the steps, as the drift does.
            grown = jnp.minimum(1 + jnp.sqrt(s.age) / _PRODUCT_ERROR, most_rounding / rounding)
            top = s.top * grown.astype(s.top.dtype)
            return own, Observation(inverse, top, jnp.sqrt(jnp.maximum(s.dd, 0)))

        return rule._replace(observe=observe, state=())


def _breakdown(
    s: State, rayleigh: Float[Array, ""], flat: Float[Array, ""], solved: Bool[Array, ""]
) -> Code:
    definite = (rayleigh > flat) & (s.rz > 0)  # a negative entry of M shows in rz
    # A NaN fails every comparison; it must reach v and r and not be called a breakdown.
    unknown = jnp.isnan(rayleigh) | jnp.isnan(s.rz)
    sound = solved | definite | unknown
    singular = code_if(jnp.abs(rayleigh) <= flat, Status.SINGULAR)
    indefinite = jnp.where(singular == 0, code(Status.INDEFINITE), singular)
    return jnp.where(sound, code(Status.COMPLETED), indefinite)
