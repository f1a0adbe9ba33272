"""Few-shot sines: what to start from, so that five steps on ten points learn a new sine.

Each task is a sine with an amplitude and a phase of its own, known at ten points, and judged at
ten others. In every outer step 25 tasks are drawn that nobody has seen before, and x is

    MAML    where the network of a task starts, which then makes five steps     (Finn et al., 2017)
    ANIL    the same, but only the last layer makes them                 (Raghu et al., 2020)
    iMAML   what the network of a task is pulled to, λ/2 ‖y − x‖²  (Rajeswaran et al., 2019)

The tasks of the problem itself are held out; the run ends with their value.

    python examples/few_shot.py [--steps 3000] [--figure out/few_shot.png]
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from matplotlib.figure import Figure

import biloop as bl

SHOTS, BATCH, HELD_OUT = 10, 25, 100
STEP, STEPS, PULL = 0.02, 5, 0.5
COLORS = {"MAML": "#0072b2", "ANIL": "#d55e00", "iMAML": "#009e73"}  # color-blind safe


def sine(key: Any) -> Any:
    """The data of a task: points to learn from, and points to judge by."""
    a, b, c = jax.random.split(key, 3)
    amplitude = jax.random.uniform(a, minval=0.1, maxval=5.0)
    phase = jax.random.uniform(b, maxval=jnp.pi)
    X = jax.random.uniform(c, (2 * SHOTS,), minval=-5.0, maxval=5.0)
    Y = amplitude * jnp.sin(X + phase)
    return (X[:SHOTS], Y[:SHOTS]), (X[SHOTS:], Y[SHOTS:])


def network(key: Any, width: int = 40) -> Any:
    sizes = [1, width, width, 1]
    keys = jax.random.split(key, 3)
    return [
        {"W": jax.random.normal(k, (a, b)) * a**-0.5, "b": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def predict(layers: Any, X: Any) -> Any:
    z = X[:, None]
    for layer in layers[:-1]:
        z = jnp.tanh(z @ layer["W"] + layer["b"][None])
    return (z @ layers[-1]["W"] + layers[-1]["b"][None])[:, 0]


def loss(x: Any, y: Any, X: Any, Y: Any) -> Any:
    return jnp.mean((predict(y, X) - Y) ** 2)


def head_loss(x: Any, y: Any, X: Any, Y: Any) -> Any:
    return loss(x, [*x[:-1], y], X, Y)


def pulled(x: Any, y: Any, X: Any, Y: Any) -> Any:
    apart = sum(jnp.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (x, y)), strict=True))
    return loss(x, y, X, Y) + 0.5 * PULL * apart


def ways(held_out: Any) -> dict[str, tuple[bl.Problem, bl.Method]]:
    """The problem of one task, and how its hypergradient is found."""
    steps = bl.ITD(bl.GradientDescent(STEP, STEPS))
    # The implicit gradient is that of a minimum: it takes a loop that gets there, and whose steps
    # stay short enough as x changes, which nothing but the loop itself sees to.
    implicit = bl.AID(bl.Nesterov(0.005, 0.85, 30), bl.CG(10, indefinite="truncate"))
    make = partial(bl.Problem, inner_data=held_out[0], outer_data=held_out[1])
    return {
        "MAML": (make(loss, loss, start=lambda x: x), steps),
        "ANIL": (make(head_loss, head_loss, start=lambda x: x[-1]), steps),
        "iMAML": (make(pulled, loss, start=lambda x: x), implicit),
    }


def learn(steps: int, every: int = 100, width: int = 40) -> tuple[dict[str, bl.Run], Any]:
    """A run for each of the three, with the loss on the tasks that are held out."""
    held_out = jax.vmap(sine)(jax.random.split(jax.random.key(1), HELD_OUT))
    x0, runs = network(jax.random.key(0), width), {}
    for name, (task, method) in ways(held_out).items():
        problem = bl.problems.tasks(task)
        tasks = bl.Tasks(method, batch=BATCH, draw=sine, key=2)

        def judged(x: Any, y: Any, problem: bl.Problem = problem) -> Any:
            return {"held out": float(problem.outer(x, y, *problem.outer_data))}

        runs[name] = bl.solve(
            problem, x0, problem.start(x0), tasks, outer=optax.adam(1e-3), steps=steps,
            watch=judged, watch_every=every, label=name,
        )  # fmt: skip
        run = runs[name]
        print(
            f"{name:6} {run.status.name:10} loss on new tasks {run.watched['held out'][0]:.3f} "
            f"→ {run.value:.3f} after {run.steps} outer steps, {run.seconds:.1f} s"
        )
    return runs, held_out


def draw(runs: dict[str, bl.Run], held_out: Any, path: Path) -> None:
    """The losses along the runs, and what each makes of the first task that was held out."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    line = jnp.linspace(-5.0, 5.0, 200)
    for name, run in runs.items():
        left.plot(run.watched["k"], run.watched["held out"], label=name, color=COLORS[name])
        first = jax.tree.map(lambda leaf: leaf[0], run.y)
        y = [*run.x[:-1], first] if name == "ANIL" else first
        right.plot(line, predict(y, line), label=name, color=COLORS[name])
    (X, Y), (V, T) = jax.tree.map(lambda leaf: leaf[0], held_out)
    right.plot(X, Y, "ko", label="to learn from")
    right.plot(V, T, "k+", label="to judge by")
    left.set(xlabel="outer steps", ylabel="loss on tasks held out", yscale="log")
    right.set(xlabel="input", ylabel="output", title="a new task after its steps")
    left.legend(frameon=False)
    right.legend(frameon=False, fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    runs, held_out = learn(options.steps)
    if options.figure:
        draw(runs, held_out, options.figure)


if __name__ == "__main__":
    main()
