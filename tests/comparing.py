"""Comparisons that are made up: runs with costs and ends that are known, and what they give.

What the tests need of the inside of a comparison to make one up, they have from here.
"""

import contextlib
import math

import numpy as np

import biloop as bl
from biloop.comparison.candidates import Loops, Settings, Variant, named_variants
from biloop.comparison.measuring import Gauge, MeasuredRun, Snapshot
from biloop.comparison.result import Outcome
from biloop.comparison.runs import Runner, Watch
from biloop.comparison.terms import Point, Steps, Target
from biloop.run.record import Record
from biloop.run.step import Row

AIM = Target(0.1, 1.0)
SPACING = 1.1  # of the snapshots: x is recorded each time k has grown by a tenth
RATIO = 10 ** (1 / 3)  # of the step sizes that are tried first: three per decade
FINER, FINEST = RATIO**0.5, RATIO**0.25  # of those beside the best


def variant(scheme, method=None, **given):
    return Variant(scheme, Settings(method, None), **given)


def outcome(name, costs, N=1, Q=1, number=0.1, steps=2):
    """A scheme that needs so much to the target from each start; None: never."""
    runs = [
        made_up(1, [1.0] * 5) if cost is None else made_up(cost / steps, [*[1.0] * steps, 0.01])
        for cost in costs
    ]
    search = None if number is None else "outer"
    return finished(variant(name, N=N, Q=Q, code=f"code of {name}", search=search), number, runs)


def named(names, N, Q, step, problem=None, batch=None):
    """The named schemes with loops of these lengths, both with steps of this size."""
    steps = Steps(step, step, "given", "given")
    return list(named_variants(problem, names, batch, Loops(N, Q), steps))


def finished(variant, number, runs):
    return Outcome(variant, number, tuple(runs), AIM, rate=1e-3)


def compared(outcomes, budget=1000):
    """A comparison that came out so; of its problem nothing is known."""
    return bl.Comparison(
        {}, AIM.norm2, AIM.value, budget, (0, 1), tuple(outcomes), None, (), {}, {}, "", ""
    )


def verdict(outcomes):
    return compared(outcomes).verdict


def recommended(outcomes):
    """Whose line of code is recommended."""
    advice = compared(outcomes).recommendation
    (found,) = [each for each in outcomes if f"method = {each.code}\n" in advice]
    return found


def runner(problem, starts=(), budget=100):
    """What makes the runs of a comparison, from these (x0, y0)."""
    points = [Point(*start) for start in starts]
    watch = Watch(False)
    gauge = Gauge(problem, points[0].y, watch) if points else None
    return Runner(problem, points, 0.0, budget, gauge, watch)


def made_up(cost_per_step, norm2, value=None, status=bl.Status.BUDGET_SPENT, own=None):
    """A run with this ‖∇Φ‖² after 0, 1, 2, … steps; `own` is what it believes of ‖h‖."""
    steps = len(norm2) - 1
    columns = {name: np.zeros(steps) for name in Row._fields}
    columns["gradients"] = np.full(steps, cost_per_step)
    columns["metrics"] = {}
    columns["hypergradient_norm"] = np.zeros(steps) if own is None else own
    record = Record()
    record.add(0, Row(**columns), steps, 1.0)
    snapshots = tuple(Snapshot(k, 0.0, 0.0, 0.0) for k in range(steps + 1))
    run = MeasuredRun(snapshots, status, bl.schemes.auto(), record)
    run.norm2[:] = norm2
    run.value[:] = np.zeros(steps + 1) if value is None else value
    run.measured[:] = True
    return run


class Sound:
    """Runs whose cost is known: the longer a step the better, up to 1, beyond which they fail.

    With a part of the budget they seem to be stable up to 5.
    """

    points, first_value, budget = (None,), 0.0, 1000
    cheap, limited = True, False

    def __init__(self):
        self.gauge = self.watch = self
        self.tried = []

    def find_arrivals(self, runs, target): ...

    def find_best(self, groups, target): ...

    def say(self, what): ...

    def interrupted(self):
        return False

    over = interrupted

    def within(self, share):
        return contextlib.nullcontext()

    each = staticmethod(iter)

    def runs(self, variant, starts, part=1, width=2):
        self.tried += [number for number, _ in starts]
        return [self.run(number, 5.0 if part > 1 else 1.0) for number, _ in starts]

    def run(self, number, stable):
        status = bl.Status.UPDATE_NOT_FINITE if number > stable else bl.Status.BUDGET_SPENT
        cost = 100 * (1 + abs(math.log(number / stable)))
        return made_up(cost, [1.0, 0.01], value=[0.0, 0.0], status=status)
