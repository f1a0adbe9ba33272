"""A problem with samples whose derivatives are written by hand, and a loop without the engine."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

N, M, FEATURES = 24, 20, 3  # inner and outer samples


def inner(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def outer(x, y, V, u):
    return 0.5 * jnp.mean((V @ y - u) ** 2) + 0.05 * jnp.sum(x**2)


def regression(seed=0, n=N, m=M, features=FEATURES, dtype=np.float64):
    """Least squares with a penalty per feature: the inner problem is a quadratic."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=features)
    data = []
    for count in (n, m):
        A = rng.normal(size=(count, features))
        data.append((A.astype(dtype), (A @ w + rng.normal(size=count)).astype(dtype)))
    problem = bl.Problem(inner, outer, *data)
    return problem, jnp.full(features, -1.0, dtype), jnp.zeros(features, dtype)


class Hand:
    """The derivatives of `regression` on some rows, in NumPy."""

    def __init__(self, problem):
        self.X, self.t = map(np.asarray, problem.inner_data)
        self.V, self.u = map(np.asarray, problem.outer_data)

    def gradient(self, i, x, y):
        return self.X[i].T @ (self.X[i] @ y - self.t[i]) / len(i) + np.exp(x) * y

    def hessian(self, i, x, y, v):
        return self.X[i].T @ (self.X[i] @ v) / len(i) + np.exp(x) * v

    def cross(self, i, x, y, v):
        return np.exp(x) * y * v

    def inner_x(self, i, x, y):
        return 0.5 * np.exp(x) * y**2

    def outer_y(self, j, x, y):
        return self.V[j].T @ (self.V[j] @ y - self.u[j]) / len(j)

    def outer_x(self, j, x, y):
        return 0.1 * x

    def parts(self, rows, point):
        """What is summed over inner rows, and over outer rows, by direction."""
        (i, j), (x, y, v) = rows, point
        of_inner = self.gradient(i, x, y), self.hessian(i, x, y, v), self.cross(i, x, y, v)
        of_outer = np.zeros_like(y), self.outer_y(j, x, y), self.outer_x(j, x, y)
        return dict(zip("yvx", zip(of_inner, of_outer, strict=True), strict=True))

    def hypergradient(self, x):
        """∇Φ(x)."""
        i, j, q = np.arange(len(self.X)), np.arange(len(self.V)), len(x)
        H = self.X.T @ self.X / len(i) + np.diag(np.exp(x))
        y = np.linalg.solve(H, self.X.T @ self.t / len(i))
        v = np.linalg.solve(H, self.outer_y(j, x, y))
        assert H.shape == (q, q)
        return self.outer_x(j, x, y) - self.cross(i, x, y, v)


@eqx.filter_jit
def _rows(drawn, problem, t, u):
    rows = drawn.rows(problem, t, u)
    counts = problem.inner_samples, problem.outer_samples
    return [r(jnp.arange(n)) for r, n in zip(rows, counts, strict=True)]


def rows_of(method, problem, t, u=None):
    """The numbers of the rows of inner draw t and outer draw u."""
    t, u = jnp.asarray(t), jnp.asarray(t if u is None else u)
    return tuple(map(np.asarray, _rows(method.sampled, problem, t, u)))


@partial(eqx.filter_jit)
def _scan(method, problem, x, state, step, ks):
    def one(carry, k):
        x, state = carry
        h, state, info = method(problem, x, state, k)
        x = jax.tree.map(lambda x, h: x - jnp.asarray(step, x.dtype) * h, x, h)
        v = state.v if "v" in state._fields else state.y
        return (x, state), (x, state.y, v, h, info)

    return jax.lax.scan(one, (x, state), ks)


def path(method, problem, x, y, steps, step=0.1):
    """x, y, v, h and infos of so many outer steps, without solve."""
    state = method.init(problem, x, y)
    _, trajectory = _scan(method, problem, x, state, jnp.asarray(step), jnp.arange(steps))
    return trajectory


def samples(batch=(4, 5), key=0):
    return bl.Samples(bl.Blocks(batch[0]), bl.Blocks(batch[1]), key)


def everything():
    return bl.Samples(bl.All(), bl.All())
