"""What a notebook shows: HTML of results, progress, and arrays with named axes."""

import io
import math
import sys
import types
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.report import notebook
from biloop.run.progress import ProgressLine

X, Y = jnp.ones(2), jnp.zeros(2)
PROBLEM = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 2.0) ** 2))
METHOD = bl.schemes.n_q_loop(5, 5, inner_step=0.3, linear_step=0.3)


class Page(HTMLParser):
    """The text of a page and its elements; refuses those that are not closed."""

    def __init__(self, page):
        HTMLParser.__init__(self)
        self.text, self.tags, self._open = "", [], []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


@pytest.fixture(scope="module")
def found():
    over = {"outer": [0.1, 0.3], "inner.step_size": [0.2, 0.3, 0.4]}
    return bl.sweep(PROBLEM, X, Y, METHOD, over=over, steps=6)


def test_a_run_and_its_trace(found):
    run = found.runs[0]
    for result, words in ((run, ("COMPLETED", "gradients", "6")), (run.trace, ("Trace", "rows"))):
        page = Page(result._repr_html_())
        assert page.tags.count("polyline") == 2  # f and ‖h‖
        assert all(word in page.text for word in words)


def test_a_sweep_is_a_table_with_a_curve_for_each_run(found):
    page = Page(found._repr_html_())
    assert page.tags.count("polyline") == len(found) == 6
    assert page.tags.count("tr") == 1 + 6
    assert "inner.step_size" in page.text


def test_curves_and_text_look_alike_wherever_they_are_shown(found):
    """Notebooks align cells to the right, and not all of them set `pre` in equal widths."""
    run = found.runs[0]
    for result in (found, run, run.trace):
        shown = result._repr_html_()
        cells = shown.count("<td") + shown.count("<th") - shown.count("<thead")
        assert cells == shown.count("text-align:left")
    assert "font-family:monospace" in notebook.embedded("a  table", "")


def test_a_long_table_is_cut():
    page = Page(notebook.table("long", {"a": list(range(100))}))
    assert page.tags.count("tr") == 1 + 12
    assert "88 more" in page.text


def test_numbers_have_six_digits_and_counts_all():
    facts = {"f": 1 / 3, "g": np.float32(1e-9), "K": 12345678, "l": math.inf, "ok": True}
    text = Page(notebook.summary("a run", facts, {})).text
    assert " ".join(text.split()) == "a run f 0.333333 g 1e-09 K 12345678 l inf ok True"


def test_words_are_never_markup():
    evil = "<script>alert(1)</script>"
    shown = notebook.summary(evil, {evil: evil}, {evil: [1.0, 2.0]})
    shown += notebook.table(evil, {evil: [evil]}) + notebook.embedded(evil, evil)
    assert "<script" not in shown


def heights(line):
    points = line.split('points="')[1].split('"')[0].split()
    return [float(point.split(",")[1]) for point in points]


def test_a_sparkline_is_logarithmic_and_points_down_where_a_value_falls():
    places = heights(notebook.sparkline([100.0, 10.0, 1.0]))
    assert places[0] < places[1] < places[2]  # y of SVG points down
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.11)
    linear = heights(notebook.sparkline([1.0, 0.0, -1.0]))
    assert linear[1] - linear[0] == pytest.approx(linear[2] - linear[1], abs=0.11)


def test_a_sparkline_leaves_out_what_is_not_there():
    assert notebook.sparkline([1.0]) == notebook.sparkline([np.nan, np.inf]) == ""
    assert len(heights(notebook.sparkline([1.0, np.nan, 2.0]))) == 2
    assert len(heights(notebook.sparkline(np.ones(10_000)))) <= 200
    assert "nan" not in notebook.sparkline(np.ones(3))


@pytest.mark.slow
def test_a_comparison_holds_its_page():
    budget = {"N": 2, "Q": 2, "seeds": [0], "budget": 60}
    comparison = bl.compare(PROBLEM, X, Y, schemes=["No-loop AID", "Adaptive"], **budget)
    shown = comparison._repr_html_()
    assert "No-loop AID" in Page(shown).text
    assert shown.count("<iframe") == 1
    assert "<script" not in shown


# --- progress -----------------------------------------------------------------------------------


def shown_on(stream):
    line = ProgressLine(show=None)
    line._next = 0.0
    line.update(bl.Progress(1, 2, X, Y, 0.0, 0.0, bl.Cost(0, 0), 0.0), rate=1.0)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("shell", "seen"),
    [
        (types.SimpleNamespace(config={"IPKernelApp": {}}), True),
        (types.SimpleNamespace(config={}), False),  # IPython in a pipe
        (None, False),  # imported only
    ],
)
def test_progress_is_shown_in_a_kernel(monkeypatch, shell, seen):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert bool(shown_on(sys.stderr)) == seen


# --- in other people's code ---------------------------------------------------------------------


def test_a_sweep_as_xarray(found):
    pytest.importorskip("xarray")
    data = found.to_xarray()
    assert data["value"].dims == ("outer", "inner.step_size", "k")
    one = data["value"].sel({"outer": 0.3, "inner.step_size": 0.2})
    run = found.run({"outer": 0.3, "inner.step_size": 0.2})
    np.testing.assert_array_equal(one.to_numpy(), run.trace["value"])
    assert set(data["status"].to_numpy().ravel()) == {"COMPLETED"}
    assert data["steps"].dims == ("outer", "inner.step_size")


def test_without_xarray_a_sentence(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match="pip install xarray"):
        found.to_xarray()


def test_a_built_transformation_gets_the_value():
    """reduce_on_plateau looks at the value, and shrinks the step when it does not fall."""

    def patient(learning_rate):
        plateau = optax.contrib.reduce_on_plateau(factor=0.5, patience=1)
        return optax.chain(optax.sgd(learning_rate), plateau)

    built = bl.Built(patient, {"learning_rate": 0.1})
    made = patient(0.1)
    state, same = built.init(X), made.init(X)
    for value in (1.0, 1.0, 1.0, 1.0):
        step, state = built.update(X, state, X, jnp.asarray(value))
        with jax.numpy_dtype_promotion("standard"):
            expected, same = made.update(X, same, X, value=jnp.asarray(value))
        np.testing.assert_allclose(step, expected, rtol=1e-6)
    assert float(jnp.abs(step[0])) < 0.1  # it has been shrunk
    run = bl.solve(PROBLEM, X, Y, METHOD, outer=built, steps=10)
    assert run.status is bl.Status.COMPLETED
