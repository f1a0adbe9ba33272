"""Data larger than memory: streams read by a thread, equal to arrays in memory to the bit."""

import dataclasses
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .common import regression

S = bl.schemes
METHODS = {
    "soba": S.soba((4, 5), key=3),
    "uniform": bl.SingleLoop(bl.Samples(bl.Uniform(4), bl.Uniform(5)), 0.1, 0.1),
    "ma_soba": S.ma_soba((4, 5)),
    "saba": S.saba((4, 5)),
    "fsla": S.fsla((4, 5)),
    "stocbio": S.stocbio((4, 5), N=3, Q=2),
    "bsa": S.bsa((4, 5)),  # another number of draws in each step, partly by chance
    "f2sa": S.f2sa((4, 5), T=2),
    "pzobo": S.pzobo((4, 5), N=2),
}


@pytest.fixture(scope="module")
def made():
    problem, x, y = regression(n=26, m=21)  # batches of 4 and 5 do not divide them
    arrays = [tuple(map(np.asarray, data)) for data in (problem.inner_data, problem.outer_data)]
    streams = [bl.Stream.rows(*data) for data in arrays]
    return problem, dataclasses.replace(
        problem, inner_data=streams[0], outer_data=streams[1]
    ), x, y  # fmt: skip


def batches_of(problem, size=4):
    X, t = map(np.asarray, problem.inner_data)
    return [(X[i : i + size], t[i : i + size]) for i in range(0, len(X) - size + 1, size)]


def same(a, b):
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.y, b.y)
    for name in a.trace.columns:
        if name != "seconds":
            np.testing.assert_array_equal(a.trace[name], b.trace[name])


QUICK = ("saba", "bsa")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS]
)
def test_rows_from_elsewhere_give_the_bits_of_rows_in_memory(made, name):
    problem, streamed, x, y = made
    here = bl.solve(problem, x, y, METHODS[name], outer=0.1, steps=70)
    there = bl.solve(streamed, x, y, METHODS[name], outer=0.1, steps=70)
    same(here, there)
    assert there.cost == here.cost
    assert "rows of the outer stream" in there.message


def test_only_the_rows_that_are_drawn_are_read_and_only_once(made):
    problem, _, x, y = made
    read = []

    class Disk:
        def __init__(self, array):
            self.array = np.asarray(array)

        def __len__(self):
            return len(self.array)

        def __getitem__(self, rows):
            read.append(rows)
            return self.array[rows]

    disk = bl.Stream.rows(*map(Disk, problem.inner_data))
    far = dataclasses.replace(problem, inner_data=disk)
    run = bl.solve(far, x, y, METHODS["soba"], outer=0.1, steps=20)
    same(run, bl.solve(problem, x, y, METHODS["soba"], outer=0.1, steps=20))
    assert run.value == pytest.approx(float(problem.outer(run.x, run.y, *problem.outer_data)))
    assert all(isinstance(rows, slice) and rows.stop - rows.start == 4 for rows in read)


def test_a_function_of_t_is_read_in_its_own_order(made):
    problem, _, x, y = made
    given, asked = batches_of(problem), []

    def batches(t):
        asked.append(t)
        while True:
            yield given[t % len(given)]
            t += 1

    stream = dataclasses.replace(problem, inner_data=bl.Stream(batches))
    method = S.soba((4, None), 0.1, 0.1)
    run = bl.solve(stream, x, y, method, outer=0.1, steps=30)
    by_hand = np.asarray(y)
    xs = np.asarray(x)
    v = np.zeros_like(by_hand)
    V, u = map(np.asarray, problem.outer_data)
    for k in range(30):
        X, t = given[k % len(given)]
        curved = X.T @ (X @ v) / 4 + np.exp(xs) * v
        slope = V.T @ (V @ by_hand - u) / len(u)
        h = 0.1 * xs - np.exp(xs) * by_hand * v
        step = X.T @ (X @ by_hand - t) / 4 + np.exp(xs) * by_hand
        xs, by_hand, v = xs - 0.1 * h, by_hand - 0.1 * step, v - 0.1 * (curved - slope)
    np.testing.assert_allclose(run.x, xs, rtol=1e-12)
    np.testing.assert_allclose(run.y, by_hand, rtol=1e-12)
    assert asked == [0]
    # Nobody knows its length, so that what it costs is in rows.
    assert run.cost == (30 * 4 + 30 * 2, 30 * 8)


@pytest.mark.parametrize("name", ["saba", pytest.param("stocbio", marks=pytest.mark.slow)])
def test_resumed_to_the_same_bits_where_batches_can_be_found_again(made, tmp_path, name):
    _, streamed, x, y = made
    once = bl.solve(streamed, x, y, METHODS[name], outer=0.1, steps=60)
    for steps in (7, 33, 60):
        run = bl.solve(
            streamed, x, y, METHODS[name], outer=0.1, steps=steps, checkpoint=tmp_path, every=5
        )
    same(once, run)


def test_a_function_of_t_is_asked_for_where_a_run_was(made, tmp_path):
    problem, _, x, y = made
    given, asked = batches_of(problem), []

    def batches(t):
        asked.append(t)
        return (given[i % len(given)] for i in range(t, 10**6))

    stream = dataclasses.replace(problem, inner_data=bl.Stream(batches))
    method = S.soba((4, 5), 0.1, 0.1)
    once = bl.solve(stream, x, y, method, outer=0.1, steps=40)
    for steps in (25, 40):
        run = bl.solve(stream, x, y, method, outer=0.1, steps=steps, checkpoint=tmp_path)
    same(once, run)
    assert 25 in asked


def test_an_iterator_cannot_be_put_back(made, tmp_path):
    problem, _, x, y = made
    for source in (iter(batches_of(problem)), batches_of(problem)):
        stream = dataclasses.replace(problem, inner_data=bl.Stream(source))
        with pytest.raises(ValueError, match=r"cannot be put back to where it was.*function of t"):
            bl.solve(stream, x, y, S.soba((4, 5)), outer=0.1, steps=9, checkpoint=tmp_path)


def test_an_iterator_ends_and_an_iterable_begins_again(made):
    problem, _, x, y = made
    given, method = batches_of(problem), S.soba((4, 5), 0.1, 0.1)
    before = threading.active_count()
    stream = dataclasses.replace(problem, inner_data=bl.Stream(iter(given)))
    run = bl.solve(stream, x, y, method, outer=0.1, steps=100)
    assert run.status is bl.Status.STOPPED
    assert run.steps == len(given) == 6
    assert "The inner stream ended after 6 batches." in run.message
    stream = dataclasses.replace(problem, inner_data=bl.Stream(given))
    again = bl.solve(stream, x, y, method, outer=0.1, steps=100)
    assert again.status is bl.Status.COMPLETED
    np.testing.assert_array_equal(again.trace["batch_value"][:6], run.trace["batch_value"])
    assert threading.active_count() == before


def test_the_time_of_a_run_has_the_waiting_for_batches_in_it(made):
    """Otherwise a slow disk would let it go on for many times `seconds`."""
    problem, _, x, y = made
    given, there = batches_of(problem), threading.Event()

    def slow():
        for t in range(21):
            if t == 20:
                there.wait(5)
                time.sleep(0.3)
            yield given[t % len(given)]

    def callback(p):
        if p.k == 20:
            there.set()

    stream = dataclasses.replace(problem, inner_data=bl.Stream(slow()))
    method = S.soba((4, 5), 0.1, 0.1)
    run = bl.solve(stream, x, y, method, outer=0.1, steps=21, callback=callback)
    assert run.steps == 21
    assert run.seconds >= 0.3


def spoiled(problem, how):
    given = batches_of(problem)
    for t in range(50):
        X, y = given[t % len(given)]
        if t < 30:
            yield X, y
        elif how == "error":
            raise OSError("disk on fire")
        elif how == "short":
            yield X[:3], y[:3]
        elif how == "dtype":
            yield X.astype(np.float32), y
        elif how == "dict":
            yield {"X": X, "y": y}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("error", "OSError: disk on fire"),
        ("short", r"it has float64\[3, 3\], float64\[3\], and the first one had float64\[4, 3\]"),
        ("dtype", r"it has float32\[4, 3\], float64\[4\]"),
        ("dict", "a batch must be a tuple of arrays, .* got a dict of X, y"),
    ],
)
def test_what_goes_wrong_in_the_thread_is_told_with_what_was_done_before(made, how, words):
    problem, _, x, y = made
    stream = dataclasses.replace(problem, inner_data=bl.Stream(spoiled(problem, how)))
    method = S.soba((4, 5), 0.1, 0.1)
    run = bl.solve(stream, x, y, method, outer=0.1, steps=100)
    assert run.status is bl.Status.STREAM_FAILED
    assert run.steps == 30
    assert np.all(np.isfinite(run.x))
    with pytest.raises(AssertionError, match=f"Batch 30 of the inner stream .*{words}"):
        raise AssertionError(run.message)
    stream = dataclasses.replace(problem, inner_data=bl.Stream(spoiled(problem, how)))
    with pytest.raises(bl.RunFailed, match="Batch 30"):
        bl.solve(stream, x, y, method, outer=0.1, steps=100, throw=True)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": S.srba((4, 5))}, TypeError, "Recursive.* sees all rows now and then"),
        ({"method": S.mrbo((4, 5))}, TypeError, "in another order than one after the other"),
        ({"method": None}, TypeError, "AID sees all samples in every step"),
        ({"method": S.soba((None, 5)), "bare": True}, ValueError, "give batch=4"),
        ({"method": S.soba((8, 5)), "bare": True}, ValueError, "draws 8 rows, .* has 4"),
        ({"method": S.soba((40, 5))}, ValueError, "A batch of 40 is larger than inner_data"),
        ({"measure": 10}, ValueError, "measure=10 looks at all samples"),
        ({"measure": 10, "epsilon": 1e-3}, ValueError, "measure=10 looks at all samples"),
        ({"method": S.saba((4, 5)), "bare": True}, TypeError, "number of samples must be known"),
    ],
)
def test_what_needs_more_than_the_next_batch_is_refused(made, change, error, words):
    problem, streamed, x, y = made
    given = {"method": S.soba((4, 5)), "steps": 10} | change
    if given.pop("bare", False):
        streamed = dataclasses.replace(problem, inner_data=bl.Stream(batches_of(problem)))
    outer = "auto" if given["method"] is None else 0.1
    with pytest.raises(error, match=words):
        bl.solve(streamed, x, y, given.pop("method"), outer=outer, **given)


def test_a_stream_is_not_taken_for_arrays(made):
    problem, streamed, x, y = made
    for call in (
        lambda: bl.sweep(streamed, x, y, S.soba((4, 5)), over={"outer": [0.1]}, steps=3),
        lambda: bl.compare(streamed, x, y),
        lambda: streamed.batch([0], [0]),
        lambda: bl.estimate.constants(streamed, x, y),
    ):
        with pytest.raises((TypeError, ValueError), match="data are a stream"):
            call()
    for source in (3, "file", {"X": 1}):
        with pytest.raises(TypeError, match="A stream is made from"):
            bl.Stream(source)
    for arrays in ((), (np.zeros(3), np.zeros(4)), (np.zeros((0, 2)),)):
        with pytest.raises(ValueError, match="equally many rows"):
            bl.Stream.rows(*arrays)
    empty = dataclasses.replace(problem, inner_data=bl.Stream([]))
    with pytest.raises(ValueError, match="inner stream has no batches at all"):
        bl.solve(empty, x, y, S.soba((4, 5)), outer=0.1, steps=3)
    uneven = dataclasses.replace(problem, inner_data=bl.Stream([(np.zeros(3), np.zeros(4))]))
    with pytest.raises(RuntimeError, match="equally many rows"):
        bl.solve(uneven, x, y, S.soba((4, 5)), outer=0.1, steps=3)


def test_a_sum_is_refused_on_a_stream_too(made):
    problem, _, x, y = made
    sums = dataclasses.replace(
        problem,
        inner=lambda x, y, X, t: jnp.sum((X @ y - t) ** 2),
        inner_data=bl.Stream(batches_of(problem)),
    )
    with pytest.raises(ValueError, match="inner must be a mean over its samples"):
        bl.solve(sums, x, y, S.soba((4, 5)), outer=0.1, steps=3)


def test_memmaps_do_not_stay_in_memory(made, tmp_path):
    problem, _, x, y = made
    X, t = map(np.asarray, problem.inner_data)
    maps = []
    for name, array in (("X", X), ("t", t)):
        np.save(tmp_path / f"{name}.npy", array)
        maps.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    stream = dataclasses.replace(problem, inner_data=bl.Stream.rows(*maps))
    run = bl.solve(stream, x, y, METHODS["soba"], outer=0.1, steps=50)
    same(run, bl.solve(problem, x, y, METHODS["soba"], outer=0.1, steps=50))
