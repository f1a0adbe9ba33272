"""A small data cleaning problem, with a weight σ(x_i) for each training sample."""

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

SAMPLES, FEATURES, CLASSES = 64, 5, 3
N, Q = 4, 3


def samples(seed):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(SAMPLES, FEATURES))
    return inputs, np.eye(CLASSES)[np.argmax(inputs[:, :CLASSES], axis=1)]


def cross_entropy(W, inputs, labels):
    scores = inputs @ W.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(scores * labels, axis=1)


def inner(x, W, inputs, labels):
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, inputs, labels)) + 0.01 * jnp.sum(W**2)


def outer(x, W, inputs, labels):
    return jnp.mean(cross_entropy(W, inputs, labels))


X, W = np.linspace(-1, 1, SAMPLES), np.zeros((CLASSES, FEATURES))


# Nothing of JAX is used before these are called: processes have to join first.
def cleaning(**options):
    return bl.Problem(inner, outer, inner_data=samples(0), outer_data=samples(1), **options)


def aid():
    return bl.AID(bl.GradientDescent(0.3, steps=N), bl.Richardson(0.3, steps=Q))


def sampled_methods():
    """Tables, a refresh, and rows that are drawn one by one in loops."""
    return {
        "SABA": bl.schemes.saba(8, 0.3, 0.3),
        "SRBA": bl.schemes.srba(8, 0.3, 0.3, period=4),
        "stocBiO": bl.schemes.stocbio(bl.Uniform(8), 0.3, 0.3, N=3, Q=2),
    }


def solve(problem, method=None, x=X, outer=10.0, steps=20, **options):
    method = aid() if method is None else method
    return bl.solve(problem, x, W, method, outer=outer, steps=steps, **options)
