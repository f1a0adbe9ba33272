"""`auto` on twelve networks beside the best of a tuned grid of the usual approximations.

    python -m benchmarks.networks [--only 0 5] [--processes 12] [--data digits.npz] [--out folder]
    python -m benchmarks.networks --table folder

A part of a method on a network is a file of the folder as soon as it is measured, in a process of
its own with one thread; what has a file is not measured again. First comes `auto`, then the grids
in the order of `--only`; the table has what is there, and says how many runs of a grid that is.

Three in ten of 300 training labels of scikit-learn's digits are wrong; x are the weights of the
training samples, y is the network, f the loss on 300 clean validation samples. MLPs, convolutional
networks and transformers of depth 2 to 6, with gelu, relu and tanh, weight decay 0 to 1e-2. The
score of a method is the smallest validation loss on its way. The grid (for each network anew, 48
runs of the same budget of gradients and products): ITD through the last 5 of 20 steps, AID with 10
products and H + δI, one-step v = ηb; Adam below (its state carried on, through which ITD cannot go
far) or gradient descent; outer Adam. `auto` has nothing to set but the same budget; what counts is
what it has found for no more than the best of the grid has spent.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import biloop as bl
from benchmarks.network_kinds import ACTIVATIONS, KINDS

VALIDATION, NOISE = 300, 0.3
NETWORKS = (  # kind, depth, activation, weight decay
    ("mlp", 2, "gelu", 0.0),
    ("mlp", 3, "relu", 1e-3),
    ("mlp", 4, "tanh", 1e-2),
    ("mlp", 6, "gelu", 1e-4),
    ("cnn", 2, "relu", 0.0),
    ("cnn", 3, "tanh", 1e-4),
    ("cnn", 4, "gelu", 1e-2),
    ("cnn", 6, "relu", 1e-3),
    ("transformer", 2, "gelu", 1e-3),
    ("transformer", 3, "relu", 1e-2),
    ("transformer", 4, "tanh", 0.0),
    ("transformer", 6, "gelu", 1e-4),
)
OUTER_STEPS = (0.03, 0.3)
MANY = 3  # settings of a method with an outer step: more are two tasks
N, Q = 20, 10


class Setting(NamedTuple):
    """What is the same for all networks of a table."""

    budget: int
    training: int
    draw: int
    data: Path | None
    seconds: float


def digits(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if path is not None:
        found = np.load(path)
        return found["pixels"], found["labels"]
    loaded = bl.data.digits()
    return loaded.X, loaded.labels


def load(number: int, setting: Setting) -> tuple[bl.Problem, Any, Any]:
    """The problem of a network, with data and start of its own."""
    kind, depth, activation, decay = NETWORKS[number]
    pixels, labels = digits(setting.data)
    seed, n = number + len(NETWORKS) * setting.draw, setting.training
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))[: n + VALIDATION]
    pixels, labels = pixels[order].astype(np.float32), labels[order].astype(np.int32)
    wrong = rng.random(n) < NOISE
    labels[:n] = np.where(wrong, rng.integers(0, 10, n), labels[:n])
    make, predict = KINDS[kind]
    act = ACTIVATIONS[activation]

    def losses(y: Any, X: Any, labels: Any) -> Any:
        z = predict(act, y, X)
        return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, labels[:, None], axis=1)[:, 0]

    def inner(x: Any, y: Any, X: Any, labels: Any) -> Any:
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean(jax.nn.sigmoid(x) * losses(y, X, labels)) + 0.5 * decay * squares

    problem = bl.Problem(
        inner,
        lambda x, y, X, labels: jnp.mean(losses(y, X, labels)),
        (pixels[:n], labels[:n]),
        (pixels[n:], labels[n:]),
    )
    return problem, jnp.zeros(n), make(jax.random.key(seed), depth)


DESCENT = "inner.step_size", (0.03, 0.1, 0.3)
ADAM = "inner.transformation.options['learning_rate']", (0.003, 0.01, 0.03)
Over = dict[str, tuple[float, ...]]


def grid() -> dict[str, tuple[bl.Method, int, Over]]:
    """The methods with what an outer step of each costs, and what is tuned."""
    descent = bl.GradientDescent(0.1, N)
    adam = bl.Optax(bl.Built(optax.adam, {"learning_rate": 0.01}), N, carry_state=True)
    loops, damped = bl.CG(Q, indefinite="truncate"), bl.Damped(0.1)
    delta, eta = {"derivatives.damping": (0.01, 0.1, 1.0)}, {"step_size": (0.1, 1.0)}
    return {
        "ITD, last 5 of 20": (bl.ITD(descent, truncate=5), N + 2 + 10, dict([DESCENT])),
        "one-step": (bl.OneStep(descent, 0.1), N + 3, dict([DESCENT]) | eta),
        "one-step, Adam": (bl.OneStep(adam, 0.1), N + 3, dict([ADAM])),
        "AID, damped": (
            bl.AID(descent, loops, derivatives=damped),
            N + Q + 4,
            dict([DESCENT]) | delta,
        ),
        "AID, damped, Adam": (bl.AID(adam, loops, derivatives=damped), N + Q + 4, dict([ADAM])),
    }


class Task(NamedTuple):
    """What one process measures: `auto` on a network, or some outer steps of a method's grid."""

    number: int
    name: str
    outer: tuple[float, ...] = ()

    @property
    def file(self) -> str:
        return f"{' '.join(map(str, (self.number, self.name, *self.outer)))}.json"


def tasks(number: int) -> list[Task]:
    """All that is measured on a network: first `auto`, then what takes longest."""
    runs = {
        name: int(np.prod([len(v) for v in over.values()])) for name, (*_, over) in grid().items()
    }
    parts = [
        Task(number, name, rates)
        for name in sorted(runs, key=lambda name: -runs[name])
        for rates in ([(rate,) for rate in OUTER_STEPS] if runs[name] > MANY else [OUTER_STEPS])
    ]
    return [Task(number, "auto"), *parts]


def curve(run: bl.Run) -> dict[str, Any]:
    """What a run has found, with what it had spent by then."""
    trace = run.trace
    counts = (trace["result"] != bl.Status.UNDONE) & np.isfinite(trace["value"])
    spent = trace["gradients"] + trace["products"]
    found = {"values": trace["value"][counts].tolist(), "spent": spent[counts].tolist()}
    return found | {"status": run.status.name, "message": run.message, "label": trace.label}


def measure(task: Task, setting: Setting) -> dict[str, Any]:
    """The runs of a task."""
    problem, x, y = load(task.number, setting)
    began = time.perf_counter()
    if task.name == "auto":
        runs = [bl.solve(problem, x, y, budget=setting.budget or None, progress=False)]
    else:
        method, price, over = grid()[task.name]
        axes: dict[str, list[Any]] = {key: list(values) for key, values in over.items()}
        axes["outer"] = [bl.Built(optax.adam, {"learning_rate": rate}) for rate in task.outer]
        steps = max(1, setting.budget // price)
        # One after the other on a processor: side by side they take twice as long on one core.
        lanes = 1 if jax.default_backend() == "cpu" else None
        swept = bl.sweep(problem, x, y, method, over=axes, steps=steps, batch=lanes, progress=False)
        runs = swept.runs
    took = time.perf_counter() - began
    return task._asdict() | {"runs": [curve(run) for run in runs], "seconds": took}


def smallest(run: dict[str, Any], budget: float) -> tuple[float, float]:
    """The smallest loss for at most the budget, and what had been spent by then."""
    within = ((v, c) for v, c in zip(run["values"], run["spent"], strict=True) if c <= budget)
    return min(within, default=(np.inf, 0))


class Row(NamedTuple):
    """A network: `auto` for no more than the best of the grid has spent, and that."""

    number: int
    status: str
    auto: float
    auto_cost: float
    best: float
    best_cost: float
    name: str
    runs: int

    @property
    def ratio(self) -> float:
        return self.auto / self.best


def row(number: int, found: list[dict[str, Any]], budget: float) -> Row:
    tried = [(*smallest(run, budget), each["name"]) for each in found for run in each["runs"]
             if each["name"] != "auto"]  # fmt: skip
    best, cost, name = min(tried, default=(np.nan, budget, "no grid"))
    (auto,) = (run for each in found if each["name"] == "auto" for run in each["runs"])
    return Row(number, auto["status"], *smallest(auto, cost), best, cost, name, len(tried))


def line(row: Row) -> str:
    kind, depth, activation, decay = NETWORKS[row.number]
    return (
        f"{kind:11} {depth} {activation:4} {decay:6.0e}  {row.status:10} {row.auto:7.4f} "
        f"{row.auto_cost:6.0f} {row.best:7.4f} {row.best_cost:6.0f} {row.ratio:6.2f} {row.runs:4}  "
        f"{row.name}"
    )


def table(folder: Path, budget: float) -> str:
    """The networks on which `auto` is known, with what is known of their grids."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    head = (
        f"{'network':31} {'status':10} {'auto':>7} {'cost':>6} {'grid':>7} {'cost':>6} "
        f"{'ratio':>6} {'runs':>4}"
    )
    rows = []
    for number in range(len(NETWORKS)):
        own = [each for each in found if each["number"] == number]
        if any(each["name"] == "auto" for each in own):
            rows.append(row(number, own, budget))
    ratios = [each.ratio for each in rows if each.runs]
    if not ratios:
        return "No network has a run of `auto` and of its grid yet."
    ends = Counter(each.status for each in rows)
    foot = (
        f"{sum(r <= 1.05 for r in ratios)} of {len(ratios)} within 1.05 of the best of the grid, "
        f"median {np.median(ratios):.2f}; ends: {dict(ends)}"
    )
    return "\n".join([head, *map(line, rows), foot])


def measured(work: list[Task], setting: Setting, processes: int) -> Iterator[dict[str, Any]]:
    """The tasks as they are done, as long as there is time."""
    os.environ["NPROC"] = "1"  # threads of XLA in each of them
    fresh = multiprocessing.get_context("spawn")  # JAX has threads, which no fork survives
    ends = time.monotonic() + setting.seconds
    with fresh.Pool(processes, maxtasksperchild=1) as pool:
        done = pool.imap_unordered(partial(measure, setting=setting), work)
        for _ in work:
            try:
                yield done.next(max(0.0, ends - time.monotonic()))
            except multiprocessing.TimeoutError:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", default=range(len(NETWORKS)))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=int, default=1000, help="0: `auto` alone, without one")
    parser.add_argument("--training", type=int, default=300, help="samples")
    parser.add_argument("--draw", type=int, default=0, help="of data and starts")
    parser.add_argument("--seconds", type=float, default=1e6, help="what is not done then is left")
    parser.add_argument("--data", type=Path, help="an npz file with pixels and labels")
    parser.add_argument("--out", type=Path, help="a folder")
    parser.add_argument("--table", type=Path, help="the folder of what was measured")
    options = parser.parse_args()
    if options.table:
        print(table(options.table, options.budget))
        return
    setting = Setting(options.budget, options.training, options.draw, options.data, options.seconds)
    folder = options.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    work = [task for number in options.only for task in tasks(number)]
    work = [task for task in work if not (folder / task.file).exists()]
    work = [task for task in work if task.name == "auto" or setting.budget]
    work.sort(key=lambda task: task.name != "auto")
    for each in measured(work, setting, options.processes):
        task = Task(each["number"], each["name"], tuple(each["outer"]))
        (folder / task.file).write_text(json.dumps(each))
        low, i = min((smallest(run, np.inf)[0], i) for i, run in enumerate(each["runs"]))
        best = each["runs"][i]
        print(
            f"{task.file[:-5]}: {low:.4f}, {best['status']} after {best['spent'][-1]:.0f} "
            f"({each['seconds']:.0f} s)",
            flush=True,
        )
    print(table(folder, setting.budget or np.inf))


if __name__ == "__main__":
    main()
