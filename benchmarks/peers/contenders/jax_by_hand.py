"""The loops in plain JAX, compiled as one program: no checks, no residuals, no record."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.jax_losses import Losses, losses
from benchmarks.peers.works import Instance, Work


def prepare(instance: Instance, device: str) -> Contender:
    """The work with jax.grad, jax.vjp and lax loops."""
    if instance.work.method not in _STEPS:
        raise Unsupported
    return ByHand(instance)


class ByHand(Contender):
    """The base loop as one `fori_loop`; the data are arguments of the compiled program."""

    def __init__(self, instance: Instance):
        work, loss = instance.work, losses(instance)
        self.start = (loss.x, loss.y, jnp.zeros_like(loss.y))
        self.data = (loss.inner_data, loss.outer_data)

        def step(carry, data):
            return _STEPS[work.method](work, loss, carry, data)

        def advance(carry, data, steps):
            return lax.fori_loop(0, steps, lambda _, c: step(c, data)[0], carry)

        self.step, self.advance = jax.jit(step), jax.jit(advance)

    def hypergradients(self, count):
        carry, found = self.start, []
        for _ in range(count):
            carry, h = self.step(carry, self.data)
            found.append(np.asarray(h))
        return found

    def run(self, steps):
        jax.block_until_ready(self.advance(self.start, self.data, steps))


def _aid(w: Work, loss: Losses, carry, data):
    (x, y, v), (inner_data, outer_data) = carry, data
    gradient = jax.grad(loss.inner, 1)
    y = lax.fori_loop(0, w.N, lambda _, y: y - w.step_size * gradient(x, y, inner_data), y)
    f_x, f_y = jax.grad(loss.outer, (0, 1))(x, y, outer_data)
    _, products = jax.vjp(lambda x, y: gradient(x, y, inner_data), x, y)
    v = lax.fori_loop(0, w.Q, lambda _, v: v - w.step_size * (products(v)[1] - f_y), v)
    h = f_x - products(v)[0]
    return (x - w.outer_step_size * h, y, v), h


def _itd(w: Work, loss: Losses, carry, data):
    (x, y, v), (inner_data, outer_data) = carry, data

    def unrolled(x):
        def step(y, _):
            return y - w.step_size * jax.grad(loss.inner, 1)(x, y, inner_data), None

        end, _ = lax.scan(step, y, length=w.N)
        return loss.outer(x, end, outer_data), end

    h, y = jax.grad(unrolled, has_aux=True)(x)
    return (x - w.outer_step_size * h, y, v), h


_STEPS = {"AID": _aid, "ITD": _itd}
