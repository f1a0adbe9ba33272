"""What accelerated loops save, in gradients and products, beside plain gradient descent.

Each contender replaces the N-loop, the Q-loop or both by a faster method, with step sizes from the
spectrum of ∇²_y g.

1. One hypergradient from a cold start: the cost until both residuals are 10⁻⁶ of what they were.
2. Whole runs with both warm starts: the cost until ‖∇Φ(x_k)‖² ≤ ε ‖∇Φ(x_0)‖², with ∇Φ exact. All
   have the same outer step, half of the one with which descent along ∇Φ itself is fastest, and each
   gets the pair (N, Q) of a common grid that is cheapest for it. These are 200 runs of a problem,
   so that they are made with smaller twins of the problems that ship.

    python benchmarks/acceleration.py [--epsilon 1e-4] [problem ...]
"""

import argparse
import itertools
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import biloop as bl
from biloop.linear.dense import dense_matrix
from biloop.oracles import Cost, inner_gradient, linearise, outer_gradients
from biloop.problems import sparse_classes, sparse_regression
from biloop.vectors import norm

SPARSE = {"features": 40, "relevant": 8, "noise": 1.0}
SMALL: dict[str, Callable[[], Any]] = {
    **{
        f"quadratic-{kappa}": partial(bl.problems.quadratic, float(kappa), p=20, q=30)
        for kappa in (4, 16, 64, 256, 1024)
    },
    "log-cosh": partial(bl.problems.log_cosh, 10.0),
    "ridge": lambda: bl.problems.ridge(*sparse_regression(60, **SPARSE)),
    "badly-scaled": lambda: bl.problems.ridge(*sparse_regression(60, **SPARSE, spread=100.0)),
    "logistic": lambda: bl.problems.logistic(*sparse_classes(100, **SPARSE), x0=-3.0),
}
FLAT = "badly-scaled"  # Φ falls towards infinity: no common outer step, only cold starts
LOOPS = [1, 4, 16, 64, 256]
MOST = 400  # outer steps
OUTER_STEPS = 4.0 ** np.arange(5, -12, -1)
FAR = 30.0  # penalties exp(x) beyond this are none or infinite: a run that goes there has failed
COLD, LONG = 1e-6, 10**7  # the accuracy of a cold start, and the most steps it may take


class Spectrum(NamedTuple):
    """The extreme eigenvalues of ∇²_y g, and its diagonal at y*(x_0)."""

    L: float
    mu: float
    diagonal: Any


Loop = Callable[[Spectrum, Any, Any], Any]  # spectrum, steps, tolerance -> method

INNER: dict[str, Loop] = {
    "GD": lambda s, N, tol: bl.GradientDescent(2 / (s.L + s.mu), N, tol),
    "Nesterov": lambda s, N, tol: bl.Nesterov.tuned(s.L, s.mu, N, tol),
    "heavy ball": lambda s, N, tol: bl.HeavyBall.tuned(s.L, s.mu, N, tol),
}
LINEAR: dict[str, Loop] = {
    "GD": lambda s, Q, tol: bl.Richardson(2 / (s.L + s.mu), Q, tol),
    "Chebyshev": lambda s, Q, tol: bl.Chebyshev(s.L, s.mu, Q, tol),
    "CG": lambda s, Q, tol: bl.CG(Q, tol),
    "CG, diagonal": lambda s, Q, tol: bl.CG(Q, tol, bl.Diagonal(s.diagonal)),
}
CONTENDERS = [
    ("GD", "GD"),
    ("Nesterov", "GD"),
    ("heavy ball", "GD"),
    ("GD", "Chebyshev"),
    ("GD", "CG"),
    ("GD", "CG, diagonal"),
    ("Nesterov", "Chebyshev"),
    ("heavy ball", "CG"),
]


@eqx.filter_jit
def descend(problem: Any, method: Any, x: Any, y: Any, outer_step: Any, budget: Any) -> Any:
    """x_0 … x_k, the cost before each, and k: until the budget is spent or x_k is not finite."""
    size = x.size

    def unfinished(carry: Any) -> Any:
        x, _, _, spent, k = carry
        return (k < MOST) & (spent <= budget) & jnp.all(jnp.isfinite(x))

    def body(carry: Any) -> Any:
        x, warm, rows, spent, k = carry
        h, warm, info = method(problem, x, warm, k)
        x = x - outer_step * h
        spent = spent + Cost(*info.cost).total
        xs, costs = rows
        return x, warm, (xs.at[k + 1].set(x), costs.at[k + 1].set(spent)), spent, k + 1

    zero = jnp.zeros((), jnp.int32)
    rows = jnp.zeros((MOST + 1, size)).at[0].set(x), jnp.zeros(MOST + 1, jnp.int32)
    start = x, method.init(problem, x, y), rows, zero, zero
    _, _, (xs, costs), _, k = lax.while_loop(unfinished, body, start)
    return xs, costs, k


def exact_norms(problem: Any, xs: Any, y: Any) -> Any:
    """‖∇Φ(x)‖ for each x of a path of at most MOST steps; infinite where y*(x) was not found."""
    padded = np.pad(np.asarray(xs), [(0, MOST + 1 - len(xs)), (0, 0)], mode="edge")
    return np.asarray(_exact_norms(problem, jnp.asarray(padded), y))[: len(xs)]


@eqx.filter_jit
def _exact_norms(problem: Any, xs: Any, y: Any) -> Any:
    def newton(x: Any, y: Any) -> Any:
        hessian = dense_matrix(linearise(problem, x, y)[0], y)
        return y - jnp.linalg.solve(hessian, inner_gradient(problem, x, y))

    def step(y: Any, x: Any) -> tuple[Any, Any]:
        y = lax.fori_loop(0, 4, lambda _, y: newton(x, y), y)  # from the last one of the path
        hessian, cross = linearise(problem, x, y)
        _, f_x, f_y = outer_gradients(problem, x, y)
        h = f_x - cross(jnp.linalg.solve(dense_matrix(hessian, y), f_y))
        return y, jnp.where(norm(inner_gradient(problem, x, y)) < 1e-9, norm(h), jnp.inf)

    start = lax.fori_loop(0, 20, lambda _, y: newton(xs[0], y), y)
    return lax.scan(step, start, xs)[1]


@eqx.filter_jit
def inner_spectrum(problem: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """The eigenvalues of ∇²_y g at y and at y*(x), both diagonals, and y*(x)."""
    exact = bl.Exact()
    _, warm, _ = exact(problem, x, exact.init(problem, x, y), 0)
    matrices = [dense_matrix(linearise(problem, x, at)[0], at) for at in (y, warm.y)]
    return jnp.stack(list(map(jnp.linalg.eigvalsh, matrices))), jnp.diag(matrices[1]), warm.y


class Arena:
    """One problem, and what the contenders are told about it."""

    def __init__(self, made: Any) -> None:
        self.problem, self.x, self.y = made.problem, made.x0, made.y0
        self.spectrum = self.spectrum_of(self.x[None])
        if hasattr(made, "hypergradient"):
            gradient = made.hypergradient  # in closed form
            self.norms = lambda xs: np.array([np.linalg.norm(gradient(x)) for x in xs])
        else:
            self.norms = lambda xs: exact_norms(self.problem, xs, self.y)

    def spectrum_of(self, path: Any) -> Spectrum:
        """Over the first and the last x of a path."""
        found = [inner_spectrum(self.problem, jnp.asarray(path[i]), self.y) for i in (0, -1)]
        values = np.stack([values for values, _, _ in found])
        return Spectrum(float(values.max()), float(values.min()), found[0][1])

    def cold_gradients(self, inner: Loop) -> int:
        """Until ‖∇_y g‖ is a share COLD of what it is at y_0."""
        first = norm(inner_gradient(self.problem, self.x, self.y))
        method = inner(self.spectrum, LONG, COLD * first)
        return int(eqx.filter_jit(method)(self.problem, self.x, self.y, 0)[1].steps)

    def cold_products(self, linear: Loop) -> int:
        """Until ‖Hv − b‖ at y*(x_0) is a share COLD of what it is at v = 0."""
        _, _, y = inner_spectrum(self.problem, self.x, self.y)
        _, _, b = outer_gradients(self.problem, self.x, y)
        method = linear(self.spectrum, LONG, COLD * norm(b))
        return int(solve_linear(self.problem, self.x, y, b, method))

    def run(
        self, method: Any, outer_step: float, target: float, budget: float = math.inf
    ) -> tuple[float, Any]:
        """Gc + MV until ‖∇Φ‖ ≤ target, infinite if that is not reached, and the path to there."""
        most = np.int32(min(budget, 2**30))
        xs, costs, k = descend(self.problem, method, self.x, self.y, outer_step, most)
        xs = np.asarray(xs)[: int(k) + 1]
        inside = np.all(np.abs(xs) <= FAR, axis=1)
        xs = xs if inside.all() else xs[: np.argmin(inside)]
        reached = np.flatnonzero(self.norms(xs) <= target)
        return (float(costs[reached[0]]), xs[: reached[0] + 1]) if len(reached) else (math.inf, xs)


@eqx.filter_jit
def solve_linear(problem: Any, x: Any, y: Any, b: Any, method: Any) -> Any:
    """The products it takes."""
    hessian, _ = linearise(problem, x, y)
    return method(hessian, b, jnp.zeros_like(b), 0)[1].products


def cold_starts(names: list[str]) -> None:
    """Print what each loop alone costs on each problem."""
    header = [*INNER, *(f"{name} " for name in LINEAR)]
    print(f"{'':16}{'κ':>9}" + "".join(f"{name:>13}" for name in header))
    for name in names:
        arena = Arena(bl.problems.load(name))
        costs = [*map(arena.cold_gradients, INNER.values())]
        costs += [*map(arena.cold_products, LINEAR.values())]
        kappa = arena.spectrum.L / arena.spectrum.mu
        print(f"{name:16}{kappa:9.3g}" + "".join(f"{cost:13}" for cost in costs), flush=True)


def whole_runs(names: list[str], epsilon: float) -> None:
    """Print the cost of each contender with its best loops, and its ratio to that of plain ones."""
    print(f"{'N-loop':12}{'Q-loop':14}{'Gc + MV':>10}{'ratio':>8}{'N':>6}{'Q':>6}")
    for name in names:
        arena = Arena(SMALL[name]())
        target = math.sqrt(epsilon) * float(arena.norms(arena.x[None])[0])
        beta, path = best_outer_step(arena, target)
        arena.spectrum = arena.spectrum_of(path)

        kappa = arena.spectrum.L / arena.spectrum.mu
        print(f"\n{name}: κ = {kappa:.3g}, {len(path) - 1} steps of size {beta:.3g} along ∇Φ")
        plain = math.inf
        for inner, linear in CONTENDERS:
            cost, N, Q = best_loops(arena, INNER[inner], LINEAR[linear], beta / 2, target)
            plain = cost if (inner, linear) == CONTENDERS[0] else plain
            print(f"{inner:12}{linear:14}{cost:10.0f}{cost / plain:8.2f}{N:6}{Q:6}", flush=True)


def best_outer_step(arena: Arena, target: float) -> tuple[float, Any]:
    """With which descent along ∇Φ is fastest, and its path; tried from long to short."""
    best = math.inf, 0.0, None
    for beta in OUTER_STEPS:
        _, path = found = arena.run(bl.Exact(), beta, target)
        if math.isinf(found[0]) and math.isinf(best[0]):
            continue  # too long yet
        if found[0] >= best[0]:
            return best[1:]
        best = found[0], beta, path
    sys.exit("No outer step reaches the target; choose a larger --epsilon.")


def best_loops(
    arena: Arena, inner: Loop, linear: Loop, outer_step: float, target: float
) -> tuple[float, int, int]:
    """The smallest cost over the grid, and the (N, Q) that has it."""
    best = math.inf, 0, 0
    for N, Q in sorted(itertools.product(LOOPS, LOOPS), key=sum):
        sizes = jnp.asarray([N, Q], jnp.int32)
        method = bl.AID(inner(arena.spectrum, sizes[0], 0), linear(arena.spectrum, sizes[1], 0))
        cost, _ = arena.run(method, outer_step, target, best[0])
        best = min(best, (cost, N, Q))
    return best


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", default=list(SMALL), metavar="problem")
    parser.add_argument("--epsilon", type=float, default=1e-4)
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.problems) - set(SMALL)):
        parser.error(f"no twins of {', '.join(unknown)}; there are {', '.join(SMALL)}")
    jax.config.update("jax_enable_x64", True)

    print(f"1. Gradients of the N-loop, products of the Q-loop, to {COLD:g} from a cold start\n")
    cold_starts(arguments.problems)
    print("\n2. Gradients and products of whole runs\n")
    whole_runs([name for name in arguments.problems if name != FLAT], arguments.epsilon)


if __name__ == "__main__":
    main()
