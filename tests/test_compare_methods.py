"""Methods and outer steps of one's own in a comparison, and the table of schemes that it reads."""

import math

import jax
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.comparison.candidates import own_variants

BUDGET = 200
NUMBERS = {"N": 4, "Q": 3, "inner_step": 0.1, "linear_step": 0.05}


@pytest.fixture(scope="module")
def made():
    return bl.problems.quadratic(8.0, p=4, q=6)


def compare(made, methods, **given):
    start = made.problem, made.x0, made.y0
    given = {"schemes": [], "seeds": [0], "budget": BUDGET, "progress": False} | given
    return bl.compare(*start, methods, **given)


def cg():
    return bl.AID(bl.GradientDescent(0.5, steps=4), bl.CG(steps=4))


@pytest.mark.parametrize(
    ("outer", "tune", "center"),
    [
        (None, None, None),
        (0.3, None, 0.3),
        (0.3, {"outer": None}, 0.3),
        (0.3, {"outer": 0.7}, 0.7),
        (None, {"inner.step_size": [0.1, 0.2]}, None),
    ],
)
def test_a_search_begins_where_it_is_told_to(outer, tune, center):
    variants = list(own_variants({"mine": bl.Candidate(cg(), outer, tune)}))
    assert [each.search for each in variants] == ["outer"] * len(variants)
    assert [each.center for each in variants] == [center] * len(variants)
    assert len(variants) == (2 if tune and "outer" not in tune else 1)


@pytest.mark.slow
def test_a_method_is_tuned_like_a_scheme(made):
    """The same method, by name and as one's own: the same numbers come out."""
    found = compare(made, None, schemes=["N-Q-loop AID"], N=4, Q=4, inner_step=0.5, linear_step=0.5)
    (named,) = found.schemes
    own = bl.schemes.n_q_loop(N=4, Q=4, inner_step=0.5, linear_step=0.5)
    (mine,) = compare(made, {"mine": own}, target=found.target).schemes
    assert mine.outer_step == named.outer_step
    np.testing.assert_array_equal(mine.costs, named.costs)
    assert mine.name == "mine"


@pytest.mark.slow
def test_pairs_candidates_and_optax_beside_the_schemes(made):
    methods = {
        "pair": (cg(), optax.adam(0.1)),
        "rates": bl.Candidate(cg(), tune={"outer": [optax.adam(1e-6), optax.adam(0.1)]}),
        "steps": bl.Candidate(cg(), outer=0.3, tune={"inner.step_size": [1e-3, 0.5]}),
        "searched": bl.Candidate(cg(), outer=bl.Projected(0.1, bl.Box(-9.0, 9.0)),
                                 tune={"outer.inner_step.step_size": 0.1}),
    }  # fmt: skip
    found = compare(made, methods, schemes=["Adaptive"])
    assert [each.name for each in found.schemes] == ["Adaptive", *methods]
    assert found["pair"].outer == "methods['pair'][1]"
    assert found["pair"].outer_step == "own"
    # Of the two in each list the one that gets somewhere is kept.
    np.testing.assert_array_equal(found["rates"].costs, found["pair"].costs)
    assert found["steps"].loops == "inner.step_size = 0.5"
    assert "with inner.step_size = 0.5" in found["steps"].code
    assert "outer.inner_step.step_size = " in found["searched"].loops
    assert math.isfinite(found["searched"].cost)
    # The trace is that of solve with the same settings.
    run = bl.solve(made.problem, made.x0, made.y0, cg(), outer=optax.adam(0.1), steps=10)
    trace = found.traces["pair"][0]
    np.testing.assert_allclose(trace["value"][:10], run.trace["value"], rtol=1e-9)
    shown = str(found)
    assert all(name in shown for name in methods)
    assert "methods=methods" in found.call


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ([cg()], "methods must be a dictionary from names to methods"),
        ({"BA": cg()}, "needs a name that no scheme has, got 'BA'"),
        ({"mine": 3}, "must be a Method, a pair of a Method and an outer step, or a Candidate"),
        ({"mine": bl.Candidate(cg(), tune={"inner.stepsize": [1.0]})},
         "no 'inner.stepsize' to tune; the nearest path is 'inner.step_size'"),
        ({"mine": bl.Candidate(cg(), tune={"inner.step_size": 1.0})},
         "asks for a search over 'inner.step_size' and 'outer'; there can be one"),
        ({"mine": bl.Candidate(cg(), outer=optax.adam(0.1), tune={"outer": 0.1})},
         "has an outer step that is no number: give a list"),
        ({"mine": bl.Candidate(cg(), tune={"outer": -1.0})}, "begins at a number above 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused(made, methods, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        compare(made, methods)


# the table


@pytest.mark.parametrize("scheme", bl.schemes.TABLE, ids=lambda scheme: scheme.key)
def test_the_line_of_code_makes_what_the_table_makes(scheme):
    code = eval(scheme.code(**NUMBERS), {"bl": bl})
    assert repr(code) == repr(scheme.make(**NUMBERS))


@pytest.mark.parametrize("scheme", bl.schemes.TABLE, ids=lambda scheme: scheme.key)
def test_an_outer_step_costs_what_the_table_says(scheme, made):
    if scheme.cost is None or scheme.sampled:  # in passes: tests/sampled
        return
    run = bl.solve(
        made.problem, made.x0, made.y0, scheme.make(**NUMBERS), outer=0.01, steps=3, progress=False
    )
    lengths = (NUMBERS[loop] if loop in scheme.loops else 1 for loop in ("N", "Q"))
    step = scheme.cost(*lengths)
    assert run.cost == bl.Cost(3 * step.gradients, 3 * step.products)


@pytest.mark.parametrize("scheme", bl.schemes.TABLE, ids=lambda scheme: scheme.key)
def test_every_scheme_can_be_compared_by_name(scheme):
    """Those that draw rows have a length for each loop; others share a program over all."""
    if "batch" in scheme.arguments:
        assert scheme.make(**NUMBERS, batch=4).counts_rows
    else:
        scheme.make_shared(20, N=5, Q=5, inner_step=0.1, linear_step=0.1)


def test_schemes_of_a_family_share_a_program():
    """Their settings differ in numbers alone."""
    shared = [
        scheme.make_shared(20, N=n, Q=q, inner_step=0.1, linear_step=0.1)
        for scheme, n, q in zip(bl.schemes.TABLE[:4], (1, 5, 1, 5), (1, 1, 5, 5), strict=True)
    ]
    assert len({jax.tree.structure(method) for method in shared}) == 1
    assert len({str(jax.tree.leaves(method)) for method in shared}) == 4


def test_the_theory_speaks_of_the_same_schemes():
    names = {scheme.name for scheme in bl.schemes.TABLE}
    assert set(bl.theory.SCHEMES) <= names
