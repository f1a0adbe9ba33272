"""The table of a sweep: labels, selections, the best cell, pandas."""

import time

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop.sweeps.axes import Axis, make_axes

from .helpers import COLUMNS
from .sweeping import PAIRS, STEPS, X, sweep


@pytest.fixture(scope="module")
def swept():
    return sweep()


def fake_run(value, status=bl.Status.COMPLETED):
    columns = {name: np.array([0, value]) for name in COLUMNS}
    trace = bl.Trace(columns)
    return bl.Run(value, 0, 0, value, status, "", trace.cost, trace, 2, 1.0, 0.0)


labels = st.lists(st.integers(-99, 99) | st.text(max_size=3), min_size=1, max_size=3, unique=True)


@given(st.lists(labels, max_size=3), st.data())
def test_labels_and_selections_agree_with_the_arrays(axes_labels, data):
    axes = tuple(
        Axis((f"a{n}",), tuple((v,) for v in values), tuple((v,) for v in values))
        for n, values in enumerate(axes_labels)
    )
    shape = tuple(map(len, axes_labels))
    size = int(np.prod(shape))
    values = data.draw(st.permutations(range(size)))
    whole = bl.Sweep(axes, tuple(map(fake_run, values)))
    array = np.array(values).reshape(shape)
    np.testing.assert_array_equal(whole.last("value"), array)
    np.testing.assert_array_equal(whole["value"][..., 1], array)
    assert len(whole) == size

    place = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    asked = {f"a{n}": axes_labels[n][i] for n, i in enumerate(place)}
    assert whole.run(asked).x == array[place]
    assert whole.labels[values.index(array[place])] == asked
    best = np.unravel_index(np.argmin(array), shape)
    assert whole.best() == {f"a{n}": axes_labels[n][i] for n, i in enumerate(best)}

    if shape:
        n = data.draw(st.integers(0, len(shape) - 1))
        one = whole.sel({f"a{n}": axes_labels[n][place[n]]})
        np.testing.assert_array_equal(one.last("value"), np.take(array, place[n], axis=n))
        assert list(one.axes) == [f"a{m}" for m in range(len(shape)) if m != n]
        assert all(label[f"a{n}"] == axes_labels[n][place[n]] for label in one.labels)
        kept = sorted(data.draw(st.sets(st.integers(0, shape[n] - 1), min_size=1)))
        some = whole.sel({f"a{n}": [axes_labels[n][i] for i in kept]})
        np.testing.assert_array_equal(some.last("value"), np.take(array, kept, axis=n))
        mean = whole.best(mean=f"a{n}")
        smallest = np.mean(whole.sel(mean).last("value"))
        assert smallest == pytest.approx(array.mean(axis=n).min())


def test_labels_are_the_values_or_their_names_or_positions():
    def axis(values):
        return [label for (label,) in make_axes({"outer": values}, None)[0].labels]

    assert axis([0.1, 2, "auto"]) == [0.1, 2, "auto"]
    assert axis(np.array([0.5, 2.0])) == axis(jnp.array([0.5, 2.0])) == [0.5, 2.0]
    assert axis([0.1, optax.adam(0.1)]) == axis([X, X]) == [0, 1]
    assert axis({"plain": 0.1, "adam": optax.adam(0.1)}) == ["plain", "adam"]


def test_selection_of_paths_that_vary_together(swept):
    part = swept.sel({"linear.step_size": 0.1})
    assert part.labels[0] == {
        "inner.step_size": 0.02, "linear.step_size": 0.1, "outer": 0.05, "seed": 0,
    }  # fmt: skip
    assert swept.axes["inner.step_size, linear.step_size"] == PAIRS
    assert part.runs == swept.runs[4:]
    for wanted, sentence in [
        ({"inner.steps": 1}, "no axis 'inner.steps'; there are inner.step_size"),
        ({"outer": 7}, r"'outer' has no 7; there are \[0.05, 0.01\]"),
    ]:
        with pytest.raises(KeyError, match=sentence):
            swept.sel(wanted)
    with pytest.raises(KeyError, match="2 runs have these labels; also say seed"):
        swept.run({"outer": 0.05, "inner.step_size": 0.1})
    with pytest.raises(KeyError, match="no axis 'seeds'"):
        swept.best(mean="seeds")


def test_best_leaves_out_what_failed():
    axis = Axis(("a",), ((0,), (1,)), ((0,), (1,)))
    seed = Axis(("seed",), ((0,), (1,)), ((0,), (1,)))
    failed = fake_run(0, bl.Status.DIVERGED)
    runs = (failed, fake_run(5), fake_run(6), fake_run(7))
    assert bl.Sweep((axis, seed), runs).best() == {"a": 0, "seed": 1}
    assert bl.Sweep((axis, seed), runs).best(mean="seed") == {"a": 1}
    with pytest.raises(ValueError, match="every one failed"):
        bl.Sweep((seed,), (failed, failed)).best()


def test_lanes_share_the_time_that_passes():
    """All eight together take no longer than a clock beside them says."""
    sweep(steps=2000)
    start = time.perf_counter()
    seconds = sweep(steps=2000).seconds
    assert 0 < seconds < time.perf_counter() - start


def test_lanes_share_the_time_of_their_compilation():
    fresh = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2))
    method = bl.schemes.no_loop(inner_step=0.1, linear_step=0.1)
    over = {"outer": np.linspace(0.1, 0.2, 8)}
    start = time.perf_counter()
    swept = bl.sweep(fresh, jnp.ones(2), jnp.zeros(2), method, over=over, steps=3)
    assert 0 < swept.compile_seconds < time.perf_counter() - start
    assert swept.compile_seconds == pytest.approx(8 * swept.runs[0].compile_seconds)


def test_table(swept):
    frame = swept.to_pandas()
    assert list(frame.columns[:4]) == ["inner.step_size", "linear.step_size", "outer", "seed"]
    assert len(frame) == len(swept) == 8
    last = frame.iloc[-1]
    run = swept.run({"inner.step_size": 0.02, "outer": 0.01, "seed": 1})
    assert last["value"] == run.trace["value"][-1]
    assert (last["status"], last["steps"]) == ("COMPLETED", STEPS)
    assert (last["gradients"], last["products"]) == run.cost
    assert frame["seconds"].sum() == pytest.approx(swept.seconds)
    assert run.trace.label == "inner.step_size=0.02, linear.step_size=0.1, outer=0.01, seed=1"
    assert "\n" not in repr(swept)
    assert "2 outer × 2 seed: 8 COMPLETED" in repr(swept)
