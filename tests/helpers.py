"""The tables of objects that every protocol test runs over, and problems with known answers."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax

import biloop as bl

COLUMNS = (  # of the trace of a run, in their order
    "k", "value", "hypergradient_norm", "inner_residual", "linear_residual", "gradients",
    "products", "seconds", "result",
)  # fmt: skip


class Quadratic(NamedTuple):
    """g = ½yᵀAy − yᵀ(Bx + c), f = ½(y − t)ᵀD(y − t) + ½xᵀEx: everything in closed form."""

    A: np.ndarray
    B: np.ndarray
    c: np.ndarray
    D: np.ndarray
    t: np.ndarray
    E: np.ndarray

    @property
    def L(self):
        return np.linalg.eigvalsh(self.A)[-1]

    @property
    def mu(self):
        return np.linalg.eigvalsh(self.A)[0]

    @property
    def problem(self):
        data = (self._asdict(),)
        return bl.Problem(quadratic_inner, quadratic_outer, inner_data=data, outer_data=data)

    def minimiser(self, x):
        return np.linalg.solve(self.A, self.B @ x + self.c)

    def adjoint(self, y):
        return np.linalg.solve(self.A, self.D @ (y - self.t))

    def value(self, x):
        y = self.minimiser(x)
        return 0.5 * (y - self.t) @ self.D @ (y - self.t) + 0.5 * x @ self.E @ x

    def hypergradient(self, x):
        # ∇_x∇_y g = −Bᵀ, so ∇Φ = Ex + Bᵀv.
        return self.E @ x + self.B.T @ self.adjoint(self.minimiser(x))

    def start(self, seed=1):
        rng = np.random.default_rng(seed)
        p, q = self.B.shape[1], self.B.shape[0]
        return jnp.asarray(rng.normal(size=p)), jnp.asarray(rng.normal(size=q))


def quadratic_inner(x, y, d):
    return 0.5 * y @ (d["A"] @ y) - y @ (d["B"] @ x + d["c"])


def quadratic_outer(x, y, d):
    r = y - d["t"]
    return 0.5 * r @ (d["D"] @ r) + 0.5 * x @ (d["E"] @ x)


def random_quadratic(seed=0, q=6, p=4, kappa=8.0, dtype=np.float64):
    rng = np.random.default_rng(seed)

    def definite(n, low, high):
        U = np.linalg.qr(rng.normal(size=(n, n)))[0]
        return (U * np.geomspace(low, high, n)) @ U.T

    return Quadratic(
        A=definite(q, 1.0, kappa).astype(dtype),
        B=rng.normal(size=(q, p)).astype(dtype),
        c=rng.normal(size=q).astype(dtype),
        D=definite(q, 0.5, 2.0).astype(dtype),
        t=rng.normal(size=q).astype(dtype),
        E=definite(p, 0.1, 1.0).astype(dtype),
    )


# The functions stand here and not within, so that every test that has them shares a program.


def logistic_inner(x, y, X, labels):
    return jnp.mean(jax.nn.softplus(-labels * (X @ y))) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def logistic_outer(x, y, V, labels):
    return jnp.mean(jax.nn.softplus(-labels * (V @ y)))


def logistic_problem(seed=0, samples=40, features=5, dtype=np.float64):
    """Logistic regression with a penalty exp(x_j) per feature: smooth, strongly convex, ρ > 0."""
    rng = np.random.default_rng(seed)
    X, V = rng.normal(size=(2, samples, features)).astype(dtype)
    w = rng.normal(size=features)
    labels = [np.where(Z @ w + rng.normal(size=samples) > 0, 1, -1).astype(dtype) for Z in (X, V)]
    problem = bl.Problem(
        logistic_inner, logistic_outer, inner_data=(X, labels[0]), outer_data=(V, labels[1])
    )
    return problem, jnp.full(features, -2.0, dtype), jnp.zeros(features, dtype)


def tree_predict(y, X):
    return X @ y[0] + jnp.broadcast_to(y[1]["bias"]["b"], (X.shape[0], 2))


def tree_inner(x, y, X, T):
    penalty = jnp.exp(x["matrix"]) * jnp.sum(y[0] ** 2) + jnp.sum(
        jnp.exp(x["bias"]) * y[1]["bias"]["b"][0] ** 2
    )
    return 0.5 * jnp.mean((tree_predict(y, X) - T) ** 2) + penalty


def tree_outer(x, y, V, U):
    return 0.5 * jnp.mean((tree_predict(y, V) - U) ** 2)


def tree_problem(dtype=np.float64):
    """x a dictionary, y a list of a matrix and a nested dictionary."""
    rng = np.random.default_rng(3)
    X, V = rng.normal(size=(2, 12, 3)).astype(dtype)
    T, U = rng.normal(size=(2, 12, 2)).astype(dtype)
    x = {"matrix": jnp.asarray(-1.0, dtype), "bias": jnp.full(2, -1.0, dtype)}
    y = [jnp.zeros((3, 2), dtype), {"bias": {"b": jnp.zeros((1, 2), dtype)}}]
    return bl.Problem(tree_inner, tree_outer, inner_data=(X, T), outer_data=(V, U)), x, y


# Step sizes for problems with L ≤ 8 and μ ≥ 1 (or smaller curvature).
STEP = 0.1

INNER_SOLVERS = {
    "gradient descent": lambda a=STEP, n=10: bl.GradientDescent(step_size=a, steps=n),
    "gradient descent to tolerance": lambda a=STEP, n=10: bl.GradientDescent(
        step_size=a, steps=n, tolerance=1e-6
    ),
    "gradient descent, growing": lambda a=STEP, n=10: bl.GradientDescent(
        step_size=a, steps=bl.schedules.Power(n, 0.25)
    ),
    "nesterov": lambda a=STEP, n=10: bl.Nesterov(step_size=a, momentum=0.4, steps=n),
    "heavy ball": lambda a=STEP, n=10: bl.HeavyBall(step_size=a, momentum=0.2, steps=n),
    "optax adam": lambda a=STEP, n=10: bl.Optax(_adam(a), steps=n),
    "proximal gradient": lambda a=STEP, n=10: bl.ProximalGradient(step_size=a, steps=n),
    "fista": lambda a=STEP, n=10: bl.FISTA(step_size=a, steps=n),
    "fista to tolerance": lambda a=STEP, n=10: bl.FISTA(step_size=a, steps=n, tolerance=1e-6),
}

LINEAR_SOLVERS = {
    "richardson": lambda a=STEP, n=10: bl.Richardson(step_size=a, steps=n),
    "richardson to tolerance": lambda a=STEP, n=10: bl.Richardson(
        step_size=a, steps=n, tolerance=1e-6
    ),
    "cg": lambda a=STEP, n=10: bl.CG(steps=n),
    "cg to tolerance": lambda a=STEP, n=10: bl.CG(steps=n, tolerance=1e-6),
    "cg, jacobi": lambda a=STEP, n=10: bl.CG(steps=n, preconditioner=bl.Jacobi()),
    "chebyshev": lambda a=STEP, n=10: bl.Chebyshev(L=1 / a, mu=0.1 / a, steps=n),
    "neumann": lambda a=STEP, n=10: bl.Neumann(step_size=a, steps=n),
    "dense": lambda a=STEP, n=10: bl.Dense(),
    "gmres": lambda a=STEP, n=10: bl.GMRES(steps=n),
    "normal equations": lambda a=STEP, n=10: bl.NormalEquations(bl.CG(steps=n)),
    "lineax cg": lambda a=STEP, n=10: bl.Lineax(lx.CG(rtol=1e-6, atol=1e-6)),
    "lineax lu": lambda a=STEP, n=10: bl.Lineax(lx.LU()),
}

_gradient_descent = INNER_SOLVERS["gradient descent"]
_richardson = LINEAR_SOLVERS["richardson"]

METHODS = (
    {
        f"AID, {name}": lambda a=STEP, n=10, inner=inner: bl.AID(inner(a, n), _richardson(a, n))
        for name, inner in INNER_SOLVERS.items()
    }
    | {
        f"AID, {name}": lambda a=STEP, n=10, linear=linear: bl.AID(
            _gradient_descent(a, n), linear(a, n)
        )
        for name, linear in LINEAR_SOLVERS.items()
        if linear is not _richardson  # is there already, with gradient descent
    }
    | {
        f"ITD, {name}": lambda a=STEP, n=10, inner=inner: bl.ITD(inner(a, n), max_steps=2 * n)
        for name, inner in INNER_SOLVERS.items()
    }
    | {
        "ITD, store": lambda a=STEP, n=10: bl.ITD(_gradient_descent(a, n), memory="store"),
        "ITD, sqrt": lambda a=STEP, n=10: bl.ITD(_gradient_descent(a, n), memory="sqrt"),
        "ITD, forward": lambda a=STEP, n=10: bl.ITD(_gradient_descent(a, n), memory="forward"),
        "ITD, truncated": lambda a=STEP, n=10: bl.ITD(_gradient_descent(a, n), truncate=3),
        "AID, cold": lambda a=STEP, n=10: bl.AID(
            _gradient_descent(a, n), _richardson(a, n), warm_start_y=False, warm_start_v=False
        ),
        "ITD, cold": lambda a=STEP, n=10: bl.ITD(_gradient_descent(a, n), warm_start_y=False),
        "AID, automatic": lambda a=STEP, n=10: bl.schemes.auto(),
        "Exact": lambda a=STEP, n=10: bl.Exact(),
        "T1–T2": lambda a=STEP, n=10: bl.schemes.t1_t2(a, a, N=n),
        "BOME": lambda a=STEP, n=10: bl.schemes.bome(a, N=n),
    }
)


def _adam(step_size):
    """One transformation per step size, since another instance would compile again."""
    return _ADAM.setdefault(float(step_size), optax.adam(float(step_size)))


_ADAM: dict[float, optax.GradientTransformation] = {}


@eqx.filter_jit
def advanced(method, problem, x, state, k):
    """h, state and info of a step, in one program instead of one for each operation."""
    return method(problem, x, state, k)


def stepped(method, problem, x, y, k=0):
    """A step from the state that a method begins with."""
    return advanced(method, problem, x, method.init(problem, x, y), jnp.asarray(k))


def relative_error(a, b):
    a, b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(t)]) for t in (a, b))
    return np.linalg.norm(a.astype(np.float64) - b.astype(np.float64)) / np.linalg.norm(b)
