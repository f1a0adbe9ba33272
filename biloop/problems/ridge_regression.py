"""Ridge regression with a penalty for each feature: everything in closed form."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from biloop.problem import Problem
from biloop.problems.inputs import Matrix, Pair, Vector, check_finite, precision, with_targets


@dataclass(frozen=True, eq=False)
class Ridge:
    """The penalties exp(x_j) of ridge regression, tuned on validation samples.

    g(x, w) = 1/(2n) ‖Xw − t‖² + ½ Σ_j exp(x_j) w_j²       over the n training samples (X, t)
    f(x, w) = 1/(2m) ‖Vw − s‖²                             over the m validation samples (V, s)

    Φ is not convex. Closed forms are in double precision.
    """

    X: Matrix
    t: Vector
    V: Matrix
    s: Vector
    problem: Problem
    x0: Float[Array, " d"]
    y0: Float[Array, " d"]

    def hessian(self, x: Vector) -> Matrix:
        """∇²_w g = XᵀX/n + diag(exp(x)), which does not depend on w."""
        return self.X.T @ self.X / len(self.t) + np.diag(np.exp(np.asarray(x, np.float64)))

    def minimiser(self, x: Vector) -> Vector:
        """w*(x) = (XᵀX/n + diag(exp(x)))⁻¹ Xᵀt/n."""
        return np.linalg.solve(self.hessian(x), self.X.T @ self.t / len(self.t))

    def adjoint(self, x: Vector) -> Vector:
        """v*(x) = (XᵀX/n + diag(exp(x)))⁻¹ Vᵀ(Vw* − s)/m."""
        error = self.V @ self.minimiser(x) - self.s
        return np.linalg.solve(self.hessian(x), self.V.T @ error / len(self.s))

    def value(self, x: Vector) -> float:
        """Φ(x) = f(x, w*(x))."""
        return self.loss(self.minimiser(x), (self.V, self.s))

    def hypergradient(self, x: Vector) -> Vector:
        """∇Φ(x)_j = −exp(x_j) w*_j v*_j."""
        return -np.exp(np.asarray(x, np.float64)) * self.minimiser(x) * self.adjoint(x)

    def loss(self, w: Vector, samples: Pair) -> float:
        """Half the mean square error of w on any samples and their targets."""
        X, targets, w = (np.asarray(part, np.float64) for part in (*samples, w))
        return float(0.5 * np.mean((X @ w - targets) ** 2))


def ridge(
    train: Pair,
    validation: Pair,
    *,
    x0: float = 0.0,
    dtype: str | None = None,
) -> Ridge:
    """The problem on samples and targets, from penalties exp(x0) and w = 0.

    Parameters
    ----------
    train, validation : pairs of arrays
        Samples (n, d) and targets (n,).
    x0 : number
        The logarithm of the penalties at the start.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    Ridge
        `problem`, `x0`, `y0`, and closed forms.

    Examples
    --------
    >>> found = bl.problems.ridge((X[:24], t[:24]), (X[24:], t[24:]))
    >>> bl.solve(found.problem, found.x0, found.y0, steps=5).x.shape
    (3,)
    """
    X, t, V, s = with_targets(train, validation)
    check_finite(x0, "x0, the logarithm of the first penalties,")
    real = precision(train[0], dtype)

    def array(value: ArrayLike) -> Array:
        return jnp.asarray(value, real)

    inner_data, outer_data = (array(X), array(t)), (array(V), array(s))
    problem = Problem(_inner, _outer, inner_data=inner_data, outer_data=outer_data)
    d = X.shape[1]
    return Ridge(X, t, V, s, problem, x0=jnp.full(d, x0, real), y0=jnp.zeros(d, real))


def _inner(x: Array, w: Array, X: Array, t: Array) -> Array:
    return 0.5 * jnp.mean((X @ w - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * w**2)


def _outer(x: Array, w: Array, V: Array, s: Array) -> Array:
    return 0.5 * jnp.mean((V @ w - s) ** 2)
