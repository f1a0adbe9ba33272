"""biloop with the losses as one writes them: `bl.solve`, its record and its checks included."""

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl
from benchmarks.peers.contenders.base import Contender
from benchmarks.peers.contenders.jax_losses import losses
from benchmarks.peers.works import Instance, Work
from biloop.compilation import compiled
from biloop.oracles import inner_gradient, linearise


def prepare(instance: Instance, device: str) -> Contender:
    """The work as a `bl.Problem`."""
    loss = losses(instance)
    problem = bl.Problem(
        loss.inner, loss.outer, inner_data=(loss.inner_data,), outer_data=(loss.outer_data,)
    )
    kind = Solve if instance.work.method in ("AID", "ITD") else Unit
    return kind(instance.work, problem, loss.x, loss.y)


class Solve(Contender):
    """Outer steps of `bl.solve`."""

    def __init__(self, work: Work, problem: bl.Problem, x: jax.Array, y: jax.Array):
        self.work, self.problem, self.x, self.y = work, problem, x, y
        inner = bl.GradientDescent(step_size=work.step_size, steps=work.N)
        self.method = (
            bl.AID(inner, bl.Richardson(step_size=work.step_size, steps=work.Q))
            if work.method == "AID"
            else bl.ITD(inner, memory="auto")
        )

    def hypergradients(self, count):
        x, warm = self.x, self.method.init(self.problem, self.x, self.y)
        step = jax.jit(self.method)
        found = []
        for k in range(count):
            h, warm, _ = step(self.problem, x, warm, k)
            x = x - self.work.outer_step_size * h
            found.append(np.asarray(h))
        return found

    def run(self, steps):
        run = bl.solve(
            self.problem,
            self.x,
            self.y,
            self.method,
            outer=self.work.outer_step_size,
            steps=steps,
            progress=False,
            throw=True,
        )
        jax.block_until_ready(run.x)


class Unit(Contender):
    """Gradients, as steps of `bl.GradientDescent`, or products, as steps of `bl.Richardson`.

    Compiled as `solve` compiles them.
    """

    def __init__(self, work: Work, problem: bl.Problem, x: jax.Array, y: jax.Array):
        self.work, self.problem, self.x, self.y = work, problem, x, y
        self.loop = compiled(_gradients if work.method == "gradient" else _products)

    def hypergradients(self, count):
        @jax.jit
        def unit(problem, x, y):
            if self.work.method == "gradient":
                return inner_gradient(problem, x, y)
            return linearise(problem, x, y)[0](y)

        return [np.asarray(unit(self.problem, self.x, self.y))]

    def run(self, steps):
        steps = jnp.asarray(steps, jnp.int32)
        step_size = jnp.asarray(self.work.step_size)
        jax.block_until_ready(self.loop(self.problem, self.x, self.y, step_size, steps))


def _gradients(problem, x, y, step_size, steps):
    return bl.GradientDescent(step_size=step_size, steps=steps)(problem, x, y, 0)


def _products(problem, x, y, step_size, steps):
    hessian, _ = linearise(problem, x, y)
    return bl.Richardson(step_size=step_size, steps=steps)(hessian, y, y, 0)
