"""What `compare(…, batch=64)` says where the answer is known, and on data.

Sampling must win on a million rows that are 300 ones again and again, and lose on 500 rows with a
condition number of a thousand. For these two the answer is found a second time, by a grid of plain
runs of `solve` whose ‖∇Φ‖² comes from the closed form, in double precision: the least passes to
0.1, 0.01, … of what it is at the start, with samples and without. On data the tables of
`python -m benchmarks.quality` are the second answer.

    python -m benchmarks.verdicts repeated
    python -m benchmarks.verdicts few
    BILOOP_DATA=folder python -m benchmarks.verdicts ijcnn1
    BILOOP_DATA=folder python -m benchmarks.verdicts cleaning-mnist
"""

import argparse
import resource
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import biloop as bl

BATCH, LEVELS = 64, (0.1, 1e-2, 1e-3, 1e-4)
OUTER = np.geomspace(1e-2, 1e2, 9)  # times the step with which ∇Φ changes by its own size
SHARES = (0.5, 0.1)  # of 1/L
LOOKS = 60  # at a run
FULL = {
    "No-loop AID": (bl.schemes.no_loop, {}),
    "N-Q-loop AID": (bl.schemes.n_q_loop, {"N": 5, "Q": 5}),
}
SAMPLED = {
    "SOBA": (bl.schemes.soba, {}),
    "SABA": (bl.schemes.saba, {}),
    "AmIGO": (bl.schemes.amigo, {"N": 5, "Q": 5}),
}

Start = tuple[bl.Problem, Any, Any]


def inner(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def outer(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def ridge(
    samples: int, *, features: int, kappa: float = 1.0, distinct: int | None = None, seed: int = 0
) -> Start:
    """Penalties per feature; with `distinct` the rows are repetitions of a few."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1, kappa**-0.5, features)
    truth = rng.normal(size=features) / scale

    def draw() -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(distinct or samples, features)) * scale
        t = X @ truth + 2 * rng.normal(size=len(X))
        rows = rng.integers(0, distinct, samples) if distinct else np.arange(samples)
        return X[rows], t[rows]

    problem = bl.Problem(inner, outer, draw(), draw())
    return problem, jnp.full(features, -3.0), jnp.zeros(features)


MADE = {
    "repeated": (lambda n: ridge(n, features=20, distinct=300), 1_000_000, 30),
    "few": (lambda n: ridge(n, features=10, kappa=1e3), 500, 100),
}


class Truth:
    """∇Φ of such a problem, from sums over the rows: H = XᵀX/n + diag(exp x)."""

    def __init__(self, problem: bl.Problem) -> None:
        (self.A, self.b), (self.C, self.d) = map(_sums, (problem.inner_data, problem.outer_data))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """−exp(x) y v, where H y = Xᵀt/n and H v = ∇_y f."""
        H = self.A + np.diag(np.exp(x))
        y = np.linalg.solve(H, self.b)
        return -np.exp(x) * y * np.linalg.solve(H, self.C @ y - self.d)

    def norm2(self, x: Any) -> float:
        """‖∇Φ(x)‖²; ∞ for a run that has failed."""
        x = np.asarray(x, float)
        return float(np.sum(self.gradient(x) ** 2)) if np.all(np.abs(x) < 100) else np.inf

    def outer_step(self, x: Any) -> float:
        """The step with which ∇Φ changes by about its own size: 1/‖∇²Φ‖."""
        x, h = np.asarray(x, float), 1e-3
        changes = [self.gradient(x + h * e) - self.gradient(x - h * e) for e in np.eye(len(x))]
        return 2 * h / float(np.linalg.norm(changes, 2))

    def inner_step(self, x: Any) -> float:
        """1/L."""
        return 1 / float(np.linalg.eigvalsh(self.A + np.diag(np.exp(np.asarray(x, float))))[-1])


def _sums(data: Any) -> tuple[np.ndarray, np.ndarray]:
    X, t = (np.asarray(a, float) for a in data)
    return X.T @ X / len(X), X.T @ t / len(X)


def passes_to(truth: Truth, start: Start, method: Any, step: Any, budget: int) -> np.ndarray:
    """Passes from which on ‖∇Φ‖² is at each level in all looks at a run; ∞ if it never is."""
    one = bl.solve(*start, method, outer=step, steps=1, progress=False).cost.total
    steps = 10**6 if step == "auto" else max(1, int(budget / one))
    run = bl.solve(
        *start, method, outer=step, steps=steps, budget=budget, progress=False,
        watch=lambda x, y: truth.norm2(x), watch_every=1 if step == "auto" else -(-steps // LOOKS),
    )  # fmt: skip
    spent = np.append(0.0, run.trace["gradients"] + run.trace["products"])[run.watched["k"]]
    off = run.watched["value"][:, None] > np.multiply(LEVELS, truth.norm2(start[1]))
    first = len(spent) - np.argmax(off[::-1], axis=0)  # after the last look that is off
    return np.append(spent, np.inf)[np.where(run.status.failed, len(spent), first)]


def by_hand(start: Start, budget: int) -> Iterator[str]:
    """The least passes to each level, of each method over a grid of step sizes."""
    truth = Truth(start[0])
    yield "passes to ‖∇Φ‖² / ‖∇Φ(x0)‖² =       " + "".join(f"{level:8g}" for level in LEVELS)
    auto = passes_to(truth, start, bl.schemes.auto(), "auto", budget)
    yield f"{'all rows, loops that size themselves':36}" + "".join(f"{p:8.3g}" for p in auto)
    for name, (scheme, lengths) in (FULL | SAMPLED).items():
        drawn = {"batch": BATCH} if name in SAMPLED else {}
        found = []
        for share in SHARES if drawn else (1.0,):
            size = share * truth.inner_step(start[1])
            method = scheme(inner_step=size, linear_step=size, **drawn, **lengths)
            steps = map(float, OUTER * truth.outer_step(start[1]))
            found += [passes_to(truth, start, method, step, budget) for step in steps]
        told = f"{'samples' if drawn else 'all rows'}, {name}"
        yield f"{told:36}" + "".join(f"{p:8.3g}" for p in np.min(found, axis=0))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problem", choices=[*MADE, "ijcnn1", "cleaning-mnist"])
    parser.add_argument("--samples", type=int, help="of a problem that is made here")
    parser.add_argument("--budget", type=int, help="the passes of a run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, help="about how long a comparison may take")
    parser.add_argument("--schemes", nargs="+", help="those to compare, or “all” that there are")
    parser.add_argument("--only", choices=("compare", "hand"))
    options = parser.parse_args(arguments)
    if options.problem in MADE:
        make, samples, budget = MADE[options.problem]
        start = make(options.samples or samples)
    else:
        found, budget = bl.problems.load(options.problem), 30
        start = (found.problem, found.x0, found.y0)
    budget = options.budget or budget
    if options.schemes == ["all"]:
        options.schemes = [scheme.name for scheme in bl.schemes.TABLE]
    if options.only != "hand":
        began, busy = time.perf_counter(), time.process_time()
        found = bl.compare(
            *start, schemes=options.schemes, batch=BATCH, budget=budget, N=5, Q=5,
            seeds=range(options.seeds), seconds=options.seconds,
        )  # fmt: skip
        print(found)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        passed, busy = time.perf_counter() - began, time.process_time() - busy
        print(f"{passed:.0f} s, {busy:.0f} s of a core, at most {most:.1f} GB resident", flush=True)
    if options.only != "compare" and options.problem in MADE:
        for line in by_hand(start, budget):
            print(line, flush=True)


if __name__ == "__main__":
    main()
