"""jaxopt: `GradientDescent.run` inside jax.grad, implicit or unrolled, in a jitted outer step."""

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
from jax import lax

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.jax_losses import losses
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with jaxopt."""
    if instance.work.method not in ("AID", "ITD"):
        raise Unsupported
    return Solver(instance)


class Solver(Contender):
    """AID with the Q steps of the linear system given as `implicit_diff_solve`; or unrolled ITD."""

    def __init__(self, instance: Instance):
        work, loss = instance.work, losses(instance)
        self.start, self.data = (loss.x, loss.y), (loss.inner_data, loss.outer_data)

        def richardson(matvec, b, **_):
            def step(_, v):
                return v - work.step_size * (matvec(v) - b)

            return lax.fori_loop(0, work.Q, step, jnp.zeros_like(b))

        solver = jaxopt.GradientDescent(
            lambda y, x, data: loss.inner(x, y, data),
            stepsize=work.step_size,
            maxiter=work.N,
            tol=0.0,
            acceleration=False,
            implicit_diff=work.method == "AID",
            implicit_diff_solve=richardson,
        )

        def value(x, y, inner_data, outer_data):
            y = solver.run(y, x, inner_data).params
            return loss.outer(x, y, outer_data), y

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
