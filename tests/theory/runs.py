"""Plain NumPy runs of Algorithms 1 and 2 that write down every error the lemmas speak of."""

from dataclasses import dataclass

import numpy as np

from .instances import Array, Instances, dot, norm, spectral


@dataclass(frozen=True)
class Record:
    """Histories of shape (K, instances): squared norms, except the last three.

    y_error            ‖y_k^N − y_k*‖²
    v_error            ‖v_k^Q − v_k*‖², 0 for ITD
    x_move             ‖x_k − x_{k−1}‖², 0 at k = 0
    gradient           ‖∇Φ(x_k)‖²
    error              ‖∇̂Φ(x_k) − ∇Φ(x_k)‖²
    start_distance     ‖y_k^0 − y_k*‖
    response_norm      ‖∂y*(x_k)/∂x_k‖
    jacobian_distance  ‖∂y_k^N/∂x_k − ∂y*(x_k)/∂x_k‖, 0 for AID
    """

    x: Array
    value: Array
    y_error: Array
    v_error: Array
    x_move: Array
    gradient: Array
    error: Array
    start_distance: Array
    response_norm: Array
    jacobian_distance: Array

    @property
    def running_mean(self) -> Array:
        """(1/K) Σ_{k<K} ‖∇Φ(x_k)‖² for K = 1, 2, ..."""
        count = np.arange(1, len(self.gradient) + 1)[:, None]
        return np.cumsum(self.gradient, axis=0) / count


def run(
    problem: Instances,
    method: str,
    K: int,
    N: int,
    alpha: Array,
    beta: Array,
    Q: int = 0,
    eta: Array | None = None,
) -> Record:
    """K steps from x_0 = y_0 = v_0 = 0. Methods: "warm" and "zero" (AID by the start of v), "itd".

    Step sizes have shape (instances, 1).
    """
    b, p, q = problem.B.shape
    x, y, v, y_star = np.zeros((b, p)), np.zeros((b, q)), np.zeros((b, q)), np.zeros((b, q))
    previous_x = x
    rows = []
    for _ in range(K):
        y_star, v_star, gradient = problem.truth(x, y_star)
        start_distance = norm(y - y_star)
        response = problem.response_jacobian(x, y_star)
        jacobian_distance = np.zeros(b)
        if method == "itd":
            jacobian = np.zeros((b, p, q))
            for _ in range(N):
                hessian, cross = problem.hessian(x, y), problem.cross(x, y)
                jacobian = jacobian - alpha[..., None] * (cross + jacobian @ hessian)
                y = y - alpha * problem.inner_gradient(x, y)
            fx, fy = problem.outer_gradients(x, y)
            h = fx + dot(jacobian, fy)
            jacobian_distance = spectral(jacobian - response)
            v = v_star
        else:
            assert eta is not None
            for _ in range(N):
                y = y - alpha * problem.inner_gradient(x, y)
            fx, fy = problem.outer_gradients(x, y)
            hessian = problem.hessian(x, y)
            v = np.zeros_like(v) if method == "zero" else v
            for _ in range(Q):
                v = v - eta * (dot(hessian, v) - fy)
            h = fx - dot(problem.cross(x, y), v)
        rows.append(
            (
                x,
                problem.outer_value(x, y_star),
                norm(y - y_star) ** 2,
                norm(v - v_star) ** 2,
                norm(x - previous_x) ** 2,
                norm(gradient) ** 2,
                norm(h - gradient) ** 2,
                start_distance,
                spectral(response),
                jacobian_distance,
            )
        )
        previous_x, x = x, x - beta * h
    return Record(*(np.stack(column) for column in zip(*rows, strict=True)))
