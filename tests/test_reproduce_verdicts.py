"""Verdicts follow from numbers: each rule is fed with numbers for every way it can come out."""

import math
from dataclasses import replace

import numpy as np
import pytest

from biloop.paper import (
    lower_bound,
    lower_bound_claims,
    table1,
    table1_claims,
    table2,
    table2_claims,
)
from biloop.paper.claims import MEANINGS, by_parts, of_a_bound
from biloop.paper.costs import Measured
from biloop.paper.exponents import Exponent

KAPPAS = (4.0, 8.0, 16.0)


def verdict(claims, start):
    """The verdict on the one statement that starts so, which is among those explained."""
    (claim,) = [claim for claim in claims if claim.statement.startswith(start)]
    assert claim.verdict in MEANINGS
    return claim.verdict


def why(claims, start):
    (claim,) = [claim for claim in claims if claim.statement.startswith(start)]
    return claim.why


def test_the_words_of_a_verdict():
    assert by_parts([True, True]) == "reproduced"
    assert by_parts([True, False]) == "only in part"
    assert by_parts([False, False]) == "not reproduced"
    assert by_parts([False, False], none="not seen here") == "not seen here"
    assert of_a_bound(0.1, margin=0.15) == "not contradicted"
    assert of_a_bound(0.2, margin=0.15) == "contradicted"


# one cell of a table


def cell(**given):
    known = {"algorithm": "a", "quantity": "Gc", "printed": 4.0, "formula": 4.1}
    return Exponent(**({"formula_rho_0": 3.0, "measured": {}} | known | given))


def test_runs_without_curvature_are_judged_by_the_bound_without_curvature():
    assert cell(measured={"mean": 3.5, "first": 1.0}).excess == pytest.approx(0.5)
    assert cell(measured={"mean": 1.0, "first": 3.5}).excess == pytest.approx(0.5)
    assert cell(measured={"mean": 3.5}, formula_rho_0=None).excess == pytest.approx(-0.5)
    assert cell().excess is None
    assert cell(measured={"mean": math.inf}).excess == math.inf


def test_a_lower_bound_is_judged_by_the_least_exponent():
    low = {"formula_rho_0": 2.0, "lower": True}
    assert cell(measured={"mean": 1.5, "first": 9.0}, **low).excess == pytest.approx(0.5)
    assert cell(measured={"mean": 9.0, "first": 2.5}, **low).excess == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "formula agrees (within 0.10)"),
        ({"formula": 4.5}, "formula differs by 0.50"),
        ({"measured": {"mean": 2.0, "first": 3.0}}, "measured at or below 3.00"),
        ({"measured": {"mean": 3.1, "first": 2.0}}, "measured 0.10 above 3.00 (logarithms)"),
        ({"measured": {"mean": 2.0, "first": 3.5}}, "measured 0.50 above 3.00: contradicted"),
        ({"measured": {"mean": 3.5}, "lower": True}, "measured at or above 3.00"),
        ({"measured": {"mean": 2.5}, "lower": True}, "measured 0.50 below 3.00: contradicted"),
        (
            {"printed": None, "formula": math.inf, "measured": {"mean": math.inf}},
            "agrees: ε is not",
        ),
        (
            {"printed": None, "formula": math.inf, "measured": {"mean": 3.0}},
            "differs: ε is reached",
        ),
        (
            {"printed": None, "formula": 3.0, "measured": {"mean": math.inf}},
            "differs: ε is reached",
        ),
    ],
)
def test_a_cell_in_words(given, words):
    assert words in cell(**given).judged


def test_how_far_a_formula_is_from_what_is_printed():
    assert cell(formula=3.8).apart == pytest.approx(0.2)
    assert "differs by 0.20" in cell(formula=3.8).judged
    assert "agrees (within 0.10)" in cell(formula=3.9).judged
    assert cell(printed=None, formula=math.inf).apart == 0
    assert cell(printed=None, formula=3.0).apart == math.inf


# Table 1


def powers(**exponents):
    """Costs κ^p on two problems: Gc and MV by the running mean, and by the first hit."""

    def column(p):
        return np.array([[kappa**p] * 2 for kappa in KAPPAS])

    mean, first = exponents["mean"], exponents.get("first", exponents["mean"])
    return Measured(
        KAPPAS,
        {"mean": column(mean[0]), "first": column(first[0])},
        {"mean": column(mean[1]), "first": column(first[1])},
        np.ones((3, 2)),
    )


def first_table(ba_misses=(), formulas=None, **schemes):
    """What was found, with every measured exponent 1 unless it is given."""
    names = {"n_q": "N-Q-loop AID", "n": "N-loop AID", "q": "Q-loop AID", "no": "No-loop AID"}
    measured = {name: powers(mean=(1.0, 1.0)) for name in table1.SCHEMES}
    measured |= {names.get(name, name): each for name, each in schemes.items()}
    exponents = tuple(
        replace(e, formula=(formulas or {}).get((e.algorithm, e.quantity), e.formula))
        for e in table1.exponents(measured)
    )
    printed_ba = powers(mean=(1.0, 1.0))
    for kappa in ba_misses:
        printed_ba.gradients["mean"][KAPPAS.index(kappa), 1] = math.inf
    return table1_claims.claims(table1.Found(exponents, measured, printed_ba, (0, 1)))


def test_table_1_exponents():
    assert verdict(first_table(), "Exponents") == "reproduced"
    one_off = {("N-loop AID", "MV"): 4.5}
    assert verdict(first_table(formulas=one_off), "Exponents") == "only in part"
    assert "difference is 0.50" in why(first_table(formulas=one_off), "Exponents")
    all_off = {(name, q): 9.0 for name in table1.SCHEMES for q in ("Gc", "MV")}
    assert verdict(first_table(formulas=all_off), "Exponents") == "not reproduced"


@pytest.mark.parametrize("criterion", ["mean", "first"])
@pytest.mark.parametrize(
    ("scheme", "kept", "broken"),
    [
        ("n_q", (3.1, 3.1), (3.4, 1.0)),  # 4 and 4 are printed
        ("n", (4.1, 3.1), (1.0, 3.4)),  # 5 and 4
        ("q", (3.1, 4.1), (3.4, 1.0)),  # 5 and 6
        ("no", (5.1, 5.1), (1.0, 5.4)),  # 6 and 6
        ("BA", (5.1, 5.1), (1.0, 5.4)),  # 5 and 5, quoted: nothing smaller is known
    ],
)
def test_upper_bounds_are_those_for_quadratics(scheme, kept, broken, criterion):
    """Exponents 3/3, 4/3, 3/4 and 5/5 where the printed ones, for ρ > 0, are one or two larger."""

    def found(exponents):
        other = {"mean": (1.0, 1.0), "first": (1.0, 1.0)}
        return first_table(**{scheme: powers(**(other | {criterion: exponents}))})

    assert verdict(found(kept), "The costs are upper bounds") == "not contradicted"
    assert verdict(found(broken), "The costs are upper bounds") == "contradicted"
    nearest = f"comes nearest: {max(broken):.2f}, where"
    assert nearest in why(found(broken), "The costs are upper bounds")


def test_the_order_of_the_bounds_is_that_of_the_formulas():
    """Whatever was measured on quadratics: they do not decide a statement on worst cases."""
    against = {"n": powers(mean=(3.0, 3.0)), "n_q": powers(mean=(3.0, 3.0))}
    for found in (first_table(), first_table(**against)):
        assert verdict(found, "The N-loop improves") == "reproduced"
        assert verdict(found, "The Q-loop improves") == "reproduced"
        assert verdict(found, "N-Q-loop and N-loop have") == "reproduced"
    flat = {(name, q): 5.0 for name in table1.SCHEMES for q in ("Gc", "MV")}
    assert verdict(first_table(formulas=flat), "The N-loop improves") == "not reproduced"
    assert verdict(first_table(formulas=flat), "The Q-loop improves") == "only in part"
    assert verdict(first_table(formulas=flat), "N-Q-loop and N-loop have") == "not reproduced"
    some = {("N-loop AID", "MV"): 6.0}
    assert verdict(first_table(formulas=some), "The N-loop improves") == "only in part"
    assert verdict(first_table(formulas=some), "N-Q-loop and N-loop have") == "only in part"
    fewer = {("N-loop AID", "Gc"): 3.0}  # than the N-Q-loop, whose gradients are the fewest else
    assert verdict(first_table(formulas=fewer), "N-Q-loop and N-loop have") == "only in part"
    opposite = flat | {("Q-loop AID", "MV"): 7.0, ("N-Q-loop AID", "MV"): 7.0}
    assert verdict(first_table(formulas=opposite), "The Q-loop improves") == "not reproduced"


def test_what_quadratics_show_stands_beside_the_bounds():
    """At the largest κ, whatever the order at the smallest."""

    def crossing(first, last):
        column = np.array([[first] * 2, [1.0] * 2, [last] * 2])
        return Measured(KAPPAS, *[{"mean": column, "first": column}] * 2, np.ones((3, 2)))

    claims = first_table(n=crossing(9.0, 0.5), n_q=crossing(9.0, 0.5))
    (why,) = [claim.why for claim in claims if claim.statement.startswith("The N-loop improves")]
    assert "κ = 16, step sizes tuned, 8 of 8 have this order" in why
    claims = first_table(n=crossing(0.5, 99.0), n_q=crossing(0.5, 99.0))
    (why,) = [claim.why for claim in claims if claim.statement.startswith("The N-loop improves")]
    assert "0 of 8 have this order" in why


def test_the_least_total_cost():
    dear, cheap = (2.0, 2.0), (1.0, 1.0)
    cases = {
        "reproduced": {"no": powers(mean=dear), "q": powers(mean=dear)},
        "only in part": {
            "no": powers(mean=dear, first=(0.5, 0.5)),
            "q": powers(mean=dear),
        },
        "not seen here": {
            "n": powers(mean=dear),
            "n_q": powers(mean=dear),
            "no": powers(mean=cheap),
        },
    }
    for expected, schemes in cases.items():
        assert verdict(first_table(**schemes), "This suggests") == expected
    # The sum counts: fewer gradients do not help where products cost more.
    sums = {"n": powers(mean=(0.5, 3.0)), "n_q": powers(mean=(3.0, 0.5))}
    assert verdict(first_table(**sums), "This suggests") == "not seen here"


def test_ba_with_the_printed_loop():
    assert verdict(first_table(), "BA with") == "reproduced"
    assert verdict(first_table(ba_misses=(8.0,)), "BA with") == "only in part"


# Table 2


def second_found(n_n_loop=(3.0, 3.0), stops=(True, True), worst_case=2.0, formulas=None):
    no_loop = powers(mean=(1.0, 1.0))
    for problem, stop in enumerate(stops):
        if stop:
            for column in (*no_loop.gradients.values(), *no_loop.products.values()):
                column[:, problem] = math.inf
    first = powers(mean=(1.0, 1.0), first=n_n_loop)
    floors = {"quadratics": np.array(KAPPAS), "worst case": np.array(KAPPAS) ** worst_case}
    exponents = table2.exponents({table2.N_N_LOOP: first, table2.NO_LOOP: no_loop}, floors)
    exponents = tuple(
        replace(e, formula=(formulas or {}).get((e.algorithm, e.quantity), e.formula))
        for e in exponents
    )
    return table2.Found(exponents, first, no_loop, floors, (0, 1))


def second_table(**given):
    found = second_found(**given)
    return table2_claims.claims(found), {(e.algorithm, e.quantity): e for e in found.exponents}


def test_table_2_exponents():
    assert verdict(second_table()[0], "Exponents of κ: rate") == "reproduced"
    off = {("N-N-loop ITD", "rate"): 3.5}
    assert verdict(second_table(formulas=off)[0], "Exponents of κ: rate") == "only in part"


def test_upper_bounds_of_itd_are_those_for_quadratics():
    assert verdict(second_table()[0], "The costs of the N-N-loop") == "not contradicted"
    for broken in ((3.5, 1.0), (1.0, 3.5), (math.inf, 1.0)):
        claims, _ = second_table(n_n_loop=broken)
        assert verdict(claims, "The costs of the N-N-loop") == "contradicted"


def test_floors_are_judged_from_their_side():
    _, cells = second_table(worst_case=2.5)
    assert "measured at or above 2.00" in cells["Lower bound", "floor"].judged
    assert "measured at or below 3.00" in cells["No-loop ITD", "floor"].judged
    _, cells = second_table(worst_case=1.5)
    assert "0.50 below 2.00: contradicted" in cells["Lower bound", "floor"].judged


def test_no_loop_itd_does_not_reach_epsilon():
    start = "With N = Θ(1)"
    assert verdict(second_table(stops=(True, True))[0], start) == "reproduced"
    assert verdict(second_table(stops=(True, False))[0], start) == "only in part"
    assert verdict(second_table(stops=(False, False))[0], start) == "not seen here"


def test_the_constant_of_the_n_n_loop():
    """The floor of Theorem 3, 96 κ³ e^{−N/κ} ε⁻¹ for α = 1/(2L), needs three times κ ln(κ/ε)."""
    kappa, eps = 2.0**12, 0.01
    floors = table2.floors_of_loop(kappa, eps)
    for name, logarithm in (("κ ln κ", math.log(kappa)), ("κ ln(κ/ε)", math.log(kappa / eps))):
        for c, ratio in floors[name].items():
            approximate = 96 * kappa**3 * math.exp(-c * logarithm) / eps
            assert ratio == pytest.approx(approximate, rel=0.01)
    assert round(floors["κ ln(κ/ε)"][2]) == 3926
    assert floors["κ ln(κ/ε)"][3] < 1
    assert table2_claims.loop(floors).verdict == "only in part"
    assert table2_claims.loop({"a": {1: 2.0, 2: 0.5}, "b": {1: 0.5}}).verdict == "reproduced"
    assert table2_claims.loop({"a": {1: 2.0}, "b": {1: 1.5}}).verdict == "not reproduced"


# Theorem 4


def theorem4(dip=1.0, end=1.0, slope=2.0, warm_end=1e-20, zero_end=1.0, others=True):
    """What was found; where not all are `others`, it is so of the longest loops alone."""
    few = lambda value, sound, last: value if others or last else sound  # noqa: E731
    longest = lower_bound.LOOPS[-1]
    floor = {n: 100.0 / n for n in lower_bound.LOOPS}

    def curve(n, least, last):
        return np.array([1e3, 10 * floor[n], least * floor[n] * 1.0000001, last * floor[n]])

    return lower_bound_claims.claims(
        lower_bound.Found(
            itd={
                n: curve(n, few(dip, 1.0, n == longest), few(end, 1.0, n == longest))
                for n in lower_bound.LOOPS
            },
            zero={n: curve(n, 1.0, zero_end) for n in lower_bound.LOOPS},
            warm={
                pair: np.array([1.0, few(warm_end, 1e-20, pair == lower_bound.WARM[-1])])
                for pair in lower_bound.WARM
            },
            floor=floor,
            limits=np.array(lower_bound.KAPPAS) ** slope,
        )
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("reproduced", "reproduced", "reproduced")),
        ({"slope": 3.0}, ("reproduced",) * 3),  # Ω(κ²) is a bound from below
        ({"slope": 1.0}, ("only in part", "reproduced", "reproduced")),
        ({"dip": 0.5}, ("only in part", "only in part", "only in part")),
        ({"dip": 0.5, "slope": 1.0}, ("not reproduced", "only in part", "only in part")),
        ({"end": 2.0}, ("reproduced", "only in part", "only in part")),
        ({"warm_end": 1e-3}, ("reproduced", "reproduced", "only in part")),
        ({"warm_end": 1e-3, "end": 0.1}, ("only in part", "only in part", "not reproduced")),
        ({"dip": 0.5, "others": False}, ("only in part",) * 3),  # of a single N it is enough
        (
            {"warm_end": 1e-3, "end": 2.0, "others": False},
            ("reproduced", "only in part", "not reproduced"),
        ),
    ],
)
def test_the_verdicts_on_the_lower_bound(given, expected):
    claims = theorem4(**given)
    assert tuple(claim.verdict for claim in claims) == expected
    least = min(given.get("dip", 1.0), given.get("end", 1.0))
    assert f"the least iterate is {least:.4f}" in claims[0].why


def test_the_warm_start_is_counted():
    words = theorem4(zero_end=3.0)[-1].why
    assert "replaced by Q for 0 of 4 Q" in words
    assert "replaced by Q for 4 of 4 Q" in theorem4()[-1].why
