"""Hypergradients in float64 and NumPy, derivatives written out: what contenders must agree with.

    AID   y ← y − α ∇_y g,  N times;   v ← v − η (Hv − ∇_y f),  Q times;   h = ∇_x f − ∇_x∇_y g v
    ITD   the derivative of x ↦ f(x, y^N(x)):   v_N = ∇_y f,   v_{j−1} = v_j − α H(y^{j−1}) v_j,
          h = ∇_x f − α Σ_j ∇_x∇_y g(x, y^{j−1}) v_j

No automatic differentiation and nothing of biloop is used here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from benchmarks.peers.works import Instance

PENALTY = 0.001  # of the cleaning problem
RIDGE = 0.1  # of the hyper-representation


Products = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Derivatives(ABC):
    """The derivatives of a problem at a point."""

    @abstractmethod
    def inner_gradient(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """∇_y g(x, y)."""

    @abstractmethod
    def products(self, x: np.ndarray, y: np.ndarray) -> Products:
        """v ↦ ∇²_y g(x, y) v and ∇_x∇_y g(x, y) v."""

    @abstractmethod
    def outer_gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """∇_x f(x, y) and ∇_y f(x, y)."""


class Cleaning(Derivatives):
    """g = mean_i σ(x_i) CE_i(W) + 0.001 ‖W‖²,   f = mean_j CE_j(W)."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, V: np.ndarray, U: np.ndarray):
        self.X, self.Y, self.V, self.U = X, Y, V, U

    def inner_gradient(self, x, y):
        residual = _softmax(self.X @ y) - self.Y
        return self.X.T @ (_weights(x) * residual) + 2 * PENALTY * y

    def products(self, x, y):
        P = _softmax(self.X @ y)
        sigma = 1 / (1 + np.exp(-x))

        def at(v):
            S = self.X @ v
            R = P * (S - np.sum(P * S, axis=1, keepdims=True))
            hessian = self.X.T @ (_weights(x) * R) + 2 * PENALTY * v
            return hessian, sigma * (1 - sigma) / len(x) * np.sum((P - self.Y) * S, axis=1)

        return at

    def outer_gradients(self, x, y):
        return np.zeros_like(x), self.V.T @ (_softmax(self.V @ y) - self.U) / len(self.V)


class Quadratic(Derivatives):
    """g = ½ yᵀAy − yᵀ(Bx + c),   f = ½ ‖y − t‖² + 0.05 ‖x‖²."""

    def __init__(self, A: np.ndarray, B: np.ndarray, c: np.ndarray, t: np.ndarray):
        # The gradient of ½ yᵀAy is that of the symmetric part, which A is but for rounding.
        self.A, self.B, self.c, self.t = (A + A.T) / 2, B, c, t

    def inner_gradient(self, x, y):
        return self.A @ y - self.B @ x - self.c

    def products(self, x, y):
        return lambda v: (self.A @ v, -self.B.T @ v)

    def outer_gradients(self, x, y):
        return 0.1 * x, y - self.t


class Representation(Derivatives):
    """g = ‖XHw − t‖²/(2n) + 0.05 ‖w‖²,   f = ‖VHw − s‖²/(2m)."""

    def __init__(self, X: np.ndarray, t: np.ndarray, V: np.ndarray, s: np.ndarray):
        self.X, self.t, self.V, self.s = X, t, V, s

    def inner_gradient(self, x, y):
        return x.T @ (self.X.T @ (self.X @ (x @ y) - self.t)) / len(self.t) + RIDGE * y

    def products(self, x, y):
        n = len(self.t)
        residual = self.X.T @ (self.X @ (x @ y) - self.t) / n

        def at(v):
            back = self.X.T @ (self.X @ (x @ v)) / n
            # ⟨∇_w g, v⟩ = (Hv)ᵀ Xᵀ(XHw − t)/n + …, differentiated with respect to H.
            return x.T @ back + RIDGE * v, np.outer(residual, v) + np.outer(back, y)

        return at

    def outer_gradients(self, x, y):
        back = self.V.T @ (self.V @ (x @ y) - self.s) / len(self.s)
        return np.outer(back, y), x.T @ back


def derivatives(instance: Instance) -> Derivatives:
    """The derivatives of an instance, in float64."""
    kinds = {"cleaning": Cleaning, "quadratic": Quadratic, "representation": Representation}
    data = instance.inner | instance.outer
    return kinds[instance.work.problem](**{k: a.astype(np.float64) for k, a in data.items()})


def expected(instance: Instance, outer_steps: int, warm_adjoint: bool = True) -> list[np.ndarray]:
    """The hypergradients of the first outer steps, or the one gradient or product of the work.

    `warm_adjoint=False` is for contenders that cannot carry v over: each Q-loop starts at 0.
    """
    work, d = instance.work, derivatives(instance)
    x, y = (a.astype(np.float64) for a in instance.start)
    if work.method == "gradient":
        return [d.inner_gradient(x, y)]
    if work.method == "product":
        return [d.products(x, y)(y)[0]]

    v = np.zeros_like(y)
    result = []
    for _ in range(outer_steps):
        if work.method == "AID":
            h, y, v = _aid(d, x, y, v if warm_adjoint else np.zeros_like(v), work)
        else:
            h, y = _itd(d, x, y, work)
        x = x - work.outer_step_size * h
        result.append(h)
    return result


def _aid(d, x, y, v, work):
    for _ in range(work.N):
        y = y - work.step_size * d.inner_gradient(x, y)
    f_x, f_y = d.outer_gradients(x, y)
    products = d.products(x, y)
    for _ in range(work.Q):
        v = v - work.step_size * (products(v)[0] - f_y)
    return f_x - products(v)[1], y, v


def _itd(d, x, y, work):
    path = [y]
    for _ in range(work.N):
        path.append(path[-1] - work.step_size * d.inner_gradient(x, path[-1]))
    h, v = d.outer_gradients(x, path[-1])
    for y in reversed(path[:-1]):
        hessian, cross = d.products(x, y)(v)
        h, v = h - work.step_size * cross, v - work.step_size * hessian
    return h, path[-1]


def relative_error(found: np.ndarray, truth: np.ndarray) -> float:
    """‖found − truth‖ / ‖truth‖; infinite where the shapes differ or something is not finite."""
    found = np.asarray(found, np.float64).reshape(-1)
    if found.shape != truth.reshape(-1).shape or not np.all(np.isfinite(found)):
        return float("inf")
    return float(np.linalg.norm(found - truth.reshape(-1)) / np.linalg.norm(truth))


def _softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _weights(x: np.ndarray) -> np.ndarray:
    """σ(x_i)/n as a column."""
    return (1 / (1 + np.exp(-x)))[:, None] / len(x)
