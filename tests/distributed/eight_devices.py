"""What a sharded problem does on eight virtual devices: one line of JSON for each finding.

python -m tests.distributed.eight_devices FOLDER quick|slow
"""

import contextlib
import io
import json
import os
import re
import runpy
import sys
from collections import Counter
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + (
    " --xla_force_host_platform_device_count=8"  # beside those of the tests that start it
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import biloop as bl
import tests.conftest  # noqa: F401  strict JAX, double precision
from biloop.run.checksum import checksum
from biloop.run.sharding import mesh_of, place
from tests.distributed.cleaning import (
    FEATURES,
    W,
    X,
    aid,
    cleaning,
    cross_entropy,
    outer,
    sampled_methods,
    samples,
    solve,
)
from tests.engines import begun, engine_of

ROOT = Path(__file__).parents[2]
MESH = jax.make_mesh((8,), ("data",))
AID, PROBLEM = aid(), cleaning()
MANY = bl.shard(PROBLEM, MESH)
(SPLIT_X,) = bl.shard((X,), MESH)


def tell(finding, **values):
    print(json.dumps({"finding": finding} | values), flush=True)


def distance(a, b):
    """The largest relative difference of where two runs end, and of what they recorded."""
    pairs = [(getattr(a, n), getattr(b, n)) for n in "xyv" if getattr(a, n) is not None]
    pairs += [(a.trace[name], b.trace[name]) for name in ("value", "hypergradient_norm")]
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in pairs]
    return max(
        float(np.linalg.norm(a - b) / max(np.linalg.norm(b), np.finfo(float).tiny))
        for a, b in pairs
    )


def spec(array):
    return str(tuple(array.sharding.spec))


def trajectories():
    alone = solve(PROBLEM)
    traced, seen = [], []

    def counted(*arguments):
        traced.append(arguments)
        return outer(*arguments)

    copied = bl.Problem(MANY.inner, counted, MANY.inner_data, MANY.outer_data)
    run = solve(copied, callback=lambda p: seen.append(len(traced)))
    tell("x copied", error=distance(run, alone), steps=run.steps, x=spec(run.x), y=spec(run.y))
    tell("traced", after_each_chunk=seen)
    run = solve(MANY, x=SPLIT_X)
    tell("x split", error=distance(run, alone), steps=run.steps, x=spec(run.x), y=spec(run.y))


def parameters():
    """A network whose layers are split: each device holds an eighth of them."""
    rng, mesh = np.random.default_rng(0), jax.make_mesh((8,), ("model",))
    inputs, targets = rng.normal(size=(32, 16)), rng.normal(size=(32, 4))
    y = {"A": rng.normal(size=(16, 24)) / 4, "B": rng.normal(size=(24, 4)) / 5}
    places = {"A": P(None, "model"), "B": P("model", None)}
    split = {k: jax.device_put(y[k], NamedSharding(mesh, places[k])) for k in y}

    def fit(y, X, T):
        return jnp.sum((jnp.tanh(X @ y["A"]) @ y["B"] - T) ** 2, axis=1)

    def inner(x, y, X, T):
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return jnp.mean(jax.nn.sigmoid(x) * fit(y, X, T)) + 1e-2 * squares

    halves = [(inputs[half], targets[half]) for half in (slice(16), slice(16, 32))]
    network = bl.Problem(inner, lambda x, y, X, T: jnp.mean(fit(y, X, T)), *halves)
    method = bl.AID(bl.GradientDescent(0.05, steps=4), bl.CG(3, indefinite="truncate"))
    alone, many = (
        bl.solve(network, np.zeros(16), start, method, outer=1.0, steps=3) for start in (y, split)
    )
    pairs = [(many.x, alone.x), *((many.y[k], alone.y[k]) for k in y)]
    error = max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)
    shapes = [list(many.y[k].addressable_shards[0].data.shape) for k in y]
    tell("y split", error=error, moved=float(np.ptp(alone.x)), shapes=shapes)


def other_methods():
    methods = {
        "CG": bl.AID(bl.GradientDescent(0.3, steps=4), bl.CG(steps=3, tolerance=1e-9)),
        "ITD": bl.ITD(bl.GradientDescent(0.3, steps=4)),
        "ITD, sqrt": bl.ITD(bl.GradientDescent(0.3, steps=4), memory="sqrt"),
    }
    for name, method in methods.items():
        tell(name, error=distance(solve(MANY, method), solve(PROBLEM, method)))


def on_batches():
    """Rows of a block lie on all devices; what x has for each sample may be split."""
    marked = cleaning(per_sample=True)
    for name, method in sampled_methods().items():
        alone = solve(marked, method)
        for where, x in (("copied", X), ("split", SPLIT_X)):
            run = solve(bl.shard(marked, MESH), method, x=x)
            pairs = [(np.asarray(getattr(run, n)), np.asarray(getattr(alone, n))) for n in "xyv"]
            error = max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)
            tell(f"{name} on batches, x {where}", error=error, moved=float(np.ptp(alone.x)))


def collectives(problem, x, y, method=AID):
    """The arrays that the base loop sends between devices, as they stand in the program."""
    settings, state = begun(problem, method, 1.0, x, y)
    program = engine_of(settings, place(state, mesh_of(problem), "")).lowered()
    found = Counter()
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    for line in program.compile().as_text().splitlines():
        if match := re.search(rf"= (.*?) ({kinds})(-start)?\(", line):
            shapes, kind, _ = match.groups()
            found.update(f"{kind} {shape}" for shape in re.findall(r"\w+\[[\d,]*\]", shapes))
    return found


def scaled_features():
    """x acts through the data, as the weights of a network would: it scales the features."""

    def inner(x, W, inputs, labels):
        return outer(x, W, inputs, labels) + 0.01 * jnp.sum(W**2)

    def outer(x, W, inputs, labels):
        return jnp.mean(cross_entropy(W, inputs * jnp.exp(x)[None], labels))

    return bl.shard(bl.Problem(inner, outer, samples(0), samples(1)), MESH)


def communication():
    tell("sent, x copied", found=collectives(MANY, X, W))
    tell("sent, x in the features", found=collectives(scaled_features(), np.zeros(FEATURES), W))


def more_communication():
    tell("sent, x split", found=collectives(MANY, SPLIT_X, W))
    itd = bl.ITD(bl.GradientDescent(0.3, steps=4))
    x = np.zeros(FEATURES)
    tell("sent, ITD", found=collectives(scaled_features(), x, W, itd))


def checkpoints():
    folder = sys.argv[1]
    solve(PROBLEM, steps=10, checkpoint=folder + "/one", every=5)
    more = solve(MANY, x=SPLIT_X, checkpoint=folder + "/one", every=5)
    tell("resumed on more devices", error=distance(more, solve(PROBLEM)), before=10)

    many = {"checkpoint": folder + "/many", "every": 5, "x": SPLIT_X}
    solve(MANY, steps=7, **many)
    resumed, whole = solve(MANY, **many), solve(MANY, x=SPLIT_X)
    same = all(np.array_equal(getattr(whole, n), getattr(resumed, n)) for n in "xyv")
    tell("resumed", steps=resumed.steps, same=same, x=spec(resumed.x))
    inputs, labels = samples(0)
    inputs[-1, -1] += 1e-9
    changed = bl.shard(bl.Problem(MANY.inner, MANY.outer, (inputs, labels), samples(1)), MESH)
    try:
        solve(changed, **many)
    except ValueError as error:
        tell("other data", message=str(error))


def layouts():
    grid = jax.make_mesh((4, 2), ("data", "model"))
    inputs, labels = samples(0)
    laid = jax.device_put(np.zeros((64, 8)), NamedSharding(grid, P("data", "model")))
    kept, one_axis, nested = bl.shard((laid, inputs, {"A": labels}), grid, over="data")
    (all_axes,) = bl.shard((inputs,), grid)
    arrays = {"kept": kept, "one axis": one_axis, "nested": nested["A"], "all axes": all_axes}
    tell("specs", **{name: spec(array) for name, array in arrays.items()})
    # 0.6 has no name for what newer versions call automatic.
    tell("axis types", types=[str(a.sharding.mesh.axis_types) for a in arrays.values()])


def checksums():
    for dtype in (np.float64, np.float32, jnp.bfloat16):
        array = np.random.default_rng(0).normal(size=(16, 3)).astype(dtype)
        found = [checksum(a).tolist() for a in (jnp.asarray(array), *bl.shard((array,), MESH))]
        tell(f"checksums of {np.dtype(dtype).name}", alone=found[0], split=found[1])


def refusals():
    for count in (67, 5):
        try:
            bl.shard((np.zeros((count, 2)),), MESH)
        except ValueError as error:
            tell(f"{count} samples", message=str(error))


def estimates_and_failures():
    alone, many = (bl.estimate.step_sizes(p, X, W) for p in (PROBLEM, MANY))
    tell("estimates", alone=[alone.L, alone.mu], many=[many.L, many.mu])
    diverging = bl.AID(bl.GradientDescent(100.0, steps=4), bl.Richardson(0.3, steps=3))
    run = solve(MANY, diverging, outer=1e6, steps=500)
    tell("failure", status=run.status.name, message=run.message)


def documents():
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
        exec(compile(code, "docs/scaling.md", "exec"), names)
    run = names["run"]
    tell("scaling.md", devices=len(names["problem"].inner_data[0].sharding.device_set))
    tell("its run", status=run.status.name, gain=run.trace["value"][-1] / run.trace["value"][0])


def example():
    path = ROOT / "examples" / "sharded.py"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run, noisy, clean = runpy.run_path(str(path))["main"](steps=100, total=32)
    tell("example", printed=printed.getvalue(), noisy=noisy, clean=clean, x=spec(run.x))


QUICK = (
    *(trajectories, communication, checkpoints, layouts, checksums, refusals, documents, example),
    parameters,
)
SLOW = (other_methods, on_batches, more_communication, estimates_and_failures)

if __name__ == "__main__":
    for check in QUICK if sys.argv[2] == "quick" else SLOW:
        check()
