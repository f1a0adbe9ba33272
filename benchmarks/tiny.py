"""What the library costs beside a hand-written loop, on problems so small that overhead shows.

AID: a quadratic with x and y of dimension 50, N = Q = 10. ITD: linear hyper-representation of 500
samples, 64 × 128, N = 20, iterates stored. The references are `lax.scan`s of the same arithmetic,
written by hand with jax.grad and jax.vjp: no checks, no residuals, just the values and ‖h‖ kept.
For information, AID by hand with the duties of a library (N, Q and the step size are arguments, the
residuals of both loops are kept, what is not finite is taken back and ends the run): what they cost
whoever has them; and with the derivatives written out, where the symmetry of A halves the work of a
gradient, which no library can know. All run in one process in alternating turns; the minimum of
each counts, over turns in which the machine did little else. A second pair of columns has what each
further step costs, by runs of a tenth of the length: what is left out there is what a call of
`solve` costs once (its checks, its programs at the end, the record).

    python benchmarks/tiny.py
"""

import argparse
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl

DIMENSION, N, Q = 50, 10, 10
STEP, OUTER_STEP = 0.1, 0.01
ITD_STEPS = 20
LIMIT = 1.15


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


def on_duty(x, y, v, d, steps, loops, step):
    """The base loop with what a library owes: arguments, residuals, checks, an end on failure."""

    def descend(residual, start):
        def body(_, carry):
            r = residual(carry[0])
            return carry[0] - step * r, r

        end, last = lax.fori_loop(0, loops, body, (start, jnp.zeros_like(start)))
        return end, jnp.sqrt(jnp.sum(last**2))

    def outer_step(carry):
        k, (x, y0, v0), record, _ = carry
        gradient = jax.grad(inner, 1)
        y, inner_residual = descend(lambda y: gradient(x, y, d), y0)
        value, (f_x, f_y) = jax.value_and_grad(outer, (0, 1))(x, y, d)
        _, products = jax.vjp(lambda x, y: gradient(x, y, d), x, y)
        v, linear_residual = descend(lambda v: products(v)[1] - f_y, v0)
        h = f_x - products(v)[0]
        row = jnp.stack([value, jnp.sqrt(jnp.sum(h**2)), inner_residual, linear_residual])
        fine = jnp.all(jnp.isfinite(row))
        after = x - OUTER_STEP * h, y, v
        kept = jax.tree.map(lambda new, old: jnp.where(fine, new, old), after, (x, y0, v0))
        return k + 1, kept, lax.dynamic_update_index_in_dim(record, row, k, 0), ~fine

    start = jnp.zeros((), jnp.int32), (x, y, v), jnp.zeros((steps, 4)), jnp.zeros((), bool)
    _, end, record, _ = lax.while_loop(lambda c: (c[0] < steps) & ~c[3], outer_step, start)
    return end, record


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


def train_loss(H, w, X, t):
    """‖X H w − t‖²/(2n) + ‖w‖²/40."""
    return validation_loss(H, w, X, t) + 0.025 * jnp.sum(w**2)


def validation_loss(H, w, V, s):
    """‖V H w − s‖²/(2m)."""
    return 0.5 * jnp.mean((V @ (H @ w) - s) ** 2)


def itd_by_hand(H, w, train, validation, steps):
    """ITD as one writes it: the gradient of f after the steps on g, through all of them."""

    def objective(H, w):
        def step(w, _):
            return w - STEP * jax.grad(train_loss, 1)(H, w, *train), None

        w, _ = lax.scan(step, w, length=ITD_STEPS)
        return validation_loss(H, w, *validation), w

    def outer_step(carry, _):
        H, w = carry
        (value, w), h = jax.value_and_grad(objective, has_aux=True)(H, w)
        return (H - OUTER_STEP * h, w), (value, jnp.sqrt(jnp.sum(h**2)))

    return lax.scan(outer_step, (H, w), length=steps)


def aid_contenders(steps: int) -> dict[str, Callable[[], jax.Array]]:
    """The quadratic: each returns the last x."""
    d = problem_data()
    x, y, v = jnp.zeros((3, DIMENSION))
    problem = bl.Problem(inner, outer, inner_data=(d,), outer_data=(d,))
    method = bl.AID(bl.GradientDescent(STEP, N), bl.Richardson(STEP, Q))
    scan, simplified_scan = (jax.jit(f, static_argnums=4) for f in (by_hand, simplified))
    duties, numbers = jax.jit(on_duty, static_argnums=4), (jnp.int32(N), jnp.float32(STEP))
    return {
        "by hand": lambda: scan(x, y, v, d, steps)[0][0],
        "biloop": lambda: bl.solve(problem, x, y, method, outer=OUTER_STEP, steps=steps).x,
        "(by hand, on duty)": lambda: duties(x, y, v, d, steps, *numbers)[0][0],
        "(simplified by hand)": lambda: simplified_scan(x, y, v, d, steps)[0][0],
    }


def itd_contenders(steps: int) -> dict[str, Callable[[], jax.Array]]:
    """Hyper-representation: each returns the last H."""
    rng = np.random.default_rng(0)
    X, V = jnp.asarray(rng.normal(size=(2, 500, 64)), jnp.float32)
    t, s = jnp.asarray(rng.normal(size=(2, 500)), jnp.float32)
    H = jnp.asarray(rng.normal(size=(64, 128)) / 8, jnp.float32)
    w = jnp.asarray(rng.normal(size=128) / 128**0.5, jnp.float32)
    problem = bl.Problem(train_loss, validation_loss, (X, t), (V, s))
    method = bl.ITD(bl.GradientDescent(STEP, ITD_STEPS), memory="store")
    scan = jax.jit(itd_by_hand, static_argnums=4)
    return {
        "by hand": lambda: scan(H, w, (X, t), (V, s), steps)[0][0],
        "biloop": lambda: bl.solve(problem, H, w, method, outer=OUTER_STEP, steps=steps).x,
    }


def best_times(contenders: dict[str, Callable[[], jax.Array]], turns: int) -> dict[str, float]:
    """The least seconds of each in alternating turns, once all have been found to agree.

    A turn in which a contender waited for the processor (its time exceeds what the process was
    given) counts only if no other turn is left.
    """
    ends = {name: np.asarray(run()) for name, run in contenders.items()}  # also compiles
    reference = ends["by hand"]
    for name, end in ends.items():
        difference = np.linalg.norm(end - reference) / np.linalg.norm(reference)
        assert difference < 1e-4, f"{name} ends elsewhere: relative difference {difference:.1e}"

    clean, any_turn = ({name: float("inf") for name in contenders} for _ in range(2))
    for _ in range(turns):
        for name, run in contenders.items():
            start, processor = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            seconds, given = time.perf_counter() - start, time.process_time() - processor
            any_turn[name] = min(any_turn[name], seconds)
            if seconds < 1.05 * given:
                clean[name] = min(clean[name], seconds)
    return clean if max(clean.values()) < float("inf") else any_turn


def main() -> None:
    """Print microseconds per outer step and their ratios; exit with 1 where one is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000, help="of AID; ITD makes a tenth")
    arguments = parser.parse_args()
    works = {
        "AID, quadratic 50, N = Q = 10": (aid_contenders, arguments.steps),
        "ITD, representation, N = 20": (itd_contenders, max(1, arguments.steps // 10)),
    }
    print(
        f"{'':56}{'µs per outer step':>20}{'ratio':>8}{'further':>10}{'ratio':>8}   limit {LIMIT}"
    )
    too_slow = False
    for work, (make, steps) in works.items():
        fewer = max(1, steps // 10)
        times, short = (best_times(make(n), arguments.turns) for n in (steps, fewer))
        further = {name: (times[name] - short[name]) / (steps - fewer) for name in times}
        for name, seconds in times.items():
            ratio = seconds / times["by hand"]
            too_slow |= name == "biloop" and ratio > LIMIT
            print(
                f"{work:34}{name:22}{1e6 * seconds / steps:20.2f}{ratio:8.2f}"
                f"{1e6 * further[name]:10.2f}{further[name] / further['by hand']:8.2f}"
            )
    sys.exit(too_slow)


if __name__ == "__main__":
    main()
