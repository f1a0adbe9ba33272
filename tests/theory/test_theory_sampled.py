"""Published rates of sampled methods: as printed, as derived, and as the schemes have them."""

import math

import pytest

from biloop import theory
from biloop.schemes import BY_NAME, TABLE
from biloop.theory import SAMPLED_RATES as RATES
from biloop.theory import sampled_rates as derive

PRINTED = {
    # method: exponents of 1/ε and of n + m, as the papers state them
    "BSA": (3, 0), "TTSA": (5 / 2, 0), "ALSET": (2, 0), "stocBiO": (2, 0), "AmIGO": (2, 0),
    "SUSTAIN": (3 / 2, 0), "MRBO": (3 / 2, 0), "VRBO": (3 / 2, 0), "FSLA": (2, 0), "SOBA": (2, 0),
    "MA-SOBA": (2, 0), "SABA": (1, 2 / 3), "SRBA": (1, 1 / 2), "SPABA": (1, 1 / 2),
    "F2SA": (7 / 2, 0), "F3SA": (5 / 2, 0), "F2SA-2": (5 / 2, 0), "STABLE": (2, 0),
    "RSVRB": (3 / 2, 0), "SOBA, decreasing": (5 / 2, 0),
}  # fmt: skip


POWERS = {
    # those of the steps of y and v, and of x, where they decrease with k
    "BSA": (-1 / 2, -1 / 2), "TTSA": (-2 / 5, -3 / 5), "ALSET": (-1 / 2, -1 / 2),
    "SUSTAIN": (-1 / 3, -1 / 3), "MRBO": (-1 / 3, -1 / 3), "RSVRB": (-1 / 3, -1 / 3),
    "FSLA": (-1 / 2, -1 / 2), "SOBA": (-1 / 2, -1 / 2), "SOBA, decreasing": (-2 / 5, -3 / 5),
    "MA-SOBA": (-1 / 2, -1 / 2), "F2SA": (-4 / 7, -5 / 7), "F3SA": (-2 / 5, -3 / 5),
}  # fmt: skip


@pytest.mark.parametrize("method", RATES)
def test_steps_decrease_as_printed(method):
    assert (RATES[method].inner, RATES[method].outer) == POWERS.get(method, (0, 0))


@pytest.mark.parametrize("method", RATES)
def test_samples_have_the_printed_exponents(method):
    rate, (in_eps, in_samples) = RATES[method], PRINTED[method]
    eps, sizes = [10.0**-e for e in range(2, 6)], [10.0**e for e in range(2, 6)]
    fitted = theory.exponent([1 / e for e in eps], [rate.samples(e, 100.0) for e in eps])
    assert fitted == pytest.approx(in_eps, rel=1e-12)
    fitted = theory.exponent(sizes, [rate.samples(0.01, size) for size in sizes])
    assert fitted == pytest.approx(in_samples, rel=1e-9, abs=1e-12)
    assert rate.slope == pytest.approx(-1 / in_eps)
    assert rate.citation


def test_all_methods_are_there():
    assert set(PRINTED) == set(RATES)
    named = {scheme.name for scheme in TABLE if scheme.sampled and scheme.complexity}
    without = {"PZOBO"} | {name for name in named if BY_NAME[name].family == "AID on batches"}
    assert named - without <= set(RATES)


def powers(method):
    return -RATES[method].inner, -RATES[method].outer


@pytest.mark.parametrize(
    ("method", "derived"),
    [
        ("BSA", derive.growing_loop(0.5, 0.5)),
        ("TTSA", derive.single_loop(0.4, 0.6, smooth=False)),
        ("SOBA, decreasing", derive.single_loop(0.4, 0.6, smooth=False)),
        ("ALSET", derive.single_loop(0.5, 0.5)),
        ("SOBA", derive.single_loop(0.5, 0.5)),
        ("MA-SOBA", derive.single_loop(0.5, 0.5)),
        ("FSLA", derive.single_loop(0.5, 0.5)),
        ("stocBiO", derive.growing_batch()),
        ("AmIGO", derive.growing_batch()),
        ("SUSTAIN", derive.momentum(1 / 3)),
        ("MRBO", derive.momentum(1 / 3)),
        ("RSVRB", derive.momentum(1 / 3)),
        ("VRBO", derive.spider()),
        ("F2SA", derive.penalty(1, 5 / 7)),
        ("F3SA", derive.penalty(1, 3 / 5)),
        ("F2SA-2", derive.penalty(2)),
    ],
)
def test_exponents_follow_from_the_steps(method, derived):
    assert RATES[method].in_eps == pytest.approx(derived, rel=1e-12)


@pytest.mark.parametrize(("outer", "rate"), [(0.5, 0.5), (0.6, 0.4), (0.3, 0.3)])
def test_a_growing_loop_is_as_slow_as_the_slower_of_descent_and_variance(outer, rate):
    """1/(Kβ) = K^(s − 1) and β = K^(−s), for K^(1 + loop) samples."""
    assert derive.growing_loop(outer, 0.25) == pytest.approx(1.25 / rate)


def test_the_published_powers_are_the_best_of_their_kind():
    """No other steps give a smaller exponent: a grid around them, in twentieths."""
    grid = [i / 60 for i in range(1, 60)]

    def least(rule):
        found = []
        for p in grid:
            for s in grid:
                try:
                    found.append(rule(p, s))
                except ValueError:
                    continue
        return min(found)

    rough = least(lambda p, s: derive.single_loop(p, s, smooth=False))
    assert rough == pytest.approx(derive.single_loop(*powers("TTSA"), smooth=False))
    smooth = least(derive.single_loop)
    assert smooth == pytest.approx(derive.single_loop(*powers("SOBA")))
    assert least(lambda p, s: derive.momentum(s)) == pytest.approx(RATES["SUSTAIN"].in_eps)
    assert math.isclose(derive.tables(2 / 3), RATES["SABA"].in_samples)
    assert math.isclose(derive.tables(1 / 2), RATES["SRBA"].in_samples)


def test_steps_that_promise_nothing_are_refused():
    with pytest.raises(ValueError, match="do not bring ‖∇Φ‖² to zero: the exponent is 0"):
        derive.single_loop(0.5, 0.5, smooth=False)
    with pytest.raises(ValueError, match="eps must be"):
        RATES["SOBA"].samples(0.0)


def test_the_schemes_have_the_powers_of_their_papers():
    """Where a horizon K is known the powers are of K; the schemes have them in k."""
    for name, rate in RATES.items():
        scheme = BY_NAME.get(name)
        if scheme is not None and name != "SOBA" and (rate.inner or rate.outer):
            assert scheme.schedules == pytest.approx((rate.inner, rate.outer)), name
    decreasing = RATES["SOBA, decreasing"]
    assert BY_NAME["SOBA"].schedules == (decreasing.inner, decreasing.outer)


SUPERSCRIPTS = {"ε⁻¹": 1, "ε⁻²": 2, "ε⁻³": 3, "ε^(−3/2)": 1.5, "ε^(−5/2)": 2.5, "ε^(−7/2)": 3.5}
SIZES = {"(n + m)^⅔": 2 / 3, "(n + m)^½": 1 / 2}


def test_the_schemes_say_what_the_theory_says():
    for name, rate in RATES.items():
        if name in BY_NAME:
            *size, eps = BY_NAME[name].complexity.rpartition(" ")
            assert SUPERSCRIPTS[eps] == rate.in_eps, name
            assert SIZES.get(size[0], 0.0) == rate.in_samples, name
