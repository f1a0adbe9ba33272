"""Hypergradients of random lassos: right, or said not to be.

    python -m benchmarks.lasso [--count 200] [--largest 2000] [--first 0]

Condition numbers up to 10⁶, dimensions up to 2000, penalties from almost none to almost all of what
makes every coefficient zero. The truth is dense algebra on the support: y there solves a linear
system, and is the solution if it satisfies the optimality conditions, whoever found the support.
"""

import argparse
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import biloop as bl

SHAPES = [(30, 10), (60, 20), (40, 100), (150, 100), (100, 500), (800, 500), (300, 2000)]
CLOSE = 1e-5  # of ‖h‖: what a hypergradient that claims to be right may be off


class Lasso(NamedTuple):
    """½‖Xy − t‖²/n + exp(x)‖y‖₁, judged on V, u."""

    X: np.ndarray
    t: np.ndarray
    V: np.ndarray
    u: np.ndarray
    x: float


class Verdict(NamedTuple):
    """How one hypergradient went."""

    shape: tuple[int, int]
    kappa: float
    support: int
    says: str
    error: float
    silent: bool


def random_lasso(seed: int, shape: tuple[int, int]) -> tuple[Lasso, float]:
    """A lasso, and the condition number of XᵀX on its range."""
    rng = np.random.default_rng(seed)
    n, d = shape
    kappa = 10 ** rng.uniform(0, 6)
    k = min(n, d)
    U = np.linalg.qr(rng.normal(size=(n, k)))[0]
    W = np.linalg.qr(rng.normal(size=(d, k)))[0]
    X = np.sqrt(n) * (U * np.geomspace(1, kappa**-0.5, k)) @ W.T
    truth = np.where(rng.uniform(size=d) < 0.2, rng.normal(size=d), 0.0)
    t = X @ truth + 0.1 * rng.normal(size=n)
    V = rng.normal(size=(n, d))
    largest = np.max(np.abs(X.T @ t)) / n
    x = np.log(largest * 10 ** rng.uniform(-3, -0.05))
    return Lasso(X, t, V, V @ truth, float(x)), kappa


def loss(y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def inner(x, y, X, t):
    return loss(y, X, t)


def problem_of(lasso: Lasso) -> bl.Problem:
    prox = bl.prox.L1(jnp.exp)
    data = (lasso.X, lasso.t), (lasso.V, lasso.u)
    return bl.Problem(inner, inner, *data, prox=prox)


METHOD = bl.AID(
    bl.FISTA("auto", steps=bl.Adaptive(1e-10, 200_000)), bl.CG(bl.Adaptive(1e-10, 20_000))
)


@jax.jit
def hypergradient(problem, x, y0):
    return METHOD(problem, x, METHOD.init(problem, x, y0), 0)


def truth_on(support: np.ndarray, signs: np.ndarray, lasso: Lasso) -> float | None:
    """∇Φ if this support and these signs are those of the solution, else None."""
    n, strength = len(lasso.t), np.exp(lasso.x)
    X = lasso.X[:, support]
    H = X.T @ X / n
    y = np.linalg.solve(H, X.T @ lasso.t / n - strength * signs)
    slopes = lasso.X.T @ (X @ y - lasso.t) / n
    outside = np.abs(np.delete(slopes, support))
    if np.any(np.sign(y) != signs) or np.any(outside > strength * (1 + 1e-9)):
        return None
    f_y = lasso.V[:, support].T @ (lasso.V[:, support] @ y - lasso.u) / len(lasso.u)
    return float(-strength * signs @ np.linalg.solve(H, f_y))


def judge(seed: int, shape: tuple[int, int]) -> Verdict:
    lasso, kappa = random_lasso(seed, shape)
    problem, y0 = problem_of(lasso), jnp.zeros(shape[1])
    h, state, info = hypergradient(problem, jnp.asarray(lasso.x), y0)
    y = np.asarray(state.y)
    support = np.flatnonzero(y)
    truth = truth_on(support, np.sign(y[support]), lasso)
    error = np.inf if truth is None else abs(float(h) - truth) / max(abs(truth), 1e-300)
    status = bl.Status(int(info.result))
    silent = status is bl.Status.COMPLETED and not error <= CLOSE
    return Verdict(shape, kappa, len(support), status.name, error, silent)


def main(count: int = 200, largest: int = 2000, first: int = 0) -> list[Verdict]:
    shapes = [shape for shape in SHAPES if shape[1] <= largest]
    found, began = [], time.perf_counter()
    for seed in range(first, first + count):
        found.append(judge(seed, shapes[seed % len(shapes)]))
        if found[-1].silent:
            print(f"silent: seed {seed}, {found[-1]}")
    said = [v for v in found if v.says == "COMPLETED"]
    print(
        f"{count} lassos in {time.perf_counter() - began:.0f} s: {len(said)} COMPLETED, the "
        f"largest relative error among them {max(v.error for v in said):.1e}; "
        f"{count - len(said)} say that they are not solved; "
        f"{sum(v.silent for v in found)} silent failures."
    )
    for says in sorted({v.says for v in found}):
        each = [v for v in found if v.says == says]
        print(
            f"  {says}: {len(each)}, supports of {min(v.support for v in each)} to "
            f"{max(v.support for v in each)}, κ up to {max(v.kappa for v in each):.1e}"
        )
    return found


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--largest", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    main(arguments.count, arguments.largest, arguments.first)
