"""A data set of 30 and 10 images, and a cache that is empty."""

import numpy as np
import pytest

from biloop.data import fetch
from biloop.data.image_sets import ImageSet

from .image_files import (
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    encode,
    sha256,
    zipped,
)


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
