"""ijcnn1: the data of the neural network competition of IJCNN 2001, in LIBSVM's form."""

import os
from pathlib import Path

import numpy as np

from biloop.data.image_sets import VARIABLE
from biloop.data.libsvm import read_libsvm
from biloop.data.samples import Samples, Split

FEATURES = 22
SIZES = (49_990, 91_701)
"""Training and test samples."""
FOLDER = "ijcnn1"
NAMES = (("ijcnn1.trn", "ijcnn1"), ("ijcnn1.tst", "ijcnn1.t"))
"""Of the training and the test file; each with or without .bz2."""
SOURCE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html#ijcnn1"


def ijcnn1(
    folder: str | os.PathLike[str] | None = None, *, sizes: tuple[int, int] = SIZES
) -> Split:
    """States of a combustion engine: 49 990 and 91 701 samples of 22 features, a tenth positive.

    From ijcnn1.trn.bz2 and ijcnn1.tst.bz2 (or LIBSVM's ijcnn1.bz2 and ijcnn1.t.bz2, unpacked or
    not) in `folder`, or in that of BILOOP_DATA, or in a folder `ijcnn1` there. Labels are 0 and 1.
    `sizes` is for files that were cut.

    Prokhorov: IJCNN 2001 neural network competition. Features by Chang and Lin: IJCNN 2001
    challenge: generalization ability and text decoding.

    Parameters
    ----------
    folder : path, optional
        Where the files are.
    sizes : pair of int
        How many samples they must have.
    """
    named = folder if folder is not None else os.environ.get(VARIABLE)
    if not named:
        raise FileNotFoundError(
            f"ijcnn1 was not found: pass the folder of its files, or set {VARIABLE} to it. They "
            f"are at {SOURCE}."
        )
    top = Path(named).expanduser()
    train, test = (
        _samples(_path(top, names), rows) for names, rows in zip(NAMES, sizes, strict=True)
    )
    return Split(train, test)


def _path(top: Path, names: tuple[str, ...]) -> Path:
    places = [place / f"{name}{end}" for place in (top / FOLDER, top) for name in names
              for end in (".bz2", "")]  # fmt: skip
    for path in places:
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{top} has no {names[0]}.bz2, nor a folder {FOLDER} with it; the data are at {SOURCE}."
    )


def _samples(path: Path, rows: int) -> Samples:
    X, labels = read_libsvm(path, rows, FEATURES)
    if others := set(np.unique(labels)) - {-1.0, 1.0}:
        raise ValueError(f"{path} has the label {min(others):g}; those of ijcnn1 are -1 and 1.")
    return Samples(X, (labels > 0).astype(np.int32))
