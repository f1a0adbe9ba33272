"""A data set of 30 and 10 images in four idx files, and folders to put them into."""

import gzip
import hashlib

import numpy as np

from biloop.data.idx import encode
from biloop.data.image_sets import FILES

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = FILES


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def zipped(content):
    return gzip.compress(content, mtime=0)


def changed(array, index, value):
    copy = array.copy()
    copy[index] = value
    return copy


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
