"""Data: published sets, LIBSVM's text, splits, noise, and the page about them."""

import bz2
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop.data import fetch, image_sets
from biloop.data.libsvm import read_libsvm


def test_mnist_is_mnist(monkeypatch):
    """Only where it is in BILOOP_DATA or in the cache; known facts, among them the mean pixel."""
    pytest.importorskip("pooch", reason="pip install 'biloop[data]' to look into the cache")
    monkeypatch.setattr(fetch, "ways", lambda data: iter(()))
    try:
        train, test = bl.data.mnist()
    except FileNotFoundError as error:
        pytest.skip(f"{error} Or run biloop.data.mnist() once with a network.")
    assert train.X.shape == (60_000, 784)
    assert test.X.shape == (10_000, 784)
    assert train.X.dtype == np.float32
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(train.labels)[[1, 5]].tolist() == [6742, 5421]
    assert train.X.min() == 0
    assert train.X.max() == 1
    assert train.X.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert train.X.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)


def test_digits():
    pytest.importorskip("sklearn", reason="pip install 'biloop[data]' to test digits")
    X, labels = bl.data.digits()
    assert X.shape == (1797, 64)
    assert X.dtype == np.float32
    assert labels.dtype == np.int32
    assert (X.min(), X.max()) == (0, 1)
    assert np.all(np.round(X * 16) == X * 16)
    assert labels[:10].tolist() == list(range(10))


# LIBSVM's text and ijcnn1


def write_samples(path, X, labels, pack=bytes):
    """The format as LIBSVM has it: nonzero entries only, indices from 1."""
    lines = [
        f"{label:g} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row) if v != 0)
        for row, label in zip(X, labels, strict=True)
    ]
    path.write_bytes(pack("\n".join([*lines, ""]).encode()))
    return path


def random_samples(rows, features=22, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features)) * (rng.random((rows, features)) < 0.5)
    return X.astype(np.float32), rng.choice([-1.0, 1.0], rows)


@pytest.mark.parametrize("pack", [bytes, bz2.compress, gzip.compress])
def test_samples_are_read_as_they_were_written(tmp_path, pack):
    X, labels = random_samples(40)
    X[3] = 0  # a line of a label alone
    found, found_labels = read_libsvm(write_samples(tmp_path / "s", X, labels, pack), 40, 22)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(found_labels, labels)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 1:2\n1 1:3 1:4\n", "line 2: index 1 after 1 of 22"),
        ("1 1:2\n1 23:3\n", "line 2: index 23 after 0 of 22"),
        ("1 0:2\n1 2:3\n", "line 1: index 0 after 0 of 22"),
        ("1 1:2\n1 a:3\n", "line 2: invalid literal"),
        ("1 1:2\n1 3\n", "line 2: could not convert"),
        ("one 1:2\n1 2:3\n", "line 1: could not convert"),
        ("1 1:nan\n1 2:3\n", "not finite in line 1"),
        ("inf 1:1\n1 2:3\n", "not finite in line 1"),
        ("1 1:2\n", "is truncated: 1 of 2 samples"),
        ("", "is truncated: 0 of 2 samples"),
        ("1 1:2\n" * 3, "is too long: more than 2 samples"),
        ("1" * 5000, "line 1 has no end"),
    ],
)
def test_what_is_wrong_with_a_file_of_samples_is_one_sentence(tmp_path, text, words):
    for pack in (bytes, bz2.compress):
        (tmp_path / "s").write_bytes(pack(text.encode()))
        with pytest.raises(ValueError, match=words) as error:
            read_libsvm(tmp_path / "s", 2, 22)
        assert str(error.value).startswith(str(tmp_path / "s"))


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress])
def test_a_damaged_file_of_samples_is_told(tmp_path, pack):
    path = write_samples(tmp_path / "s", *random_samples(50), pack)
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(ValueError, match="is truncated or damaged"):
        read_libsvm(path, 50, 22)
    path.write_bytes(content[:200] + b"\x00\x07" * 50 + content[300:])
    with pytest.raises(ValueError, match="is truncated or damaged"):
        read_libsvm(path, 50, 22)


@pytest.mark.parametrize("names", [("ijcnn1.trn.bz2", "ijcnn1.tst.bz2"), ("ijcnn1", "ijcnn1.t")])
@pytest.mark.parametrize("inside", [".", "ijcnn1"])
def test_ijcnn1_is_found(tmp_path, monkeypatch, names, inside):
    place = tmp_path / inside
    place.mkdir(exist_ok=True)
    pack = bz2.compress if names[0].endswith("bz2") else bytes
    sets = [random_samples(rows, seed=rows) for rows in (30, 20)]
    for name, (X, labels) in zip(names, sets, strict=True):
        write_samples(place / name, X, labels, pack)
    monkeypatch.setenv("BILOOP_DATA", str(tmp_path))
    for given_ in (None, tmp_path):
        split = bl.data.ijcnn1(given_, sizes=(30, 20))
        for (X, labels), found in zip(sets, split, strict=True):
            np.testing.assert_array_equal(found.X, X)
            np.testing.assert_array_equal(found.labels, labels == 1)
            assert found.labels.dtype == np.int32
    with pytest.raises(ValueError, match="is truncated: 30 of 49990 samples"):
        bl.data.ijcnn1()


def test_ijcnn1_that_is_not_there_or_another_set_is_told(tmp_path, monkeypatch):
    monkeypatch.delenv("BILOOP_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set BILOOP_DATA to it\. They are at https://"):
        bl.data.ijcnn1()
    with pytest.raises(FileNotFoundError, match=r"has no ijcnn1\.trn\.bz2, nor a folder ijcnn1"):
        bl.data.ijcnn1(tmp_path)
    X, labels = random_samples(4)
    for name in ("ijcnn1.trn", "ijcnn1.tst"):
        write_samples(tmp_path / name, X, np.where(labels > 0, 2, -1))
    with pytest.raises(ValueError, match="has the label 2; those of ijcnn1 are -1 and 1"):
        bl.data.ijcnn1(tmp_path, sizes=(4, 4))


def test_ijcnn1_is_ijcnn1():
    """Only where it is in BILOOP_DATA; facts from its publication."""
    if "BILOOP_DATA" not in os.environ:
        pytest.skip("BILOOP_DATA is not set")
    try:
        train, test = bl.data.ijcnn1()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert (train.X.shape, test.X.shape) == ((49_990, 22), (91_701, 22))
    assert test.labels.mean() == pytest.approx(0.095, abs=5e-4)
    assert train.labels.mean() == pytest.approx(0.097, abs=1e-3)
    assert np.mean(train.X != 0) == pytest.approx(0.591, abs=5e-4)


# Splits, noise, bias


def numbered(n):
    """Samples whose only feature and whose label is their number."""
    return bl.data.Samples(np.arange(n, dtype=np.float32)[:, None], np.arange(n, dtype=np.int32))


@given(sizes=st.lists(st.integers(0, 9), max_size=5), seed=st.integers(0, 2**32))
def test_parts_are_disjoint(sizes, seed):
    parts = bl.data.split(numbered(50), sizes, seed)
    assert [len(part.labels) for part in parts] == sizes
    drawn = np.concatenate([np.zeros(0, int), *(part.labels for part in parts)])
    assert len(set(drawn.tolist())) == sum(sizes)
    for part in parts:
        np.testing.assert_array_equal(part.X[:, 0], part.labels)


def test_parts_depend_on_the_seed_alone():
    first, again, other = (bl.data.split(numbered(100), [40, 60], seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[0].labels, again[0].labels)
    assert (first[0].labels != other[0].labels).any()
    assert sorted([*first[0].labels, *first[1].labels]) == list(range(100))
    assert first[0].X.dtype == np.float32


def test_parts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"\[30, 21\] add up to 51, but there are 50"):
        bl.data.split(numbered(50), [30, 21], 0)
    with pytest.raises(ValueError, match="negative"):
        bl.data.split(numbered(50), [-1, 21], 0)
    with pytest.raises(ValueError, match="49 and 50"):
        bl.data.split(bl.data.Samples(np.zeros((49, 2)), np.zeros(50, int)), [3], 0)


@given(n=st.integers(0, 60), fraction=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_exactly_the_fraction_is_drawn_anew(n, fraction, seed):
    labels = np.arange(n) % 10
    noisy, mask = bl.data.noisy_labels(labels, fraction, 10, seed)
    assert noisy.dtype == np.int32
    assert mask.dtype == bool
    assert mask.sum() == round(fraction * n)
    np.testing.assert_array_equal(noisy[~mask], labels[~mask])


def test_new_labels_are_uniform_over_all_classes():
    labels = np.full(100_000, 3, np.int32)
    noisy, mask = bl.data.noisy_labels(labels, 0.5, 10, seed=0)
    assert np.all(labels == 3)  # the labels passed are not changed
    counts = np.bincount(noisy[mask], minlength=10)
    # χ² with 9 degrees of freedom is below 27.9 with probability 0.999.
    assert np.sum((counts - 5000) ** 2 / 5000) < 27.9
    assert counts[3] == pytest.approx(5000, abs=250)  # a tenth stays right by chance
    halves = mask.reshape(2, -1).sum(axis=1)
    assert abs(halves[0] - halves[1]) < 700  # and the choice does not prefer a place


def test_noise_is_the_same_at_every_visit():
    labels = np.arange(100) % 10
    first, again, other = (bl.data.noisy_labels(labels, 0.3, 10, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert (first[1] != other[1]).any()


@pytest.mark.parametrize(
    ("labels", "fraction", "words"),
    [
        ([0, 1], 1.1, "between 0 and 1, got 1.1"),
        ([0, 1], float("nan"), "between 0 and 1, got nan"),
        ([0, 10], 0.1, r"in 0, …, 9, got 10"),
        ([-1, 3], 0.1, r"in 0, …, 9, got -1"),
        ([0.5, 3], 0.1, "vector of integers"),
        ([[0], [1]], 0.1, r"got shape \(2, 1\)"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(labels, fraction, words):
    with pytest.raises(ValueError, match=words):
        bl.data.noisy_labels(np.array(labels), fraction, 10, 0)


def test_the_bias_is_a_column_of_ones():
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    extended = bl.data.with_bias(X)
    assert extended.dtype == np.float32
    np.testing.assert_array_equal(extended, [[0, 1, 2, 1], [3, 4, 5, 1]])
    with pytest.raises(ValueError, match=r"matrix .* \(3,\)"):
        bl.data.with_bias(X[0])


def test_the_page_about_data_shows_what_works(monkeypatch, tiny, arrays):
    pytest.importorskip("sklearn", reason="pip install 'biloop[data]' to test digits")
    monkeypatch.setattr(bl.data, "mnist", lambda: image_sets.to_split(arrays))
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    shown = {}
    exec(page.split("```python\n")[1].split("```")[0], shown)
    assert shown["X"].shape == (1000, 65)
    assert shown["redrawn"].sum() == 300
    wrong = np.mean(shown["labels"] != shown["training"].labels)
    assert wrong == pytest.approx(0.27, abs=0.02)
