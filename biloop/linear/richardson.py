"""Gradient descent on the linear system: the Q-loop of Algorithm 1."""

import equinox as eqx

from biloop import vectors
from biloop.linear.base import LinearSolver, linear_info
from biloop.linear.stepped import Stepped
from biloop.loops.adaptive import adaptivity, curvature_state
from biloop.loops.iteration import Rule, iterate, limit
from biloop.loops.step_size import BarzilaiBorwein, Given, as_step_size, rule_of, with_step_at
from biloop.schedules import Adaptive, Schedule, as_steps, as_tolerance, step_count
from biloop.vectors import subtract


class Richardson(LinearSolver, Stepped):
    """Q steps of gradient descent on ½ vᵀHv − bᵀv.

    v ← v − η (H v − b)

    Q products. The residual is that of the last v that was multiplied: the one returned where it is
    at most the tolerance, else v^{Q−1}. Q = 0 keeps v: from v⁰ = 0 that is the first-order
    hypergradient ∇_x f, exact for minimax problems (f = −g).

    Parameters
    ----------
    step_size : number, schedule of k or "auto"
        η. "auto" finds it along the way, see `BarzilaiBorwein`.
    steps : integer, schedule of k or "auto"
        Q, the largest number of steps. "auto" is `Adaptive()`.
    tolerance : number or schedule of k
        The loop ends at ‖Hv − b‖ ≤ tolerance. 0, the default, spends all steps.

    Examples
    --------
    >>> solver = bl.Richardson(step_size=0.3, steps=60)
    >>> v, state, info = solver(matvec, b, y0, solver.init(y0), 0)
    >>> print(np.asarray(v).round(3), int(info.cost.products))
    [1.   0.5  0.25] 60
    """

    step_size: Given = eqx.field(converter=as_step_size)
    steps: Schedule = eqx.field(converter=as_steps(minimum=0))
    tolerance: Schedule | None = eqx.field(default=None, converter=as_tolerance)

    @property
    def needs_symmetry(self):
        return isinstance(self.step_size, BarzilaiBorwein)

    @property
    def judges(self):
        return self.tolerance is not None or isinstance(self.steps, Adaptive)

    def init(self, v):
        rule_of(self.step_size).init(v)  # refuses a step that is none in the precision of v
        return curvature_state(self.steps, v)

    def __call__(self, matvec, b, v0, state, k):
        rule = rule_of(with_step_at(self, k).step_size)

        def step(carry):
            v, own = carry
            residual = subtract(matvec(v), b)
            return rule.step(v, residual, own), residual

        ends = Rule(
            step_count(self.steps, k),
            limit(self.tolerance, k),
            adaptivity(self.steps, v0, lambda before, _: before[0], state),
        )
        kept = rule.init(v0)  # nothing: what one loop finds is not for the next
        start = (v0, rule.start(v0, kept))
        loop = iterate(step, start, b, ends, residual_first=True)
        v, own = loop.state
        if ends.judges:
            v = vectors.where(loop.arrived, v, rule.finish(v, own))
        else:
            v = rule.finish(v, own)
        return v, loop.curvature, linear_info(loop.residual, loop.steps, loop.steps, loop.result)

    def begin(self, b, v0):
        return v0

    def step(self, matvec, b, state, k):
        rule = rule_of(with_step_at(self, k).step_size)
        return rule.step(state, subtract(matvec(state), b), ())[0]

    def finish(self, state, k):
        return state

    def length(self, key, k):
        return self.longest(k)

    def longest(self, k):
        return step_count(self.steps, k)

    @property
    def starts_cold(self):
        return False

    def stability(self, L):
        return rule_of(self.step_size).stability(L)
