"""Verdicts on the runs of Table 3 and Figure 1 follow from numbers, in every way they can."""

import math

import numpy as np
import pytest

from biloop.paper import (
    figure1,
    figure1_claims,
    table3,
    table3_claims,
)

from .test_reproduce_verdicts import verdict

# Table 3


def third_found(f=None, gradient=100.0, early=None):
    """f at k = 500 for N = 20 and N = 1, ‖∇Φ‖² of N = 1 over N = 20, and the early columns."""
    f = f or {20: 0.004, 1: 0.04}
    early = early or {N: [float(text) for text in table3.PRINTED[N][:3]] for N in table3.NAMES}
    ones = np.ones((2, len(table3.SOLVED)))
    curves = {}
    for setting in table3.SETTINGS:
        for N in table3.NAMES:
            value = np.full((2, len(table3.LOOKED_AT)), f[N])
            for k, number in zip(table3.COLUMNS[:3], early[N], strict=True):
                value[:, table3.LOOKED_AT.index(k)] = number
            curves[setting, N] = table3.Curves(value, ones, ones * (gradient if N == 1 else 1.0))
    return table3.Found(curves, np.array([0.004, 0.005]), (0, 1))


def third_table(**given):
    return table3_claims.claims(third_found(**given))


def test_the_first_columns_of_table_3():
    assert verdict(third_table(), "Losses at") == "reproduced"
    off = {20: [9.32, 0.11, 0.05], 1: [435.0, 6.9, 0.04]}
    assert verdict(third_table(early=off), "Losses at") == "only in part"
    none = {20: [1.0, 1.0, 1.0], 1: [1.0, 1.0, 1.0]}
    assert verdict(third_table(early=none), "Losses at") == "not reproduced"


@pytest.mark.parametrize(
    ("loss", "expected"),
    [(0.0042, "reproduced"), (0.0052, "only in part"), (0.02, "not reproduced")],
)
def test_the_loss_of_the_n_n_loop(loss, expected):
    assert verdict(third_table(f={20: loss, 1: 0.04}), "N = 20 achieves") == expected


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ({20: 0.004, 1: 0.04}, "reproduced"),
        ({20: 0.004, 1: 0.02}, "only in part"),
        ({20: 0.005, 1: 0.0044}, "not reproduced"),
    ],
)
def test_the_plateau_of_the_no_loop(losses, expected):
    assert verdict(third_table(f=losses), "No-loop ITD") == expected


@pytest.mark.parametrize(
    ("losses", "gradient", "expected"),
    [
        ({20: 0.004, 1: 0.04}, 100.0, "reproduced"),
        ({20: 0.004, 1: 0.004}, 100.0, "only in part"),
        ({20: 0.004, 1: 0.04}, 2.0, "only in part"),
        ({20: 0.004, 1: 0.004}, 2.0, "not reproduced"),
    ],
)
def test_consistent_with_the_theory(losses, gradient, expected):
    assert verdict(third_table(f=losses, gradient=gradient), "This is in cons") == expected


@pytest.mark.parametrize(("k", "later"), [(500, False), (505, True), (1000, True)])
def test_spikes_are_those_after_the_plateau_was_read_off(k, later):
    found = third_found()
    curves = found.curves["restart", 1]
    four = np.repeat(curves.value[:1], 4, axis=0)
    four[1, table3.LOOKED_AT.index(k)] = 5.0
    found.curves["restart", 1] = curves._replace(value=four)
    (told,) = [c.why for c in table3_claims.claims(found) if c.statement.startswith("No-loop ITD")]
    assert ("Later Adam's spikes" in told) == later


# Figure 1

BUDGETS = figure1.Budgets(1_200, 600, 250, 750, 24, 800)
OUTER = {loops: 1_200 // (loops[0] + loops[1] + 3) for loops in figure1.LOOPS}


def by_inner_steps(N, Q, iterations):
    """A loss that only the inner steps bring down."""
    return 100.0 / (1 + N * iterations)


def figure(loss=by_inner_steps, moving=None, ridge=None, influence=0.0):
    """The claims on runs with these losses, of N, Q and the number of outer iterations."""
    return figure1_claims.claims(figure_found(loss, moving, ridge, influence))


def figure_found(loss=by_inner_steps, moving=None, ridge=None, influence=0.0):
    """All four loops; β has an influence on (1, 1) alone."""
    losses = {
        ("cleaning", "printed"): loss,
        ("cleaning", "large"): moving or loss,
        ("ridge", "printed"): ridge or loss,
        ("ridge", "large"): loss,
    }
    curves = {}
    for key, each in losses.items():
        for loops in figure1.LOOPS:
            k = np.arange(OUTER[loops])
            ones = np.ones((1, len(k)))
            value = np.array([[each(*loops, i + 1) for i in k]])
            seen = {"k": k, "test_loss": value, "train_loss": value, "accuracy": 0.9 * ones}
            seen |= {"moved": ones, "wrong_weight": 0.1 * ones, "right_weight": ones}
            columns = figure1.columns_of([seen], 0, loops)
            curves[(*key, loops)] = columns | {"seconds": columns["cost"] * 0.01}
    still = np.ones((3, 3))
    moves = np.array([[1 + influence, 1.0, 1.0]] * 3)
    return figure1.Found(
        sizes=figure1.Sizes("digits", 1, 1, 1),
        budgets=BUDGETS,
        seeds=(0,),
        grids=figure1.GRIDS,
        tuned={key: moves if key[-1] == (1, 1) else still for key in curves},
        chosen={key: figure1.Steps(figure1.GRIDS[key[:2]].inner[0], 0.1) for key in curves},
        curves=curves,
        references={name: {"test_loss": 0.3} for name in ("uniform ½", "oracle 0, 1")},
        seconds=dict.fromkeys(figure1.LOOPS, 0.01),
    )


def flat(levels):
    """Losses that are constant, by (N, Q)."""
    return lambda N, Q, iterations: levels[N, Q]


def test_a_curve_is_looked_up_at_the_last_point_that_is_not_beyond():
    found = figure_found(lambda N, Q, iterations: float(iterations))
    key = ("cleaning", "printed", (20, 1))
    assert found.at(*key, "test_loss", "k", 10) == 11  # k = 10 is the eleventh
    assert found.at(*key, "test_loss", "k", 10.5) == 11
    assert found.at(*key, "test_loss", "cost", 24 * 3) == 3
    assert found.at(*key, "test_loss", "cost", 1) == 1  # the first there is
    assert found.last(*key, "test_loss") == OUTER[20, 1]
    assert found.common_seconds("printed") == pytest.approx(
        min(OUTER[N, Q] * (N + Q + 3) * 0.01 for N, Q in figure1.LOOPS)
    )


def test_n_wins_only_for_both_q():
    wins = {(20, 20): 1.0, (20, 1): 1.0, (1, 20): 2.0, (1, 1): 2.0}
    assert figure1_claims.n_wins(wins)
    assert not figure1_claims.n_wins(wins | {(1, 20): 0.5})
    assert not figure1_claims.n_wins(wins | {(1, 1): 0.5})


def test_curves_with_long_loops_are_better():
    start = "Learning curves"
    assert verdict(figure(), start) == "reproduced"
    assert verdict(figure(lambda N, Q, k: -by_inner_steps(N, Q, k)), start) == "not reproduced"
    # One Q alone is not enough at any of the three measures.
    half = flat({(20, 20): 1.0, (20, 1): 3.0, (1, 20): 2.0, (1, 1): 2.0})
    assert verdict(figure(half), start) == "not reproduced"

    # At equal k N = 20 wins, at equal cost N = 1: a loss of outer iterations alone, but for k ≤ 11.
    def mixed(N, Q, k):
        return 1.0 / N if k <= 11 else 1.0 / k

    assert verdict(figure(mixed), start) == "only in part"


def test_the_reason_is_the_hypergradient():
    """x must matter, and N = 20 must be better than its inner steps explain."""
    start = "The reason is"

    def better(N, Q, k):
        return by_inner_steps(N, Q, k) * (0.5 if N == 20 else 1.0)

    assert verdict(figure(better, influence=0.5), start) == "reproduced"
    assert verdict(figure(better, influence=0.001), start) == "only in part"
    assert verdict(figure(influence=0.5), start) == "only in part"
    assert verdict(figure(influence=0.001), start) == "not reproduced"


def test_q_is_comparable():
    start = "Q = 20 and Q = 1"
    same = flat({(20, 20): 1.0, (20, 1): 1.05, (1, 20): 2.0, (1, 1): 2.05})
    assert verdict(figure(same), start) == "reproduced"
    assert verdict(figure(), start) == "only in part"  # at equal k only
    for levels in ((1.0, 1.0, 2.3, 2.0), (1.0, 1.0, 2.0, 2.3), (1.0, 1.15, 2.0, 2.0)):
        apart = flat(dict(zip(figure1.LOOPS, levels, strict=True)))
        assert verdict(figure(apart), start) == "not reproduced"


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((1.0, 1.0, 2.0, 2.0), "reproduced"),
        ((1.0, 1.0, 2.0, 1.05), "only in part"),
        ((1.0, 1.0, 2.0, 1.15), "reproduced"),
        ((1.0, 3.0, 2.0, 2.0), "only in part"),
        ((2.0, 2.0, 1.0, 1.0), "not reproduced"),
    ],
)
def test_long_loops_are_crucial_where_x_moves(levels, expected):
    moving = flat(dict(zip(figure1.LOOPS, levels, strict=True)))
    assert verdict(figure(moving=moving), "Running multiple inner steps") == expected


def test_long_loops_that_win_in_the_end_alone_are_no_faster():
    def late(N, Q, k):
        return 2.0 if N == 1 else 1.0 if k == OUTER[N, Q] else 3.0

    assert verdict(figure(moving=late), "Running multiple inner steps") == "only in part"


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ((1.0, 1.0, 2.0, 2.0), "reproduced"),
        ((1.0, 1.0, math.nan, 2.0), "only in part"),
        ((2.0, 2.0, 1.0, 1.0), "not reproduced"),
        ((1.0, 3.0, 2.0, 2.0), "not reproduced"),
    ],
)
def test_one_penalty(levels, expected):
    ridge = flat(dict(zip(figure1.LOOPS, levels, strict=True)))
    assert verdict(figure(ridge=ridge), "The same observations") == expected
