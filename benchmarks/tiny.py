"""What the library costs beside a hand-written loop, on a problem so small that overhead shows.

A quadratic with x and y of dimension 50, AID with N = Q = 10. The reference is a `lax.scan` of the
same arithmetic, written by hand with jax.grad and jax.vjp: no checks, no residuals, only the values
and ‖h‖ recorded. For information, the same with the derivatives written out, where the symmetry of
A halves the work of a gradient, which no library can know. All run in one process in alternating
turns; the minimum of each counts.

    python benchmarks/tiny.py
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl

DIMENSION, N, Q = 50, 10, 10
STEP, OUTER_STEP = 0.1, 0.01


def inner(x, y, d):
    """½ yᵀAy − yᵀ(Bx + c)."""
    return 0.5 * y @ (d["A"] @ y) - y @ (d["B"] @ x + d["c"])


def outer(x, y, d):
    """½‖y − t‖² + ½‖x‖²/10."""
    return 0.5 * jnp.sum((y - d["t"]) ** 2) + 0.05 * jnp.sum(x**2)


def problem_data(seed: int = 0):
    """Random matrices with eigenvalues of A between 1 and 10."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))[0]
    A = (U * np.linspace(1, 10, DIMENSION)) @ U.T
    B = rng.normal(size=(DIMENSION, DIMENSION)) / DIMENSION**0.5
    c, t = rng.normal(size=(2, DIMENSION))
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), {"A": A, "B": B, "c": c, "t": t})


def by_hand(x, y, v, d, steps):
    """The base loop as one writes it."""

    def outer_step(carry, _):
        x, y, v = carry
        gradient = jax.grad(inner, 1)
        y = lax.fori_loop(0, N, lambda _, y: y - STEP * gradient(x, y, d), y)
        value, (f_x, f_y) = jax.value_and_grad(outer, (0, 1))(x, y, d)
        _, products = jax.vjp(lambda x, y: gradient(x, y, d), x, y)
        v = lax.fori_loop(0, Q, lambda _, v: v - STEP * (products(v)[1] - f_y), v)
        h = f_x - products(v)[0]
        return (x - OUTER_STEP * h, y, v), (value, jnp.sqrt(jnp.sum(h**2)))

    return lax.scan(outer_step, (x, y, v), length=steps)


def simplified(x, y, v, d, steps):
    """The same base loop with the derivatives written out: ∇_y g = Ay − Bx − c."""

    def outer_step(carry, _):
        x, y, v = carry
        Bx_c = d["B"] @ x + d["c"]
        y = lax.fori_loop(0, N, lambda _, y: y - STEP * (d["A"] @ y - Bx_c), y)
        b = y - d["t"]
        v = lax.fori_loop(0, Q, lambda _, v: v - STEP * (d["A"] @ v - b), v)
        h = 0.1 * x + d["B"].T @ v
        value = 0.5 * jnp.sum(b**2) + 0.05 * jnp.sum(x**2)
        return (x - OUTER_STEP * h, y, v), (value, jnp.sqrt(jnp.sum(h**2)))

    return lax.scan(outer_step, (x, y, v), length=steps)


def main() -> None:
    """Print microseconds per outer step and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    steps = arguments.steps

    d = problem_data()
    x, y, v = jnp.zeros((3, DIMENSION))
    problem = bl.Problem(inner, outer, inner_data=(d,), outer_data=(d,))
    method = bl.AID(bl.GradientDescent(STEP, N), bl.Richardson(STEP, Q))
    scan, simplified_scan = (jax.jit(f, static_argnums=4) for f in (by_hand, simplified))

    contenders = {
        "lax.scan by hand": lambda: scan(x, y, v, d, steps)[0][0],
        "biloop": lambda: bl.solve(problem, x, y, method, outer=OUTER_STEP, steps=steps).x,
        "(derivatives simplified by hand)": lambda: simplified_scan(x, y, v, d, steps)[0][0],
    }
    ends = {name: np.asarray(run()) for name, run in contenders.items()}  # also compiles
    reference = ends["lax.scan by hand"]
    for name, end in ends.items():
        difference = np.linalg.norm(end - reference) / np.linalg.norm(reference)
        assert difference < 1e-4, f"{name} ends elsewhere: relative difference {difference:.1e}"

    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(arguments.turns):
        for name, run in contenders.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            best[name] = min(best[name], time.perf_counter() - start)

    floor = best["lax.scan by hand"]
    print(f"{'':34}{'µs per outer step':>20}{'ratio':>8}")
    for name, seconds in best.items():
        print(f"{name:34}{1e6 * seconds / steps:20.2f}{seconds / floor:8.2f}")


if __name__ == "__main__":
    main()
