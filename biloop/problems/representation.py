"""Linear hyper-representation: the problem of the paper's Table 3, with its closed forms."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from biloop.problem import Problem
from biloop.problems.inputs import Matrix, Pair, Vector, check_positive, precision, with_targets


@dataclass(frozen=True, eq=False)
class HyperRepresentation:
    """A linear representation x = H on which ridge regression y = w does well.

    g(H, w) = 1/(2n) ‖X H w − t‖² + γ/2 ‖w‖²       over the n training samples (X, t)
    f(H, w) = 1/(2m) ‖V H w − s‖²                  over the m validation samples (V, s)

    The products are written as X(Hw), which costs a tenth of (XH)w. Φ is not convex. Closed forms
    are in double precision; with Z = XH and U = VH:

    w* = (ZᵀZ/n + γ)⁻¹ Zᵀt/n,     v* = (ZᵀZ/n + γ)⁻¹ Uᵀ(Uw* − s)/m

    Sow, Ji and Liang, https://arxiv.org/abs/2110.07004; Table 3 of the paper.
    """

    X: Matrix
    t: Vector
    V: Matrix
    s: Vector
    gamma: float
    problem: Problem
    x0: Float[Array, "d r"]
    y0: Float[Array, " r"]

    def minimiser(self, H: Matrix) -> Vector:
        """w*(H)."""
        H = np.asarray(H, np.float64)
        return self._solve(H, H.T @ (self.X.T @ self.t) / len(self.t))

    def adjoint(self, H: Matrix) -> Vector:
        """v*(H)."""
        H = np.asarray(H, np.float64)
        return self._solve(H, H.T @ (self.V.T @ self._error(H)) / len(self.s))

    def value(self, H: Matrix) -> float:
        """Φ(H) = f(H, w*(H))."""
        return float(0.5 * np.mean(self._error(np.asarray(H, np.float64)) ** 2))

    def hypergradient(self, H: Matrix) -> Matrix:
        """∇Φ(H) = Vᵀ(Uw* − s) w*ᵀ/m − [Xᵀ(Zw* − t) v*ᵀ + XᵀZv* w*ᵀ]/n."""
        H = np.asarray(H, np.float64)
        w, v = self.minimiser(H), self.adjoint(H)
        residual = self.X @ (H @ w) - self.t
        cross = np.outer(self.X.T @ residual, v) + np.outer(self.X.T @ (self.X @ (H @ v)), w)
        return np.outer(self.V.T @ self._error(H), w) / len(self.s) - cross / len(self.t)

    def infimum(self) -> float:
        """inf Φ, which no H need attain.

        With S = XᵀX/n and c = Xᵀt/n, a vector u is Hw*(H) for some H if uᵀ(c − Su) > 0: H with the
        first column u √(γ / uᵀ(c − Su)), else 0. No other u ≠ 0 is, as w*ᵀ∇_w g(H, w*) = 0 says
        uᵀ(c − Su) = γ‖w*‖². So inf Φ is the least value of u ↦ 1/(2m) ‖Vu − s‖² over an ellipsoid,
        at u = (VᵀV/m + 2λS)⁻¹(Vᵀs/m + λc) with the multiplier λ ≥ 0.
        """
        S, c = self.X.T @ self.X / len(self.t), self.X.T @ self.t / len(self.t)
        R, b = self.V.T @ self.V / len(self.s), self.V.T @ self.s / len(self.s)

        if not c.any():  # then w* = 0 for every H
            return float(0.5 * np.mean(self.s**2))

        def best(multiplier: float) -> Vector:
            return np.linalg.lstsq(R + 2 * multiplier * S, b + multiplier * c)[0]

        def outside(u: Vector) -> bool:
            return bool(u @ (S @ u - c) > 0)

        low, high = 0.0, 1.0
        if outside(best(low)):
            while outside(best(high)):
                low, high = high, 2 * high
            while (middle := (low + high) / 2) not in (low, high):
                low, high = (middle, high) if outside(best(middle)) else (low, middle)
            low = high
        return float(0.5 * np.mean((self.V @ best(low) - self.s) ** 2))

    def _error(self, H: Matrix) -> Vector:
        """Uw* − s."""
        return self.V @ (H @ self.minimiser(H)) - self.s

    def _solve(self, H: Matrix, b: Vector) -> Vector:
        Z = self.X @ H
        return np.linalg.solve(Z.T @ Z / len(Z) + self.gamma * np.eye(len(b)), b)


def hyper_representation(
    train: Pair,
    validation: Pair,
    *,
    H0: ArrayLike,
    w0: ArrayLike,
    gamma: float = 0.1,
    dtype: str | None = None,
) -> HyperRepresentation:
    """The problem on samples and targets, from H0 and w0.

    Table 3 is `d = biloop.data.sow(seed)`, train (d.X_T, d.Y_T), validation (d.X_V, d.Y_V), H0 and
    w0 from d, ITD with N steps of 1e-3 that start at w0 in each outer step (`warm_start_y=False`),
    and `optax.adam(0.05)`. Its f at k is row k of the trace: f(H_k, w_k^N) after k outer steps.

    Parameters
    ----------
    train, validation : pairs of arrays
        Samples (n, d) and targets (n,).
    H0 : array (d, r)
    w0 : array (r,)
        Where to start.
    gamma : number
        γ, greater than 0.
    dtype : str, optional
        "float32" or "float64"; by default what JAX has.

    Returns
    -------
    HyperRepresentation
        `problem`, `x0`, `y0`, and closed forms.

    Examples
    --------
    >>> halves = (X[:24], t[:24]), (X[24:], t[24:])
    >>> found = bl.problems.hyper_representation(*halves, H0=np.ones((3, 2)), w0=np.zeros(2))
    >>> found.x0.shape, found.y0.shape
    ((3, 2), (2,))
    """
    X, t, V, s = with_targets(train, validation)
    H, w = np.asarray(H0, np.float64), np.asarray(w0, np.float64)
    if H.ndim != 2 or w.ndim != 1 or H.shape != (X.shape[1], len(w)):
        raise ValueError(
            f"H0 must be features × width and w0 have the width, with {X.shape[1]} features; got "
            f"shapes {H.shape} and {w.shape}."
        )
    check_positive(gamma, "gamma")
    real = precision(train[0], dtype)

    def array(value: ArrayLike) -> Array:
        return jnp.asarray(value, real)

    inner_data, outer_data = (array(X), array(t), array(gamma)), (array(V), array(s))
    problem = Problem(_inner, _outer, inner_data=inner_data, outer_data=outer_data)
    return HyperRepresentation(X, t, V, s, gamma, problem, x0=array(H), y0=array(w))


def _inner(H: Array, w: Array, X: Array, t: Array, gamma: Array) -> Array:
    return 0.5 * jnp.mean((X @ (H @ w) - t) ** 2) + 0.5 * gamma * jnp.sum(w**2)


def _outer(H: Array, w: Array, V: Array, s: Array) -> Array:
    return 0.5 * jnp.mean((V @ (H @ w) - s) ** 2)
