"""Which sources to train on: a byte-level transformer that learns the shares of its training text.

The text is at hand wherever Python is: prose (the topics of its `help`), docstrings and code of its
standard library, and three sources of no use, digits, random letters, and prose whose letters are
shuffled. x are the logits of the six shares, y is the transformer, g its loss on all sources by
their shares, f that on prose which is in no source. Adam trains y on batches, its state carried on;
v is found by a few terms of Neumann's series. Beside it, for as many outer steps,

    F2SA       a first-order method: no products, a penalty for g in their place
    equal      the shares stay equal

    python examples/sources.py [--steps 40] [--size small] [--figure out/sources.png]

`--size full` has 10⁷ parameters, computed in bfloat16, and is for a GPU (`--steps 200`).
"""

import argparse
import ast
import pydoc_data.topics
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import biloop as bl

NAMES = ("prose", "docstrings", "code", "digits", "letters", "shuffled")
COLORS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#999999")  # color-blind safe


class Size(NamedTuple):
    """Of the network, of its data and of a batch."""

    width: int
    depth: int
    heads: int
    context: int
    samples: int  # of each source
    batch: int
    rate: float


SIZES = {
    "tiny": Size(16, 1, 2, 16, 16, 12, 1e-2),
    "small": Size(64, 2, 4, 64, 64, 24, 3e-3),
    "full": Size(384, 6, 6, 256, 800, 96, 5e-4),
}


# --- the text -------------------------------------------------------------------------------------


def library(characters: int) -> tuple[str, str]:
    """Docstrings of the standard library, and its code."""
    docstrings, code, length = [], [], [0, 0]
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="ignore")
        found = [
            ast.get_docstring(node) or ""
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        ]
        docstrings.append("\n".join(found))
        code.append(source[len(source) // 3 :])  # the first third of a file is mostly prose
        length = [length[0] + len(docstrings[-1]), length[1] + len(code[-1])]
        if min(length) >= characters:
            break
    return "\n".join(docstrings), "\n".join(code)


def text(characters: int, rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """So many bytes of each source, and of prose that is in none of them."""
    prose = np.frombuffer("\n".join(pydoc_data.topics.topics.values()).encode(), np.uint8)
    if len(prose) < 2 * characters:
        raise ValueError(f"There are {len(prose)} bytes of prose, and {2 * characters} are needed.")
    docstrings, code = (np.frombuffer(t.encode(), np.uint8) for t in library(characters))
    mine, held_out = prose[:characters], prose[-characters:]
    digits = rng.integers(ord("0"), ord("9") + 1, characters).astype(np.uint8)
    letters = rng.integers(ord("a"), ord("z") + 1, characters).astype(np.uint8)
    shuffled = rng.permutation(mine)
    found = [mine, docstrings[:characters], code[:characters], digits, letters, shuffled]
    return found, held_out


def load(size: Size, seed: int = 0) -> tuple[Any, Any]:
    """Rows of context + 1 bytes with the number of their source; and rows of prose."""
    rng = np.random.default_rng(seed)
    length = size.context + 1
    sources, held_out = text(size.samples * length, rng)
    rows = np.stack([source.reshape(size.samples, length) for source in sources])
    # In turns, so that every batch has all of them.
    rows = rows.swapaxes(0, 1).reshape(-1, length).astype(np.int32)
    which = np.tile(np.arange(len(NAMES), dtype=np.int32), size.samples)
    return (rows, which), (held_out.reshape(size.samples, length).astype(np.int32),)


# --- the network ----------------------------------------------------------------------------------


def transformer(size: Size, key: Any) -> Any:
    """Byte and place embeddings, and blocks stacked along a first axis."""
    d, depth = size.width, size.depth
    keys = jax.random.split(key, 6)

    def normal(i: int, *shape: int) -> Any:
        return jax.random.normal(keys[i], shape) * shape[-2] ** -0.5

    blocks = {
        "qkv": normal(0, depth, d, 3 * d),
        "out": normal(1, depth, d, d) / (2 * depth) ** 0.5,
        "up": normal(2, depth, d, 4 * d),
        "down": normal(3, depth, 4 * d, d) / (2 * depth) ** 0.5,
    }
    bytes_, places = 0.02 * jax.random.normal(keys[4], (256, d)), jnp.zeros((size.context, d))
    return {"bytes": bytes_, "places": places, "blocks": blocks, "head": normal(5, d, 256)}


def normalised(z: Any) -> Any:
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def attention(z: Any, block: Any, heads: int) -> Any:
    n, length, d = z.shape
    qkv = (z @ block["qkv"]).reshape(n, length, 3, heads, d // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("nihd,njhd->nhij", q, k) * (d // heads) ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))[None, None]
    shares = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    return jnp.einsum("nhij,njhd->nihd", shares, v).reshape(n, length, d) @ block["out"]


def logits(y: Any, rows: Any, heads: int) -> Any:
    z = y["bytes"][rows[:, :-1]] + y["places"][None]

    @jax.checkpoint  # a block is computed again rather than kept
    def step(z: Any, block: Any) -> tuple[Any, None]:
        z = z + attention(normalised(z), block, heads)
        return z + jax.nn.gelu(normalised(z) @ block["up"]) @ block["down"], None

    z, _ = jax.lax.scan(step, z, y["blocks"])
    return normalised(z) @ y["head"]


def losses(z: Any, rows: Any) -> Any:
    """The cross entropy of each row, in nats a byte."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(z, rows[:, 1:]), axis=1)


def problem_of(size: Size, data: tuple[Any, Any], dtype: Any) -> bl.Problem:
    def weighted(x: Any, z: Any, rows: Any, which: Any) -> Any:
        return jnp.mean(len(NAMES) * jax.nn.softmax(x)[which] * losses(z, rows))

    def on_prose(x: Any, z: Any, rows: Any) -> Any:
        return jnp.mean(losses(z, rows))

    inner = bl.Composite(lambda x, y, rows, which: logits(y, rows, size.heads), weighted)
    outer = bl.Composite(lambda x, y, rows: logits(y, rows, size.heads), on_prose)
    problem = bl.Problem(inner, outer, *data)
    return problem if dtype == jnp.float32 else bl.problems.in_precision(problem, dtype)


# --- the runs -------------------------------------------------------------------------------------


def methods(size: Size, steps: int) -> dict[str, tuple[bl.Method, Any, int]]:
    """Each with its outer optimizer and its number of outer steps."""
    samples = bl.Samples(bl.Blocks(size.batch), bl.Blocks(size.batch // 6), key=1)
    adam = bl.Optax(optax.adam(size.rate), 10, carry_state=True)
    aid = bl.SampledAID(adam, bl.Neumann(0.01, 4), samples)
    single = bl.schemes.f2sa((size.batch, size.batch // 6), 0.1, multiplier=10.0, T=6, key=1)
    return {
        "AID": (aid, optax.adam(0.1), steps),
        "F2SA": (single, optax.adam(0.1), steps),
        "equal": (aid, optax.set_to_zero(), steps),
    }


class Found(NamedTuple):
    """The runs, and the loss on all of the prose that is held out, along each."""

    runs: dict[str, bl.Run]
    size: Size


def main(name: str = "small", steps: int = 40, seed: int = 0) -> Found:
    size = SIZES[name]
    dtype = jnp.bfloat16 if name == "full" else jnp.float32
    problem, y0 = problem_of(size, load(size, seed), dtype), transformer(size, jax.random.key(seed))
    count = sum(leaf.size for leaf in jax.tree.leaves(y0))
    print(f"{count} parameters, {size.samples * len(NAMES)} training rows of {size.context} bytes")
    judge = jax.jit(problem.outer)

    def judged(x: Any, y: Any) -> dict[str, float]:
        shares = jax.nn.softmax(x)
        held_out = {"held out": float(judge(x, y, *problem.outer_data))}
        return held_out | {f"share {i}": float(share) for i, share in enumerate(shares)}

    runs = {}
    for way, (method, outer, k) in methods(size, steps).items():
        run = bl.solve(
            problem, jnp.zeros(len(NAMES)), y0, method, outer=outer, steps=k,
            watch=judged, watch_every=max(1, k // 40), label=way,
        )  # fmt: skip
        runs[way] = run
        shares = np.asarray(jax.nn.softmax(run.x))
        told = ", ".join(f"{n} {share:.2f}" for n, share in zip(NAMES, shares, strict=True))
        print(
            f"{way:6} {run.status.name}: {run.watched['held out'][0]:.2f} → "
            f"{run.watched['held out'][-1]:.3f} nats a byte after {run.steps} outer steps, best "
            f"{run.best.value:.3f} after {run.best.k}, {run.cost}, {run.seconds:.0f} s; {told}",
            flush=True,
        )
    return Found(runs, size)


def draw(found: Found, file: Path) -> Path:
    """The loss on prose along the runs, and the shares that were learned."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    curve, *shares = figure.subplots(1, 3)
    for (name, run), color in zip(found.runs.items(), COLORS[::2], strict=True):
        curve.plot(run.watched["k"], run.watched["held out"], label=name, color=color)
    curve.set(xlabel="outer steps", ylabel="nats a byte, on prose held out")
    curve.legend(frameon=False)
    for place, name in zip(shares, ("AID", "F2SA"), strict=True):
        watched = found.runs[name].watched
        for i, (source, color) in enumerate(zip(NAMES, COLORS, strict=True)):
            place.plot(watched["k"], watched[f"share {i}"], label=source, color=color)
        place.set(xlabel="outer steps", ylabel="share", title=name, ylim=(0, 1))
    shares[0].legend(frameon=False, fontsize=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found = main(options.size, options.steps)
    if options.figure:
        draw(found, options.figure)
