"""biloop with `bl.problems.data_cleaning`, which lays out its data for speed."""

import jax.numpy as jnp

import biloop as bl
from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.biloop_obvious import Solve, Unit
from benchmarks.peers.reference import PENALTY
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The shipped problem on the data of the work, where there is one."""
    work = instance.work
    if work.problem != "cleaning":
        raise Unsupported
    train, validation = (
        bl.data.Samples(inputs, one_hot.argmax(axis=1))
        for inputs, one_hot in (instance.inner.values(), instance.outer.values())
    )
    problem = bl.problems.data_cleaning(
        train, validation, classes=work.sizes[-1], penalty=PENALTY
    ).problem
    x, W = jnp.asarray(instance.start.x), jnp.asarray(instance.start.y.T)  # a row per class
    if work.method in ("AID", "ITD"):
        return Solve(work, problem, x, W)
    return ShippedUnit(work, problem, x, W)


class ShippedUnit(Unit):
    """The same units; their arrays have the classes first."""

    def hypergradients(self, count):
        return [h.T for h in Unit.hypergradients(self, count)]
