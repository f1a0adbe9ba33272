"""Traces: columns, files, pandas."""

import weakref

import numpy as np
import pytest

import biloop as bl
from biloop.run.record import Record
from biloop.run.step import Row

from .helpers import COLUMNS, random_quadratic


@pytest.fixture(scope="module")
def trace():
    quadratic = random_quadratic()
    method = bl.schemes.n_loop(N=3, inner_step=0.1, linear_step=0.1)
    return bl.solve(
        quadratic.problem, *quadratic.start(), method, outer=0.05, steps=12, label="N-loop, α = 0.1"
    ).trace


def test_there_and_back_again(trace, tmp_path):
    path = trace.save(tmp_path / "run.npz")
    again = bl.Trace.load(path)
    assert again.label == trace.label
    assert tuple(again.columns) == COLUMNS
    for name in COLUMNS:
        np.testing.assert_array_equal(again[name], trace[name])
        assert again[name].dtype == trace[name].dtype
    assert again.cost == trace.cost
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_pandas(trace):
    frame = trace.to_pandas()
    assert frame.index.name == "k"
    assert list(frame.columns) == [name for name in COLUMNS if name != "k"]
    np.testing.assert_array_equal(frame["value"], trace["value"])


def test_an_unknown_column_says_which_there_are(trace):
    with pytest.raises(KeyError, match=r"'loss'; there are k, value, hypergradient_norm"):
        trace["loss"]


def test_names_can_be_looked_for_and_gone_through(trace):
    assert "value" in trace
    assert "accuracy" not in trace
    assert tuple(trace) == COLUMNS
    assert tuple(dict(trace)) == COLUMNS
    assert len(trace) == 12  # rows, as of a data frame


def test_a_file_that_is_no_trace(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, meta=np.array('{"label": ""}'), value=np.zeros(3))
    with pytest.raises(ValueError, match="is not a trace: it has no column"):
        bl.Trace.load(other)
    columns = {name: np.zeros(2) for name in COLUMNS}
    for label, k in (("7", np.zeros(2)), ('"x"', np.zeros((2, 1))), ('"x"', np.array(["a", "b"]))):
        np.savez(other, meta=np.array(f'{{"label": {label}}}'), **(columns | {"k": k}))
        with pytest.raises(ValueError, match=r"is not a trace: it.*(numbers|label)"):
            bl.Trace.load(other)
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match="damaged or not a file of biloop"):
        bl.Trace.load(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError):
        bl.Trace.load(tmp_path / "nothing.npz")


def test_columns_must_have_one_length():
    with pytest.raises(ValueError, match="one length"):
        bl.Trace({"k": np.zeros(2), "value": np.zeros(3)})


def test_an_empty_trace():
    empty = bl.Trace({name: np.zeros(0) for name in COLUMNS})
    assert len(empty) == 0
    assert empty.cost == (0, 0)


def test_a_record_keeps_the_rows_of_a_chunk_and_not_the_room_for_more():
    rows = Row(
        *(np.zeros(4096, int if name[-1] == "s" else float) for name in Row._fields[:-1]), {}
    )
    room = [weakref.ref(column) for column in rows[:-1]]
    record = Record()
    record.add(0, rows, 3, 1.0)
    del rows
    assert record.rows == 3
    assert not any(column() is not None for column in room)
