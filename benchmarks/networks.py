"""`auto` on twelve networks beside the best of a tuned grid of the usual approximations.

    python -m benchmarks.networks [--only 0 5] [--processes 12] [--data digits.npz] [--out folder]
    python -m benchmarks.networks --table folder

A method on a network is a file of the folder as soon as it is measured, in a process of its own;
what has a file is not measured again.

Three in ten of 300 training labels of scikit-learn's digits are wrong; x are the weights of the
training samples, y is the network, f the loss on 300 clean validation samples. MLPs, convolutional
networks and transformers of depth 2 to 6, with gelu, relu and tanh, weight decay 0 to 1e-2. The
score of a method is the smallest validation loss on its way. The grid (for each network anew, 39
runs of the same budget of gradients and products): ITD through the last 5 of 20 steps, AID with 10
products and H + δI, one-step v = ηb; Adam below (its state carried on, through which ITD cannot go
far) or gradient descent; outer Adam. `auto` has nothing to set but the same budget; what counts is
what it has found for no more than the best of the grid has spent.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
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
N, Q = 20, 10


class Setting(NamedTuple):
    """What is the same for all networks of a table."""

    budget: int
    training: int
    draw: int
    data: Path | None


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


def methods() -> list[str]:
    """All that is measured on a network, first what takes longest."""
    runs = {name: np.prod([len(v) for v in over.values()]) for name, (_, _, over) in grid().items()}
    return ["auto", *sorted(runs, key=lambda name: -runs[name])]


def curve(run: bl.Run) -> dict[str, Any]:
    """What a run has found, with what it had spent by then."""
    trace = run.trace
    counts = (trace["result"] != bl.Status.UNDONE) & np.isfinite(trace["value"])
    spent = trace["gradients"] + trace["products"]
    found = {"values": trace["value"][counts].tolist(), "spent": spent[counts].tolist()}
    return found | {"status": run.status.name, "message": run.message, "label": trace.label}


def measure(number: int, name: str, setting: Setting) -> dict[str, Any]:
    """The runs of a method on a network: one of `auto`, or all that the grid has."""
    problem, x, y = load(number, setting)
    began = time.perf_counter()
    if name == "auto":
        runs = [bl.solve(problem, x, y, budget=setting.budget, progress=False)]
    else:
        method, price, over = grid()[name]
        axes: dict[str, list[Any]] = {key: list(values) for key, values in over.items()}
        axes["outer"] = [optax.adam(rate) for rate in OUTER_STEPS]
        steps = max(1, setting.budget // price)
        runs = bl.sweep(problem, x, y, method, over=axes, steps=steps, progress=False).runs
    took = time.perf_counter() - began
    return {"number": number, "name": name, "runs": [curve(run) for run in runs], "seconds": took}


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

    @property
    def ratio(self) -> float:
        return self.auto / self.best


def row(number: int, found: list[dict[str, Any]], budget: float) -> Row:
    tried = [(*smallest(run, budget), each["name"]) for each in found for run in each["runs"]
             if each["name"] != "auto"]  # fmt: skip
    best, cost, name = min(tried)
    (auto,) = (run for each in found if each["name"] == "auto" for run in each["runs"])
    return Row(number, auto["status"], *smallest(auto, cost), best, cost, name)


def line(row: Row) -> str:
    kind, depth, activation, decay = NETWORKS[row.number]
    return (
        f"{kind:11} {depth} {activation:4} {decay:6.0e}  {row.status:10} {row.auto:7.4f} "
        f"{row.auto_cost:6.0f} {row.best:7.4f} {row.best_cost:6.0f} {row.ratio:6.2f}  {row.name}"
    )


def table(folder: Path, budget: float) -> str:
    """The networks of which all is known."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    head = (
        f"{'network':31} {'status':10} {'auto':>7} {'cost':>6} {'grid':>7} {'cost':>6} {'ratio':>6}"
    )
    rows = []
    for number in range(len(NETWORKS)):
        own = [each for each in found if each["number"] == number]
        if len(own) == len(methods()):
            rows.append(row(number, own, budget))
    if not rows:
        return "No network is measured in full yet."
    ratios = [each.ratio for each in rows]
    ends = Counter(each.status for each in rows)
    foot = (
        f"{sum(r <= 1.05 for r in ratios)} of {len(ratios)} within 1.05 of the best of the grid, "
        f"median {np.median(ratios):.2f}; ends: {dict(ends)}"
    )
    return "\n".join([head, *map(line, rows), foot])


Task = tuple[int, str]


def measured(work: list[Task], setting: Setting, processes: int) -> Iterator[dict[str, Any]]:
    """The methods on the networks as they are done."""
    fresh = multiprocessing.get_context("spawn")  # JAX has threads, which no fork survives
    with ProcessPoolExecutor(processes, fresh, max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(measure, *each, setting) for each in work]):
            yield done.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", default=range(len(NETWORKS)))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--budget", type=int, default=1000)
    parser.add_argument("--training", type=int, default=300, help="samples")
    parser.add_argument("--draw", type=int, default=0, help="of data and starts")
    parser.add_argument("--data", type=Path, help="an npz file with pixels and labels")
    parser.add_argument("--out", type=Path, help="a folder")
    parser.add_argument("--table", type=Path, help="the folder of what was measured")
    options = parser.parse_args()
    if options.table:
        print(table(options.table, options.budget))
        return
    setting = Setting(options.budget, options.training, options.draw, options.data)
    folder = options.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    file = lambda number, name: folder / f"{number} {name}.json"  # noqa: E731
    work = [(number, name) for name in methods() for number in reversed(options.only)]
    work = [each for each in work if not file(*each).exists()]
    for each in measured(work, setting, options.processes):
        file(each["number"], each["name"]).write_text(json.dumps(each))
        low = min(smallest(run, setting.budget)[0] for run in each["runs"])
        print(f"{each['number']:2} {each['name']}: {low:.4f} ({each['seconds']:.0f} s)", flush=True)
    print(table(folder, setting.budget))


if __name__ == "__main__":
    main()
