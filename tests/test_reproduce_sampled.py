"""Rates of sampled methods: what is measured is a run of solve, and verdicts follow from slopes."""

import jax
import numpy as np
import pytest

import biloop as bl
from biloop.paper import sampled
from biloop.paper.reports.sampled import report
from biloop.paper.sampled import METHODS, Found, mean_norm2
from biloop.paper.sampled_claims import claims, judged
from biloop.theory import SAMPLED_RATES


def test_the_mean_is_that_of_a_run():
    """∇Φ in closed form at each x of a run of `solve` with the same key."""
    made = bl.problems.sampled_quadratic(4.0, samples=64)
    K, seen = 20, []
    measured = mean_norm2(made, METHODS["SOBA, decreasing"][0], K, (3,))
    method = bl.schemes.soba(
        sampled.BATCH, (sampled.STEP, -0.4), (sampled.STEP, -0.4), key=jax.random.key(3)
    )
    bl.solve(
        made.problem, made.x0, made.y0, method, outer=(sampled.OUTER, -0.6), steps=K,
        watch=lambda x, y: seen.append(np.sum(made.hypergradient(x) ** 2)) or 0.0, watch_every=1,
    )  # fmt: skip
    assert measured == pytest.approx(np.mean(seen[:K]), rel=1e-10)


@pytest.mark.parametrize("name", METHODS)
def test_rows_are_those_that_a_run_counts(name):
    make, _ = METHODS[name]
    K = 16 if name == "stocBiO" else 256
    setting = make(K, jax.random.key(0))  # SRBA: one period
    made = bl.problems.sampled_quadratic(4.0, samples=sampled.SAMPLES)
    run = bl.solve(made.problem, made.x0, made.y0, setting.method, outer=0.01, steps=K)
    used = sum(
        int(run.trace[column][-1])
        for column in ("inner_samples", "outer_samples", "product_samples")
    )
    assert used == pytest.approx(K * setting.rows, rel=1e-12)


def found(slopes):
    used = np.geomspace(1e4, 1e6, 7)
    names = METHODS
    slope = {name: slopes.get(name, SAMPLED_RATES[name].slope) for name in names}
    means = {name: 10 * used ** slope[name] for name in names}
    return Found(dict.fromkeys(names, used), means, 1.0, (0,))


def test_verdicts_can_come_out_either_way():
    def verdicts(slopes):
        found_claims = claims(found(slopes))
        return {claim.statement.partition(":")[0]: claim.verdict for claim in found_claims}

    assert set(verdicts({}).values()) == {"not contradicted"}
    slow = verdicts({"SOBA": -0.3, "SABA": -0.5, "SRBA": -2.0})
    assert slow["SOBA"] == slow["SABA"] == "contradicted"
    assert slow["SRBA"] == slow["stocBiO"] == "not contradicted"


def test_slopes_in_words():
    assert judged(found({"SOBA": -0.5}), "SOBA") == "as published"
    assert judged(found({"SOBA": -0.9}), "SOBA") == "faster"
    assert judged(found({"SOBA": -0.2}), "SOBA") == "slower: contradicted"


def test_the_report_has_a_row_and_points_for_each_method():
    outcome = report(found({}))
    (table,) = outcome.tables
    assert [row[0] for row in table.rows] == list(METHODS)
    assert all(row[2] == row[3] for row in table.rows)  # published and measured
    assert len(outcome.records) == 7 * len(METHODS)
    assert len(outcome.claims) == len(METHODS)
