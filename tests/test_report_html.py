"""The report of a comparison as a file: what is in it, and that nothing in it can be markup."""

import copy
import json
import math
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

from biloop.report import comparison_html
from biloop.report.comparison_html import render, thinned, write
from tests.browser.example import HOSTILE, example, hostile, run

ASSETS = files("biloop.report") / "assets"


class Page(HTMLParser):
    """The elements of a page, the text of its title, and the JSON in it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.title, self.json = [], "", ""
        self._inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._inside = "json" if ("id", "comparison") in attributes else tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "title":
            self.title += data
        if self._inside == "json":
            self.json += data

    @property
    def payload(self):
        return json.loads(self.json, parse_constant=pytest.fail)


def rounded(payload):
    """Six digits in the curves, which is what the page keeps of them."""
    payload = copy.deepcopy(payload)
    for seed in (seed for scheme in payload["schemes"] for seed in scheme["seeds"]):
        for name, column in seed.items():
            seed[name] = [float(f"{v:.6g}") if isinstance(v, float) else v for v in column]
    return payload


def test_the_page_holds_the_payload(monkeypatch, tmp_path):
    monkeypatch.setattr(comparison_html, "BUCKETS", 1000)
    path = write(tmp_path / "out.html", example())
    page = Page(path.read_text(encoding="utf-8"))
    assert page.title == "Loops on an example"
    assert page.payload == rounded(example())
    assert page.tags.count("script") == 2


def test_the_page_loads_nothing():
    text = render(example())
    assert re.findall(r"https?://[^\"'\s]*", text) == ["http://www.w3.org/2000/svg"]  # a name
    assert not re.search(
        r"<link|@import|\bsrc=|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket", text
    )
    assert "default-src 'none'" in text


def test_hostile_text_is_text():
    page = Page(render(hostile()))
    assert page.title == HOSTILE
    assert page.tags == Page(render(example())).tags
    assert page.payload["problem"]["description"] == HOSTILE
    assert "<" not in page.json


def test_scripts_never_read_text_as_markup():
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    for name in comparison_html.SCRIPTS:
        assert not re.search(forbidden, (ASSETS / name).read_text(encoding="utf-8")), name


def test_numbers_that_json_does_not_have_become_null():
    payload = example()
    payload["settings"]["kappa"] = math.inf
    payload["schemes"][0]["value"] = math.nan
    payload["schemes"][0]["seeds"][0]["value"][-1] = math.nan
    payload["certificates"][0]["bound"][0] = -math.inf
    found = Page(render(payload)).payload
    assert found["settings"]["kappa"] is None
    assert found["schemes"][0]["value"] is None
    assert found["schemes"][0]["seeds"][0]["value"][-1] is None
    assert found["certificates"][0]["bound"][0] is None


def test_text_that_utf8_does_not_have(tmp_path):
    payload = example()
    payload["command"] = "biloop compare \udcff.py:problem"  # a file name that is not UTF-8
    page = Page(write(tmp_path / "out.html", payload).read_text(encoding="utf-8"))
    assert page.payload["command"] == "biloop compare ?.py:problem"


def test_every_asset_is_used_once():
    used = [comparison_html.PAGE, *comparison_html.STYLES, *comparison_html.SCRIPTS]
    assert sorted(used) == sorted(each.name for each in ASSETS.iterdir())


# long curves


def test_short_curves_are_kept_whole():
    seed = run(0.9, 3, 2, rows=comparison_html.BUCKETS)
    assert thinned(seed)["k"] == seed["k"]


def test_an_empty_curve_stays_empty():
    assert thinned({name: [] for name in run(0.9, 1, 1)}) == {name: [] for name in run(0.9, 1, 1)}


def test_long_curves_keep_ends_and_extremes():
    rows, rng = 30_000, np.random.default_rng(0)
    seed = run(0.9999, 3, 2, rows)
    seed["value"] = list(rng.normal(size=rows))
    seed["value"][12_345] = 1e6
    seed["value"][-1] = 0.0  # the last row has no extreme
    seed["inner_residual"][777] = seed["inner_residual"][-1] = math.nan
    seed["grad_norm2"] = [1.0 if k % 100 == 0 else None for k in range(rows)]
    seed["grad_norm2"][20_000] = 1e-9
    seed["linear_residual"] = [None] * rows
    kept = thinned(seed)
    assert {0, 12_345, 20_000, rows - 1} <= {*kept["k"]}
    assert kept["k"] == sorted({*kept["k"]})
    assert len(kept["k"]) <= 8 * comparison_html.BUCKETS
    for j, k in enumerate(kept["k"]):  # rows stay together
        assert kept["gradients"][j] == seed["gradients"][k]
        assert kept["value"][j] == pytest.approx(seed["value"][k], rel=1e-5)
    assert min(kept["value"]) == pytest.approx(min(seed["value"]), rel=1e-5)
    # Early and late rows are both there: the page has linear and logarithmic axes.
    assert {*range(3)} <= {*kept["k"]}
    assert max(np.diff(kept["k"])) <= 3 * rows / comparison_html.BUCKETS


def test_a_report_of_a_large_comparison_is_small():
    payload = example()
    payload["schemes"] = [
        {**payload["schemes"][0], "seeds": [run(0.999, 3, 2, 2000)] * 5} for _ in range(9)
    ]
    assert len(render(payload)) < 1_000_000
