"""Idx files: what is written is read, and what is wrong with a file is one sentence."""

import dataclasses
import gzip
import io
import os
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from biloop.data import image_sets, images
from biloop.data.idx import decode, encode, read_idx, write_idx

from .image_files import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    assert_is,
    changed,
    put,
    sha256,
    zipped,
)

BYTES = arrays_of.arrays(np.uint8, arrays_of.array_shapes(max_dims=4, min_side=0, max_side=5))


def test_the_format_is_that_of_the_specification():
    """The header as LeCun, Cortes and Burges describe it: magic 0x803 and 0x801, big-endian."""
    images_header = bytes.fromhex("00000803 00000002 0000001c 0000001c")
    assert encode(np.zeros((2, 28, 28), np.uint8)) == images_header + bytes(2 * 784)
    assert encode(np.array([7, 255], np.uint8)) == bytes.fromhex("00000801 00000002 07 ff")
    matrix = decode(io.BytesIO(bytes.fromhex("00000802 00000002 00000003 01 02 03 04 05 06")))
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
        decode(io.BytesIO(content[:end]))
    with pytest.raises(ValueError, match="too long"):
        decode(io.BytesIO(content + b"\x00"))


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


def test_nothing_that_lies_where_a_file_is_written_first_is_followed(tmp_path, monkeypatch):
    """The name of the temporary file cannot be foreseen, so that no link can wait there."""
    names = []
    replace = os.replace
    monkeypatch.setattr(
        "biloop.data.idx.os.replace", lambda a, b: (names.append(a), replace(a, b))[1]
    )
    for _ in range(2):
        write_idx(tmp_path / "array", np.arange(5, dtype=np.uint8))
    assert len(set(names)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["array"]


# What unpacks to more than it should

MEGABYTES = 64


def bomb(header):
    """A small gzip file that unpacks to a header and many zeros."""
    return zipped(header + bytes(MEGABYTES * 2**20))


def peak(function):
    """The sentence with which it is refused, and the bytes that this took."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:
            function()
        return str(error.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (encode(np.zeros(3, np.uint8)), "is too long: its header promises 3 bytes, more follow"),
        (b"<!DOCTYPE html>", "is no idx file of bytes: it begins with 0x3c21444f"),
        (bytes.fromhex("000008ff"), "is too long: its header promises 0 bytes, more follow"),
    ],
    ids=["short", "no header", "zeros"],
)
def test_no_more_is_unpacked_than_the_header_promises(tmp_path, header, words):
    path = tmp_path / "array.gz"
    path.write_bytes(bomb(header))
    sentence, used = peak(lambda: read_idx(path))
    assert sentence == f"{path} {words}" or sentence.startswith(f"{path} {words}")
    assert used < 2**20


def test_a_header_that_promises_another_shape_is_not_believed(tmp_path, tiny, arrays):
    """A file of the data set whose shape is known: nothing behind the header is unpacked."""
    path = put(tmp_path, arrays) / TRAIN_IMAGES
    path.write_bytes(bomb(bytes.fromhex("00000801 04000000")))
    sentence, used = peak(lambda: images.load(tiny, tmp_path))
    assert "holds an array of shape (67108864,) instead of (30, 28, 28)" in sentence
    assert used < 2**20


# A folder with the four files


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("pack", [bytes, zipped])
def test_files_may_be_gzipped_or_not_whatever_their_name(tmp_path, tiny, arrays, ending, pack):
    assert_is(images.load(tiny, put(tmp_path, arrays, pack, ending)), arrays)


def test_files_that_were_packed_again_are_the_same(tmp_path, tiny, arrays):
    put(tmp_path, arrays, partial(gzip.compress, compresslevel=1), ".gz")
    assert sha256((tmp_path / f"{TRAIN_IMAGES}.gz").read_bytes()) != tiny.archives[TRAIN_IMAGES]
    assert_is(images.load(tiny, tmp_path), arrays)


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
