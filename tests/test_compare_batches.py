"""Sampled methods in a comparison: the verdict is right where the answer is known."""

import jax
import numpy as np
import pytest

import biloop as bl
from benchmarks.verdicts import ridge

FEW = {"N": 5, "Q": 5, "seeds": [0, 1], "progress": False}


def sentence(found, about):
    (told,) = [each for each in found.verdict if each.startswith(about)]
    return told


@pytest.mark.slow
def test_rows_that_repeat_are_sampled_and_cost_is_in_passes():
    problem, x0, y0 = ridge(6400, features=3, distinct=64)
    schemes = ["No-loop AID", "SOBA", "Adaptive on batches"]
    found = bl.compare(problem, x0, y0, schemes=schemes, batch=16, budget=30, **FEW)
    assert [each.name for each in found.schemes] == schemes
    assert any(each.startswith("Sampling") for each in found.verdict)
    assert any("cheaper" in each for each in found.verdict)  # from which accuracy on, or at none
    # SOBA sees 16 of 6400 rows in each of five evaluations: a pass is eighty steps.
    trace = found.traces["SOBA"][0]
    assert trace["gradients"][79] + trace["products"][79] == pytest.approx(1.0, rel=1e-12)
    assert trace["inner_samples"][0] == 16
    assert trace["outer_samples"][0] == trace["product_samples"][0] == 32
    # Each start has draws of its own.
    first, second = (trace["batch_value"] for trace in found.traces["SOBA"])
    assert not np.array_equal(first[:5], second[:5])
    # What has nothing to set begins on batches, too, and is where `solve` would be.
    untuned = found["Adaptive on batches"]
    assert untuned.code == "bl.schemes.auto(batch=16)"
    same = bl.schemes.auto(batch=16, key=jax.random.fold_in(jax.random.key(0), 0))
    alone = bl.solve(problem, x0, y0, same, budget=30, progress=False)
    last = untuned.runs[0].snapshots[-1]
    assert last.steps == alone.steps
    np.testing.assert_allclose(last.x, alone.x, rtol=1e-6)


def test_a_sampled_scheme_needs_a_batch():
    problem, x0, y0 = ridge(60, features=3)
    with pytest.raises(ValueError, match="SABA draws rows: give their number"):
        bl.compare(problem, x0, y0, schemes=["SABA"], **FEW)
    with pytest.raises(ValueError, match="A batch of 64 is larger than inner_data, which has 60"):
        bl.compare(problem, x0, y0, schemes=["SABA"], batch=64, **FEW)
    with pytest.raises(ValueError, match="60 are fewer than 256 batches of 4"):
        bl.compare(problem, x0, y0, schemes=["Adaptive on batches"], batch=4, **FEW)


@pytest.mark.slow
def test_sampling_pays_where_rows_repeat():
    found = bl.compare(*ridge(40_000, features=20, distinct=300), batch=64, budget=30, **FEW)
    assert sentence(found, "Sampling pays")
    assert sentence(found, "Sampling is cheaper at every accuracy")


@pytest.mark.slow
def test_sampling_does_not_pay_on_few_rows_that_are_badly_scaled():
    found = bl.compare(*ridge(500, features=10, kappa=1e3), batch=64, budget=100, **FEW)
    assert sentence(found, "Sampling does not pay")
    assert sentence(found, "Full batches are cheaper at every accuracy")
