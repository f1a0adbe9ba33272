"""Runs of a comparison that are made up, with costs and ends that are known."""

import contextlib
import math

import numpy as np

import biloop as bl
from biloop.comparison.measuring import MeasuredRun, Snapshot
from biloop.comparison.terms import Target
from biloop.run.record import Record
from biloop.run.step import Row

AIM = Target(0.1, 1.0)


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
