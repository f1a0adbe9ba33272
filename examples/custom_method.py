"""A method that is not in the library: any hypergradient, averaged over the outer steps.

    m ← ρ m + (1 − ρ) h

It is `init` and `__call__`, and then works in solve, sweep and compare, with checkpoints, costs and
failure codes.

    python examples/custom_method.py
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

import biloop as bl


class State(NamedTuple):
    """The inner solution, the average, and what the averaged method carries."""

    y: PyTree
    average: PyTree
    carried: PyTree


class Momentum(bl.Method):
    """Heavy-ball momentum on the hypergradient of another method."""

    method: bl.Method
    decay: Float[Array, ""] = eqx.field(default=0.9, converter=jnp.asarray)

    def init(self, problem, x, y):
        carried = self.method.init(problem, x, y)
        return State(carried.y, jax.tree.map(jnp.zeros_like, x), carried)

    def __call__(self, problem, x, state, k):
        h, carried, info = self.method(problem, x, state.carried, k)

        def mix(m: Array, h: Array) -> Array:
            decay = self.decay.astype(m.dtype)
            return decay * m + (1 - decay) * h

        average = jax.tree.map(mix, state.average, h)
        # After a failure the state must still be one to go on from.
        kept = jax.tree.map(
            lambda m, old: jnp.where(jnp.isfinite(m), m, old), average, state.average
        )
        return average, State(carried.y, kept, carried), info

    def stability(self, L):
        return self.method.stability(L)


def main() -> None:
    made = bl.problems.quadratic(16.0, p=4, q=6)
    start = made.problem, made.x0, made.y0
    mine = Momentum(bl.schemes.n_q_loop(N=5, Q=5, inner_step=0.5, linear_step=0.5))

    run = bl.solve(*start, mine, outer=0.2, steps=200)
    print(f"solve: {run.status.name}, value {run.value:.6g}, {run.cost}")

    swept = bl.sweep(*start, mine, over={"decay": [0.0, 0.5, 0.9]}, outer=0.2, steps=200)
    for run in swept.runs:
        print(f"sweep: {run.trace.label}, value {run.value:.6g}")

    mine = bl.Candidate(mine, tune={"outer": None, "decay": [0.5, 0.9]})
    found = bl.compare(
        *start, {"Momentum": mine}, schemes=["N-Q-loop AID"], N=5, Q=5, seeds=[0], budget=300
    )
    for outcome in found.schemes:
        print(f"compare: {outcome.name} ({outcome.loops}) {outcome.status}, cost {outcome.cost:g}")


if __name__ == "__main__":
    main()
