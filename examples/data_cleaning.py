"""Data hyper-cleaning on scikit-learn's digits: do the loops pay?

Three in ten training labels are wrong. Each training sample has a weight σ(x_i), and the weights
are learned so that the classifier trained with them does well on a few clean validation samples:

    min_x  f(W*(x)) = mean over validation of CE_i(W*(x))
    where  W*(x) = argmin_W g(x, W) = mean over training of σ(x_i) CE_i(W) + 0.001 ‖W‖²

The schemes of the paper get the same step sizes and the same budget of gradients and products.
Their order is that of these step sizes; others can change it.

    python examples/data_cleaning.py [--budget 12000] [--outer-step 1000]
                                     [--figure out/data_cleaning.png]
"""

import argparse
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import biloop as bl

CLASSES = 10
TRAINING, VALIDATION = 1000, 300  # the other 497 digits are the test set
NOISE = 0.3
PENALTY = 0.001
LOOP = 20  # N and Q of the schemes that have the loop
BUDGET = 12_000  # gradients and products together
OUTER_STEP = 1e3  # ∂f/∂x_i is of the order 1e-5: with step sizes around 1, x would not move
WIDTH = 92
LOOKS = {  # color-blind safe
    "AID No-loop": ("#d55e00", "-"),
    "AID N-loop": ("#0072b2", "-"),
    "AID Q-loop": ("#cc79a7", "-"),
    "AID N-Q-loop": ("#000000", "-"),
    "ITD No-loop": ("#e69f00", "--"),
    "ITD N-N-loop": ("#009e73", "--"),
}


class Digits(NamedTuple):
    """Pairs of inputs (8 × 8 pixels and a constant) and one-hot labels.

    `noisy` marks the training samples whose label is wrong.
    """

    training: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    noisy: np.ndarray


class Row(NamedTuple):
    """A line of the table: a scheme, or a reference whose weights were not learned."""

    name: str
    run: bl.Run | None
    validation: float  # loss of the W that the run ended with
    solved: float  # Φ(x): loss of W*(x), the inner problem solved
    accuracy: float  # on the test set, of the W that the run ended with
    noisy: float
    clean: float


def load(seed: int = 0) -> Digits:
    digits = load_digits()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits.target))
    inputs = np.c_[digits.data / 16, np.ones(len(order))][order]
    labels = digits.target[order]
    noisy = rng.random(TRAINING) < NOISE
    # A wrong label is any of the nine others.
    shift = np.where(noisy, rng.integers(1, CLASSES, TRAINING), 0)
    labels[:TRAINING] = (labels[:TRAINING] + shift) % CLASSES
    parts = np.split(np.arange(len(order)), [TRAINING, TRAINING + VALIDATION])
    training, validation, test = ((inputs[i], np.eye(CLASSES)[labels[i]]) for i in parts)
    return Digits(training, validation, test, noisy)


def cross_entropy(W: Any, inputs: Any, labels: Any) -> Any:
    scores = inputs @ W.T
    return jax.nn.logsumexp(scores, axis=1) - jnp.sum(scores * labels, axis=1)


def inner(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
    return jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, inputs, labels)) + PENALTY * jnp.sum(W**2)


def outer(x: Any, W: Any, inputs: Any, labels: Any) -> Any:
    return jnp.mean(cross_entropy(W, inputs, labels))


def largest_eigenvalue(inputs: np.ndarray) -> float:
    """A bound of the inner Hessian for all x and W: the softmax has curvature at most ½."""
    return 0.5 * float(np.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1]) + 2 * PENALTY


def schemes(step: float) -> dict[str, bl.Method]:
    named = bl.schemes
    return {
        "AID No-loop": named.no_loop(step, step),
        "AID N-loop": named.n_loop(LOOP, inner_step=step, linear_step=step),
        "AID Q-loop": named.q_loop(LOOP, inner_step=step, linear_step=step),
        "AID N-Q-loop": named.n_q_loop(LOOP, LOOP, inner_step=step, linear_step=step),
        "ITD No-loop": named.itd_no_loop(step),
        "ITD N-N-loop": named.n_n_loop(LOOP, inner_step=step),
    }


def compare(budget: int = BUDGET, outer_step: float = OUTER_STEP) -> list[Row]:
    """All schemes from x = 0 and W = 0, then the references."""
    data = load()
    problem = bl.Problem(inner, outer, inner_data=data.training, outer_data=data.validation)
    L = largest_eigenvalue(data.training[0])
    x0, W0 = jnp.zeros(TRAINING), jnp.zeros((CLASSES, data.training[0].shape[1]))

    solver = bl.Nesterov.tuned(L, 2 * PENALTY, steps=2000, tolerance=1e-5)
    solve_inner = jax.jit(lambda x: solver(problem, x, W0, solver.init(W0), 0)[0])

    def row(name: str, x: Any, W: Any, run: bl.Run | None) -> Row:
        test_inputs, test_labels = data.test
        guess = np.argmax(test_inputs @ np.asarray(W).T, axis=1)
        weight = np.asarray(jax.nn.sigmoid(x))
        return Row(
            name,
            run,
            float(outer(x, W, *problem.outer_data)),
            float(outer(x, solve_inner(x), *problem.outer_data)),
            float(np.mean(guess == np.argmax(test_labels, axis=1))),
            float(weight[data.noisy].mean()),
            float(weight[~data.noisy].mean()),
        )

    rows = []
    for name, method in schemes(1 / L).items():
        run = bl.solve(
            problem, x0, W0, method, outer=outer_step, steps=budget, budget=budget, label=name
        )
        if run.status.failed:
            raise SystemExit(f"{name}: {run.message}")
        rows.append(row(name, run.x, run.y, run))
    sure = 30.0 * jnp.ones_like(x0)  # σ(30) is 1 to rounding
    oracle = jnp.where(data.noisy, -sure, sure)
    rows.append(row("uniform weights", x0, solve_inner(x0), None))
    rows.append(row("oracle weights", oracle, solve_inner(oracle), None))
    return rows


def table(rows: list[Row]) -> str:
    head = (
        f"{'':16} {'outer':>6} {'':>9} {'':>8} {'':>7} {'validation':>10} {'inner':>7}"
        f" {'test':>8} {'weight of samples':>18}\n"
        f"{'scheme':16} {'steps':>6} {'gradients':>9} {'products':>8} {'seconds':>7} {'loss':>10}"
        f" {'solved':>7} {'accuracy':>8} {'noisy':>9} {'clean':>8}"
    )
    lines = [head, "─" * WIDTH]
    for r in rows:
        work = f"{'':>6} {'':>9} {'':>8} {'':>7}"
        if r.run is not None:
            gradients, products = r.run.cost
            work = f"{r.run.steps:6} {gradients:9} {products:8} {r.run.seconds:7.2f}"
        lines.append(
            f"{r.name:16} {work} {r.validation:10.4f} {r.solved:7.4f} {r.accuracy:8.1%}"
            f" {r.noisy:9.3f} {r.clean:8.3f}"
        )
    return "\n".join(lines)


def spent(run: bl.Run) -> np.ndarray:
    return run.trace["gradients"] + run.trace["products"]


def conclusion(rows: list[Row]) -> str:
    """What the numbers say, in words."""
    learned, (uniform, oracle) = rows[:-2], rows[-2:]
    plain = learned[0]
    best = min(learned, key=lambda r: r.validation)
    text = [
        f"Lowest validation loss at this cost: {best.name}, {best.validation:.4f} (uniform "
        f"weights {uniform.validation:.4f}, oracle weights {oracle.validation:.4f}); "
        + (
            "no loop pays here."
            if plain is best
            else f"{plain.name} ends {plain.validation / best.validation - 1:.1%} above."
        )
    ]

    target = 1.1 * best.validation
    work = {r.name: first_below(r.run, target) for r in learned}
    reached = sorted((cost, name) for name, cost in work.items() if cost is not None)
    never = [name for name, cost in work.items() if cost is None]
    text.append(
        f"Gradients and products until the loss is within 10% of that ({target:.3f}): "
        + ", ".join([f"{name} {cost:,}" for cost, name in reached])
        + (f"; not within the budget: {', '.join(never)}." if never else ".")
    )

    best_x = min(learned, key=lambda r: r.solved)
    gap = plain.solved / best_x.solved - 1
    text.append(
        f"Judged by x alone, with the inner problem solved: {best_x.name}, {best_x.solved:.4f}; "
        f"{plain.name} is {gap:.1%} above."
    )
    if gap < 0.01 < plain.validation / best.validation - 1:
        text.append(f"So {plain.name} has learned weights as good; it is its W that lags behind.")
    if best.validation < oracle.validation and best.accuracy <= oracle.accuracy:
        text.append(
            f"{best.name} is below the oracle on the {VALIDATION} samples that x was fitted to; on "
            f"the test set its accuracy is {best.accuracy:.1%}, the oracle's {oracle.accuracy:.1%}."
        )
    return "\n".join(textwrap.fill(sentence, WIDTH, break_on_hyphens=False) for sentence in text)


def first_below(run: bl.Run, target: float) -> int | None:
    """The cost at which the validation loss first was at most `target`."""
    below = spent(run)[run.trace["value"] <= target]
    return int(below[0]) if len(below) else None


def draw(rows: list[Row], path: Path) -> Path:
    """Validation loss against gradients and products, one curve per scheme."""
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.add_subplot()
    for r in sorted(rows, key=lambda r: -r.validation):
        if r.run is not None:
            color, style = LOOKS[r.name]
            axes.plot(spent(r.run), r.run.trace["value"], style, color=color, lw=2, label=r.name)
        else:
            axes.axhline(r.validation, color="0.65", lw=1, zorder=0)
            axes.annotate(
                r.name,
                (0, r.validation),
                xycoords=("axes fraction", "data"),
                xytext=(5, 3),
                textcoords="offset points",
                color="0.4",
                fontsize=9,
            )
    axes.set(xscale="log", yscale="log", xlabel="gradients + products", ylabel="validation loss")
    axes.set_yticks([0.3, 0.5, 1, 2])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"Data cleaning on digits, {NOISE:.0%} of the labels wrong", loc="left", fontsize=11
    )
    axes.legend(
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        labelspacing=0.8,
        title=f"loops of {LOOP} steps",
        alignment="left",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    return path


def main(argv: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--budget", type=int, default=BUDGET, help="gradients and products")
    parser.add_argument("--outer-step", type=float, default=OUTER_STEP, help="β")
    parser.add_argument("--figure", type=Path, default=Path("out", "data_cleaning.png"))
    arguments = parser.parse_args(argv)

    print(
        f"{arguments.budget:,} gradients and products for each scheme, loops of {LOOP} steps, "
        f"outer step size {arguments.outer_step:g}.\n"
    )
    rows = compare(arguments.budget, arguments.outer_step)
    print(table(rows))
    print("Inner solved: loss of W*(x) instead of the last W. Seconds: without compilation.\n")
    print(conclusion(rows))
    print(f"Figure: {draw(rows, arguments.figure)}")
    return rows


if __name__ == "__main__":
    main()
