"""optimistix: `minimise` inside jax.grad, implicit or unrolled, in a jitted outer step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jax import lax

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.jax_losses import losses
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with optimistix and lineax."""
    if instance.work.method not in ("AID", "ITD"):
        raise Unsupported
    return Minimise(instance)


class Richardson(lx.AbstractLinearSolver):
    """Q steps of gradient descent from 0 as a lineax solver: lineax's own stop at a tolerance."""

    step_size: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)

    def init(self, operator, options):
        return lx.linearise(operator)

    def compute(self, state, vector, options):
        def step(_, v):
            return jax.tree.map(
                lambda v, product, b: v - self.step_size * (product - b), v, state.mv(v), vector
            )

        v = lax.fori_loop(0, self.steps, step, jax.tree.map(jnp.zeros_like, vector))
        return v, lx.RESULTS.successful, {}

    def transpose(self, state, options):
        return state.transpose(), options

    def conj(self, state, options):
        return lx.conj(state), options

    def assume_full_rank(self):
        return True


class Minimise(Contender):
    """`max_steps` is N + 1, because the first step of its solvers only evaluates the start."""

    def __init__(self, instance: Instance):
        work, loss = instance.work, losses(instance)
        self.start, self.data = (loss.x, loss.y), (loss.inner_data, loss.outer_data)
        solver = optx.GradientDescent(work.step_size, rtol=0.0, atol=0.0)
        adjoint = (
            optx.ImplicitAdjoint(Richardson(work.step_size, work.Q))
            if work.method == "AID"
            else optx.RecursiveCheckpointAdjoint()
        )

        def value(x, y, inner_data, outer_data):
            solution = optx.minimise(
                lambda y, args: loss.inner(args[0], y, args[1]),
                solver,
                y,
                args=(x, inner_data),
                adjoint=adjoint,
                max_steps=work.N + 1,
                throw=False,
            )
            return loss.outer(x, solution.value, outer_data), solution.value

        @jax.jit
        def outer_step(x, y, data):
            h, y = jax.grad(value, has_aux=True)(x, y, *data)
            return x - work.outer_step_size * h, y, h

        self.outer_step = outer_step

    def hypergradients(self, count):
        (x, y), found = self.start, []
        for _ in range(count):
            x, y, h = self.outer_step(x, y, self.data)
            found.append(np.asarray(h))
        return found

    def run(self, steps):
        x, y = self.start
        for _ in range(steps):
            x, y, _ = self.outer_step(x, y, self.data)
        jax.block_until_ready(x)
