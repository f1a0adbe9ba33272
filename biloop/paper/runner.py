"""From names of targets to a folder: results, figures and REPRODUCTION.md."""

import csv
import difflib
import io
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

import biloop
from biloop.paper.reports.document import document
from biloop.paper.section import Provenance, Section
from biloop.paper.target import Options, Outcome, Target
from biloop.paper.targets import TARGETS
from biloop.paper.work import SILENT, Listener, Work, write_text

ALL = "all"
DPI = 100
DOCUMENT = "REPRODUCTION.md"


def choose(names: Sequence[str]) -> list[Target[Any]]:
    """The targets with these names, each once and in the order of the paper."""
    for name in names:
        if name not in TARGETS and name != ALL:
            near = difflib.get_close_matches(name, [*TARGETS, ALL], n=1, cutoff=0.0)
            raise ValueError(
                f"there is no target {name!r}; did you mean {near[0]!r}? "
                f"The targets are {', '.join(TARGETS)} and {ALL}."
            )
    return [target for name, target in TARGETS.items() if name in names or ALL in names]


def reproduce(
    names: Sequence[str],
    folder: Path,
    options: Options,
    command: str,
    listener: Listener = SILENT,
) -> dict[str, Section]:
    """Run targets and write what they found into the folder; the sections by name.

    Whatever cannot work is said before the first run. The document is written anew after each
    target, from all that the folder holds.
    """
    targets = choose(names)
    _check_drawing()
    _check_folder(folder)
    sections: dict[str, Section] = {}
    with double_precision():
        for target in targets:
            _prepare(target, options, listener)
        for target in targets:
            work = Work(folder, target.name, listener)
            outcome = target.report(target.run(options, work))
            section = _section(target, outcome)
            provenance = _provenance(command, options.quick, outcome.seeds, work.seconds / 60)
            _write(folder, section, outcome, provenance)
            sections[target.name] = section
    return sections


def _prepare(target: Target[Any], options: Options, listener: Listener) -> None:
    said, began = f"{target.name}: looking for what it needs", time.perf_counter()
    listener.started(said)
    target.prepare(options)
    listener.finished(said, time.perf_counter() - began, kept=False)


@contextmanager
def double_precision() -> Iterator[None]:
    """Tables and the theory need float64; arrays that are float32 stay so."""
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _check_drawing() -> None:
    if find_spec("matplotlib") is None:
        raise ImportError("the figures need matplotlib: pip install 'biloop[report]'")


def _check_folder(folder: Path) -> None:
    """Make the folder and try to write into it."""
    probe = folder / f".probe.{os.getpid()}"
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ValueError(f"cannot write into the folder {folder}: {error.strerror}") from error


def _section(target: Target[Any], outcome: Outcome) -> Section:
    return Section(
        target=target.name,
        title=target.title,
        method=outcome.method,
        claims=outcome.claims,
        tables=outcome.tables,
        pictures=tuple(picture for picture, _ in outcome.drawings),
        results=outcome.results,
    )


def _provenance(command: str, quick: bool, seeds: tuple[int, ...], minutes: float) -> Provenance:
    versions = {"Python": platform.python_version(), "biloop": biloop.__version__}
    versions |= {name: version(name) for name in ("jax", "equinox", "optax", "numpy")}
    device = jax.devices()[0]
    kind = f"{os.cpu_count()} CPU cores" if device.platform == "cpu" else device.device_kind
    return Provenance(
        command=command,
        versions=versions,
        machine=f"{platform.system()} {platform.machine()}, {kind}",
        seeds=seeds,
        quick=quick,
        minutes=minutes,
        date=date.today().isoformat(),
    )


def _write(folder: Path, section: Section, outcome: Outcome, provenance: Provenance) -> None:
    for picture, drawing in outcome.drawings:
        drawing.savefig(folder / "figures" / f"{picture.name}.png", dpi=DPI)
        drawing.savefig(folder / "figures" / f"{picture.name}.svg", metadata={"Date": None})
    write_text(folder / f"{section.target}.csv", _as_csv(outcome.records))
    # The JSON comes last: the document is made of the sections that have one.
    content = {"section": section.as_dict(), "provenance": asdict(provenance)}
    write_text(folder / f"{section.target}.json", json.dumps(_plain(content), indent=1))
    write_text(folder / DOCUMENT, document(_sections(folder)))


def _sections(folder: Path) -> list[tuple[Section, Provenance]]:
    """What the folder holds, in the order of the paper."""
    found = []
    for name in TARGETS:
        path = folder / f"{name}.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            section = Section.from_dict(content["section"])
            provenance = content["provenance"]
            seeds = tuple(provenance["seeds"])
            found.append((section, Provenance(**(provenance | {"seeds": seeds}))))
    return found


def _as_csv(records: Sequence[Any]) -> str:
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Plain Python values for JSON, which has no ∞ and no NaN."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
