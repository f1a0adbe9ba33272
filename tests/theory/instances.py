"""Random bilevel problems whose constants L, μ, ρ, M are known by construction, many at once.

g(x, y) = ½ yᵀAy + xᵀBy + hᵀy + s Σ_i log cosh(p_iᵀx + q_iᵀy)
f(x, y) = ½γ‖x − c‖² + m Σ_j log cosh(a_jᵀx + d_jᵀy + e_j)

The second derivative of log cosh lies in (0, 1] and its third in [−4/√27, 4/√27], so that
  μ = λ_min(A),   L ≥ ‖[[0, B], [Bᵀ, A]]‖ + s‖[P Q]‖²  and  L ≥ γ + m‖[A_f D]‖²,
  ρ = (4/√27) s max_i‖(p_i, q_i)‖ max(‖Q‖², ‖P‖‖Q‖),   M = m max_{σ ∈ {−1,1}^n} ‖Dᵀσ‖.
Arrays carry the instance in their first axis.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from biloop.theory import Constants

Array = NDArray[np.float64]
THIRD_DERIVATIVE = 4.0 / np.sqrt(27.0)


def norm(a: Array) -> Array:
    """Euclidean norm of the last axis."""
    return np.linalg.norm(a, axis=-1)


def spectral(a: Array) -> Array:
    """Spectral norm of the last two axes."""
    return np.linalg.norm(a, ord=2, axis=(-2, -1))


def dot(a: Array, b: Array) -> Array:
    """Matrix times vector, instance by instance."""
    return (a @ b[..., None])[..., 0]


def dot_transposed(a: Array, b: Array) -> Array:
    """Transposed matrix times vector, instance by instance."""
    return (b[:, None, :] @ a)[:, 0, :]


@dataclass(frozen=True)
class Instances:
    A: Array
    B: Array
    h: Array
    P: Array
    Q: Array
    s: Array
    gamma: Array
    center: Array
    Af: Array
    D: Array
    e: Array
    m: Array
    constants: list[Constants]

    @property
    def L(self) -> Array:
        return np.array([[c.L] for c in self.constants])

    @property
    def mu(self) -> Array:
        return np.array([[c.mu] for c in self.constants])

    def bend(self, x: Array, y: Array) -> Array:
        return dot(self.P, x) + dot(self.Q, y)

    def inner_gradient(self, x: Array, y: Array) -> Array:
        t = np.tanh(self.bend(x, y))
        linear = dot_transposed(self.B, x) + self.h
        return dot(self.A, y) + linear + dot_transposed(self.Q, self.s * t)

    def hessian(self, x: Array, y: Array) -> Array:
        """∇²_y g."""
        curve = self.s * (1.0 - np.tanh(self.bend(x, y)) ** 2)
        return self.A + np.swapaxes(self.Q, 1, 2) @ (curve[..., None] * self.Q)

    def cross(self, x: Array, y: Array) -> Array:
        """∇_x∇_y g, with x along the rows."""
        curve = self.s * (1.0 - np.tanh(self.bend(x, y)) ** 2)
        return self.B + np.swapaxes(self.P, 1, 2) @ (curve[..., None] * self.Q)

    def outer_value(self, x: Array, y: Array) -> Array:
        u = dot(self.Af, x) + dot(self.D, y) + self.e
        pull = 0.5 * self.gamma[:, 0] * norm(x - self.center) ** 2
        return pull + self.m[:, 0] * (np.logaddexp(u, -u) - np.log(2.0)).sum(axis=-1)

    def outer_gradients(self, x: Array, y: Array) -> tuple[Array, Array]:
        t = self.m * np.tanh(dot(self.Af, x) + dot(self.D, y) + self.e)
        fx = self.gamma * (x - self.center) + dot_transposed(self.Af, t)
        return fx, dot_transposed(self.D, t)

    def response(self, x: Array, y: Array) -> Array:
        """y*(x) by Newton's method from y."""
        for _ in range(40):
            gradient = self.inner_gradient(x, y)
            if np.max(np.abs(gradient)) < 1e-14:
                break
            y = y - np.linalg.solve(self.hessian(x, y), gradient[..., None])[..., 0]
        assert np.max(np.abs(self.inner_gradient(x, y))) < 1e-12
        return y

    def truth(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """y*, v* and ∇Φ at x; y is where Newton's method starts."""
        y = self.response(x, y)
        fx, fy = self.outer_gradients(x, y)
        v = np.linalg.solve(self.hessian(x, y), fy[..., None])[..., 0]
        return y, v, fx - dot(self.cross(x, y), v)

    def response_jacobian(self, x: Array, y_star: Array) -> Array:
        """∂y*/∂x = −∇_x∇_y g (∇²_y g)⁻¹, with x along the rows as in the paper."""
        transposed = np.linalg.solve(
            self.hessian(x, y_star), np.swapaxes(self.cross(x, y_star), 1, 2)
        )
        return -np.swapaxes(transposed, 1, 2)


def random_instances(
    seed: int, kappas: Array, p: int = 3, q: int = 4, ridges: int = 4, n: int = 3
) -> Instances:
    """One instance per entry of `kappas`, with L = 1, μ = 1/κ and L_g, L_f filled up to 1."""
    rng = np.random.default_rng(seed)
    b = len(kappas)
    mu = 1.0 / np.asarray(kappas, dtype=np.float64)
    rotation = np.linalg.qr(rng.normal(size=(b, q, q)))[0]
    # eigenvalues of A from μ up to at most 0.7, μ itself included
    spread = np.concatenate([np.zeros((b, 1)), rng.uniform(size=(b, q - 1))], axis=1)
    eigenvalues = mu[:, None] + spread * np.maximum(0.0, 0.7 - mu)[:, None]
    A = np.einsum("bij,bj,bkj->bik", rotation, eigenvalues, rotation)
    B = rng.normal(size=(b, p, q))
    B *= (0.25 * (1.0 - mu) / spectral(B))[:, None, None]
    base = np.zeros((b, p + q, p + q))
    base[:, :p, p:], base[:, p:, :p], base[:, p:, p:] = B, np.swapaxes(B, 1, 2), A
    PQ = rng.normal(size=(b, ridges, p + q))
    PQ /= spectral(PQ)[:, None, None]
    s = np.maximum(0.0, 1.0 - spectral(base))
    P, Q = PQ[:, :, :p], PQ[:, :, p:]
    widest = norm(PQ).max(axis=-1)
    rho = THIRD_DERIVATIVE * s * widest * spectral(Q) * np.maximum(spectral(P), spectral(Q))
    features = rng.normal(size=(b, n, p + q))
    features /= spectral(features)[:, None, None]
    gamma = rng.uniform(0.05, 0.3, size=b)
    m = 1.0 - gamma
    D = features[:, :, p:]
    signs = np.array(list(product((-1.0, 1.0), repeat=n)))
    M = m * np.linalg.norm(np.einsum("si,bij->bsj", signs, D), axis=-1).max(axis=-1)
    constants = [Constants(1.0, mu[i], rho[i], M[i]) for i in range(b)]
    return Instances(
        A=A,
        B=B,
        h=0.5 * rng.normal(size=(b, q)),
        P=P,
        Q=Q,
        s=s[:, None],
        gamma=gamma[:, None],
        center=2.0 * rng.normal(size=(b, p)),
        Af=features[:, :, :p],
        D=D,
        e=rng.normal(size=(b, n)),
        m=m[:, None],
        constants=constants,
    )
