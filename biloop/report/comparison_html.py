"""The report of a comparison: one HTML file that needs no network and no server.

The payload goes into the page as JSON, and the scripts of `assets` draw it with text nodes and SVG;
no text of the user is ever read as markup. What the page may load is nothing: its own policy
forbids it.
"""

import html
import json
import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, cast

import numpy as np

from biloop.comparison.payload import ComparisonPayload, SeedPayload

PAGE = "comparison.html"
STYLES = ("page.css", "controls.css", "charts.css", "tables.css", "print.css")
SCRIPTS = (  # in order of use
    "elements.js",
    "payload.js",
    "looks.js",
    "scales.js",
    "line_chart.js",
    "scheme_table.js",
    "run_charts.js",
    "comparison.js",
)
BUCKETS = 60  # of outer steps, for each of which a curve keeps its extremes
DIGITS = 6  # of numbers in curves
DRAWN = ("value", "grad_norm2", "inner_residual", "linear_residual")


def write(path: str | os.PathLike[str], payload: ComparisonPayload) -> Path:
    """Write the report as one self-contained file."""
    Path(path).write_text(render(payload), encoding="utf-8", errors="replace")
    return Path(path)


def render(payload: ComparisonPayload) -> str:
    """The page as text. NaN and infinity become null, and long curves are thinned."""
    schemes = [
        {**scheme, "seeds": [thinned(seed) for seed in scheme["seeds"]]}
        for scheme in payload["schemes"]
    ]
    data = json.dumps(
        _finite({**payload, "schemes": schemes}),
        allow_nan=False,
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return Template(_asset(PAGE)).substitute(
        title=html.escape(payload["title"]),
        style="\n".join(map(_asset, STYLES)),
        data=data.replace("<", "\\u003c"),  # no text can close the script element
        script="\n".join(map(_asset, SCRIPTS)),
    )


def thinned(seed: SeedPayload) -> dict[str, list[Any]]:
    """The first and the last row, and in each bucket of k the extremes of each drawn column.

    A curve looks the same, spikes included, with a number of rows that does not grow with the run.
    """
    k = np.asarray(seed["k"], float)
    drawn = [np.array(seed[name], dtype=float) for name in DRAWN]  # None becomes NaN
    kept = {0, len(k) - 1} if len(k) else set()
    for rows in _buckets(k):
        for column in drawn:
            there = rows[np.isfinite(column[rows])]
            if len(there):
                kept |= {int(there[np.argmin(column[there])]), int(there[np.argmax(column[there])])}
    columns = cast(dict[str, list[Any]], seed)
    return {name: [_rounded(column[j]) for j in sorted(kept)] for name, column in columns.items()}


def _buckets(k: np.ndarray) -> Sequence[np.ndarray]:
    """Rows together: half of the edges evenly in k, half in its logarithm."""
    if len(k) <= BUCKETS:
        return [np.array([j]) for j in range(len(k))]
    last = k[-1] - k[0] + 1
    edges = np.union1d(
        np.linspace(0, last, BUCKETS // 2 + 1), np.geomspace(1, last, BUCKETS // 2 + 1)
    )
    places = np.searchsorted(edges, k - k[0] + 1)
    return np.split(np.arange(len(k)), np.flatnonzero(np.diff(places)) + 1)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _finite(value: Any) -> Any:
    """JSON has no ∞ and no NaN."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _asset(name: str) -> str:
    return (files("biloop.report") / "assets" / name).read_text(encoding="utf-8").rstrip("\n")
