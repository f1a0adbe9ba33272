"""Images as samples: MNIST, Fashion-MNIST and the digits that come with scikit-learn."""

import os
from pathlib import Path

import numpy as np

from biloop.data import fetch
from biloop.data.image_sets import (
    FASHION_MNIST,
    MNIST,
    VARIABLE,
    ImageSet,
    locate,
    read,
    to_split,
)
from biloop.data.samples import Samples, Split


def mnist(folder: str | os.PathLike[str] | None = None) -> Split:
    """Handwritten digits: 60 000 and 10 000 images of 28 × 28 pixels in [0, 1], ten classes.

    From the four idx files in `folder`, or in that of BILOOP_DATA, or in the user's cache; what is
    in none of them is downloaded. All are checked against the SHA-256 of what was published.

    LeCun, Cortes and Burges: The MNIST database of handwritten digits.

    Parameters
    ----------
    folder : path, optional
        Where the four files are.
    """
    return load(MNIST, folder)


def fashion_mnist(folder: str | os.PathLike[str] | None = None) -> Split:
    """Articles of clothing in the format of MNIST, found in the same places.

    Xiao, Rasul and Vollgraf: Fashion-MNIST, https://arxiv.org/abs/1708.07747.

    Parameters
    ----------
    folder : path, optional
        Where the four files are.
    """
    return load(FASHION_MNIST, folder)


def digits() -> Samples:
    """Scikit-learn's 1797 handwritten digits of 8 × 8 pixels in [0, 1]; nothing is downloaded.

    Examples
    --------
    >>> bl.data.digits().X.shape
    (1797, 64)
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError("digits needs scikit-learn: pip install 'biloop[data]'.") from None
    X, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    return Samples((X / 16).astype(np.float32), labels.astype(np.int32))


def load(data: ImageSet, folder: str | os.PathLike[str] | None) -> Split:
    """From the folder, and only there; else from BILOOP_DATA; else from the cache, once fetched."""
    if folder is not None:
        named = Path(folder).expanduser()
        return to_split(read(data, locate(data, named) or named))
    tried = f"{VARIABLE} (not set)"
    if variable := os.environ.get(VARIABLE):
        place = locate(data, Path(variable).expanduser())
        if place is not None:
            return to_split(read(data, place))
        tried = f"{VARIABLE}={variable} (none of its files)"  # it may hold other data sets only
    return to_split(fetch.cached(data, [tried]))
