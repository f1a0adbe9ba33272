"""biloop plot: what it draws, and that an error is one sentence said before any drawing."""

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from biloop import Trace
from biloop.cli.main import main

ROWS = 40


def trace(label="", value=None, linear_residual=None):
    k = np.arange(ROWS)
    columns = {
        "k": k,
        "value": 0.9**k if value is None else value,
        "hypergradient_norm": 0.8**k,
        "inner_residual": 0.7**k,
        "linear_residual": np.full(ROWS, np.nan) if linear_residual is None else linear_residual,
        "gradients": 3 * (k + 1),
        "products": 5 * (k + 1),
        "seconds": 1e-3 * (k + 1),
        "result": np.zeros(ROWS, int),
    }
    return Trace(columns, label)


@pytest.fixture
def figures(monkeypatch):
    """The figures, instead of files."""
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    return drawn


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace("No-loop").save("a.npz")
    trace(linear_residual=0.5 ** np.arange(ROWS)).save("b.npz")
    return tmp_path


def sentence(capsys):
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("biloop: ").rstrip("\n")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_of_each_kind(folder, capsys, ending):
    assert main(["plot", "a.npz", "b.npz", "--out", f"figure.{ending}"]) == 0
    assert sentence(capsys) == f"wrote figure.{ending}"
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert (folder / f"figure.{ending}").read_bytes().startswith(start)


@pytest.mark.parametrize("x", ["seconds", "gradients", "products", "cost", "k"])
@pytest.mark.parametrize("y", ["value", "hypergradient_norm", "inner_residual"])
def test_the_curves_are_the_columns(folder, figures, x, y):
    assert main(["plot", "a.npz", "b.npz", "--x", x, "--y", y]) == 0
    (axes,) = figures[0].axes
    expected = {"cost": 8 * (np.arange(ROWS) + 1)}.get(x)
    for line in axes.lines:
        np.testing.assert_array_equal(
            line.get_xdata(), trace()[x] if expected is None else expected
        )
        np.testing.assert_array_equal(line.get_ydata(), trace()[y])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["No-loop", "b"]
    assert axes.get_yscale() == "log"
    assert len({line.get_color() for line in axes.lines}) == 2


def test_linear(folder, figures):
    trace(value=np.arange(ROWS) - 5.0).save("c.npz")
    assert main(["plot", "c.npz", "--linear"]) == 0
    (axes,) = figures[0].axes
    assert axes.get_yscale() == "linear"
    assert len(axes.lines[0].get_ydata()) == ROWS


def test_points_that_a_logarithm_cannot_show_are_counted(folder, figures, capsys):
    trace(value=np.arange(ROWS) - 5.0).save("c.npz")
    assert main(["plot", "c.npz"]) == 0
    assert capsys.readouterr().err.startswith("6 points that are not positive are left out")
    assert min(figures[0].axes[0].lines[0].get_ydata()) == 1.0


def test_a_trace_without_the_column_is_named(folder, figures):
    assert main(["plot", "a.npz", "b.npz", "--y", "linear_residual"]) == 0
    texts = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert texts == ["No-loop (nothing to draw)", "b"]


def test_f_on_batches_is_named_so(folder, figures):
    columns = dict(trace().columns)
    columns["batch_value"] = columns.pop("value")
    Trace(columns, "SOBA").save("s.npz")
    assert main(["plot", "a.npz", "s.npz"]) == 0
    (axes,) = figures[0].axes
    assert [line.get_label() for line in axes.lines] == ["No-loop", "SOBA (on batches)"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), 0.9 ** np.arange(ROWS))


def test_equal_labels_are_told_apart_by_their_files(folder, figures):
    trace("No-loop").save("c.npz")
    trace("costs $5 and $6").save("d.npz")
    assert main(["plot", "a.npz", "c.npz", "d.npz"]) == 0
    texts = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert texts == ["No-loop (a.npz)", "No-loop (c.npz)", r"costs \$5 and \$6"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.npz"], "there is no file missing.npz"),
        (["text.npz"], "text.npz is damaged or not a file of biloop"),
        (["."], ". is damaged or not a file of biloop"),
        (["other.npz"], "other.npz is not a trace: it has no column"),
        (["a.npz", "--y", "hypergradient"], "did you mean 'hypergradient_norm'?"),
        (["a.npz", "--x", "second"], "did you mean 'seconds'?"),
        (["a.npz", "--y", "linear_residual"], "ITD solves no linear system"),
        (["negative.npz"], "--linear draws it"),
        (["a.npz", "--out", "missing/figure.png"], "cannot write missing/figure.png"),
        (["a.npz", "--out", "figure.gif"], "a figure must end in .png, .pdf, .svg"),
    ],
)
def test_errors_are_one_sentence(folder, figures, capsys, arguments, expected):
    (folder / "text.npz").write_text("not a trace")
    trace(value=np.full(ROWS, -1.0)).save("negative.npz")
    np.savez("other.npz", meta=np.array('{"label": ""}'), k=np.arange(3))
    assert main(["plot", *arguments]) == 2
    assert expected in sentence(capsys)
    assert not figures
    assert not list(folder.glob("*.png"))


def test_an_unwritable_output_is_said_before_a_missing_trace(folder, capsys):
    assert main(["plot", "missing.npz", "--out", "missing/figure.png"]) == 2
    assert "cannot write missing/figure.png" in sentence(capsys)
