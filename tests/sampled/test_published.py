"""Step sizes that nobody gave are those that were published."""

import inspect

import pytest

import biloop as bl
from biloop.schemes import BY_NAME

S = bl.schemes
# Powers of k by which the papers shorten the steps of y, and what is averaged or multiplied.
POWERS = {
    S.soba: {"inner_step": -2 / 5, "linear_step": -2 / 5},
    S.fsla: {"inner_step": -1 / 2, "linear_step": -1 / 2, "weight": -1 / 2},
    S.bsa: {"inner_step": -1 / 2},
    S.ttsa: {"inner_step": -2 / 5},
    S.sustain: {"inner_step": -1 / 3, "weight": -2 / 3},
    S.mrbo: {"inner_step": -1 / 3, "weight": -2 / 3},
    S.rsvrb: {"inner_step": -1 / 3, "weight": -2 / 3},
    S.f2sa: {"inner_step": -4 / 7, "multiplier": 1 / 7},
    S.f3sa: {"inner_step": -2 / 5, "multiplier": 1 / 5, "weight": -4 / 5},
    S.f2sa_2: {"inner_step": -4 / 7, "multiplier": 1 / 7},
}
# Constants that depend on what a default does not know: the docstring says on what.
UNKNOWN = {
    S.ma_soba: "K^(−½)", S.alset: "K^(−½)", S.stable: "K^(−½)", S.saba: "(n + m)^(−⅔)",
    S.srba: "(n + m)^(−½)",
}  # fmt: skip
CONSTANT = [
    S.spaba, S.amigo, S.batch_no_loop, S.batch_n_loop, S.batch_q_loop, S.stocbio, S.vrbo, S.bome,
    S.pzobo, S.hozog, *UNKNOWN,
]  # fmt: skip
NUMBERS = ("inner_step", "linear_step", "y_step", "weight", "multiplier")


def powers(scheme):
    """The power of k + 1 of each default, 0 for a constant."""
    given = inspect.signature(scheme).parameters
    defaults = {name: given[name].default for name in NUMBERS if name in given}
    return {name: v[1] if isinstance(v, tuple) else 0 for name, v in defaults.items()}


@pytest.mark.parametrize("scheme", [*POWERS, *CONSTANT], ids=lambda scheme: scheme.__name__)
def test_defaults_are_the_published_powers(scheme):
    published = POWERS.get(scheme, {})
    assert powers(scheme) == {name: published.get(name, 0) for name in powers(scheme)}
    assert UNKNOWN.get(scheme, "") in (inspect.getdoc(scheme) or "")


def test_every_scheme_that_draws_rows_was_looked_up_and_the_table_says_the_same():
    drawn = [each for each in BY_NAME.values() if each.sampled]
    assert {each.function for each in drawn} | {S.bome, S.stable, S.rsvrb} == {*POWERS, *CONSTANT}
    for each in drawn:
        of_K = UNKNOWN.get(each.function) == "K^(−½)"
        assert each.schedules[0] == (-0.5 if of_K else powers(each.function)["inner_step"])
