"""What a notebook shows of a result: a small table and a curve, as HTML without any dependency.

These functions know words and numbers only; results hand theirs over when they are looked at.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_WIDTH, _HEIGHT, _MARGIN = 220, 44, 3
_POINTS = 200  # of a curve; a screen shows no more
_ROWS = 12  # of a table


def summary(title: str, facts: Mapping[str, Any], curves: Mapping[str, ArrayLike]) -> str:
    """A heading, facts in two columns, and a sparkline for each curve that has two points."""
    rows = [_row(_cell(name, "th"), _cell(_shown(value))) for name, value in facts.items()]
    for name, values in curves.items():
        if drawn := sparkline(values):
            rows.append(_row(_cell(name, "th"), _element(drawn)))
    return f"<div><strong>{html.escape(title)}</strong><table>{''.join(rows)}</table></div>"


def table(title: str, columns: Mapping[str, Sequence[Any]], drawn: Iterable[str] = ()) -> str:
    """The first rows of a table; the columns named in `drawn` hold HTML that is ours."""
    drawn = set(drawn)
    head = _row(*(_cell(name, "th") for name in columns))
    length = max((len(column) for column in columns.values()), default=0)
    body = [
        _row(
            *(
                _element(column[i]) if name in drawn else _cell(_shown(column[i]))
                for name, column in columns.items()
            )
        )
        for i in range(min(length, _ROWS))
    ]
    more = f"<p>… and {length - _ROWS} more</p>" if length > _ROWS else ""
    heading = f"<strong>{html.escape(title)}</strong>"
    return f"<div>{heading}<table>{head}{''.join(body)}</table>{more}</div>"


def sparkline(values: ArrayLike) -> str:
    """A curve without axes as SVG, logarithmic where all is positive; "" below two points."""
    y = np.asarray(values, float)
    x = np.arange(len(y))[np.isfinite(y)]
    y = y[np.isfinite(y)]
    if len(y) < 2:
        return ""
    if len(y) > _POINTS:
        kept = np.unique(np.linspace(0, len(y) - 1, _POINTS).astype(int))
        x, y = x[kept], y[kept]
    first, last = y[0], y[-1]
    height = np.log10(y) if np.all(y > 0) else y
    places = zip(_scaled(x, _WIDTH), _HEIGHT - _scaled(height, _HEIGHT), strict=True)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="from {first:.3g} to {last:.3g}">'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.5"/></svg> '
        f"{first:.3g} → {last:.3g}"
    )


def embedded(text: str, page: str) -> str:
    """The text of a result, and below it a page of its own that can be opened."""
    frame = (
        f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:48em;border:0"></iframe>'
    )
    page = f"<details><summary>All curves</summary>{frame}</details>"
    style = "font-family:monospace;line-height:1.3"  # some notebooks have another for pre
    return f'<div><pre style="{style}">{html.escape(text)}</pre>{page}</div>'


def _scaled(numbers: np.ndarray, size: float) -> np.ndarray:
    """Between the margins of a side; in the middle where all are equal."""
    low, high = float(np.min(numbers)), float(np.max(numbers))
    if high <= low:
        return np.full(len(numbers), size / 2)
    return _MARGIN + (size - 2 * _MARGIN) * (numbers - low) / (high - low)


def _shown(value: Any) -> str:
    if isinstance(value, bool | str | int | np.integer):
        return str(value)
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}" if math.isfinite(value) else str(float(value))
    return str(value)


def _cell(text: str, kind: str = "td") -> str:
    return _element(html.escape(text), kind)


def _element(content: str, kind: str = "td") -> str:
    """A cell around HTML that is ours; notebooks would align it to the right."""
    return f'<{kind} style="text-align:left">{content}</{kind}>'


def _row(*cells: str) -> str:
    return f"<tr>{''.join(cells)}</tr>"
