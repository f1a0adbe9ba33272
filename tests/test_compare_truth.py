"""No run that fails is called converged: comparisons against exhaustive grids by hand."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from benchmarks.verdicts import ridge as penalties
from biloop.problems import sparse_classes, sparse_regression

from .aid_by_hand import paths
from .comparing import FINER, SPACING
from .helpers import stepped

LOOP, SEEDS = 10, (0, 1)
CLOSE = FINER * SPACING  # what tuning and snapshots may be off by


def ridge():
    return bl.problems.ridge(*sparse_regression(60, 40, relevant=8, noise=1.0, spread=1.0, seed=0))


def logistic():
    return bl.problems.logistic(*sparse_classes(100, 40, relevant=8, noise=1.0, seed=0), x0=-3.0)


def quadratic():
    return bl.problems.quadratic(4.0, p=20, q=30, seed=0)


@pytest.mark.parametrize(
    ("make", "budget", "some_touch_and_fail"),
    [
        pytest.param(ridge, 600, True, marks=pytest.mark.slow),
        pytest.param(logistic, 600, True, marks=pytest.mark.slow),
        pytest.param(quadratic, 600, False, marks=pytest.mark.slow),
    ],
    ids=["ridge", "logistic", "quadratic"],
)
def test_the_comparison_agrees_with_an_exhaustive_grid(make, budget, some_touch_and_fail):
    """All (N, Q) with 25 outer step sizes each, and with the one that was found."""
    made = make()
    names = ["No-loop AID", "N-loop AID", "Q-loop AID", "N-Q-loop AID"]
    found = bl.compare(
        made.problem, made.x0, made.y0, schemes=names, N=LOOP, Q=LOOP, seeds=SEEDS, budget=budget
    )
    alpha, aim = found.settings["inner step size"], (found.target, found.target_value)
    chosen = [scheme.outer_step for scheme in found.schemes]
    betas = math.sqrt(min(chosen) * max(chosen)) * 10.0 ** np.arange(-2, 2.01, 1 / 6)
    touched, failed, costs = 0, 0, {}
    for scheme in found.schemes:
        start = made.problem, jnp.asarray(made.x0), jnp.asarray(made.y0)
        own, *others = paths(*start, scheme.N, scheme.Q, alpha, [scheme.outer_step, *betas], budget)
        # The run that is reported ends as it does by hand, and costs as much.
        assert own.failed == scheme.runs[0].status.failed
        assert math.isinf(own.cost(*aim)) == math.isinf(scheme.costs[0])
        if math.isfinite(scheme.costs[0]):
            exact = own.cost(*aim)
            # Between snapshots, a tenth of k apart, it may leave the target for a moment.
            assert scheme.costs[0] <= SPACING * exact + own.step_cost
            assert exact <= SPACING * scheme.costs[0] + 2 * own.step_cost
        # Healthy step sizes are found where they exist.
        best = min(path.cost(*aim) for path in (own, *others))
        assert best > 0.9 * budget or scheme.costs[0] <= CLOSE * best
        costs[scheme.N, scheme.Q] = best
        failed += sum(path.failed for path in others)
        touched += sum(path.failed and path.touches(*aim) for path in others)
    assert failed > 0
    assert (touched > 0) == some_touch_and_fail
    assert_verdict_follows(found, costs)


@pytest.mark.slow
def test_a_scheme_that_misses_is_refined_where_measuring_takes_long_too():
    """Between a step size that is too small and one that fails lie some that arrive."""
    made = bl.problems.load("ridge")
    names, aim = ["No-loop AID", "N-Q-loop AID"], 4.2e-4
    found = bl.compare(
        made.problem, made.x0, made.y0, schemes=names, N=LOOP, Q=LOOP, seeds=[0], target=aim
    )
    start, target = (made.problem, made.x0, made.y0), (found.target, found.target_value)
    (arrives,) = paths(*start, 1, 1, found.settings["inner step size"], [1.65], 800)
    assert math.isfinite(arrives.cost(*target))
    assert found["No-loop AID"].costs[0] <= CLOSE * arrives.cost(*target)


def assert_verdict_follows(comparison, costs):
    """From the smallest cost to the target of each (N, Q)."""
    pairs = list(itertools.product((1, LOOP), repeat=2))
    for sentence, loop in zip(comparison.verdict, (0, 1), strict=False):
        having = min(costs[pair] for pair in pairs if pair[loop] > 1)
        lacking = min(costs[pair] for pair in pairs if pair[loop] == 1)
        if lacking > CLOSE * having:
            assert " pays: " in sentence
        elif having > CLOSE * lacking:
            assert " does not pay: " in sentence


def poisson(samples=200, features=30, seed=0):
    """Poisson regression with a penalty softplus(x) for each feature; y has an intercept too."""
    rng = np.random.default_rng(seed)
    X = np.concatenate(
        [0.3 * rng.normal(size=(2 * samples, features)), np.ones((2 * samples, 1))], axis=1
    )
    weights = np.append(1.5 * rng.normal(size=features) * (np.arange(features) < 8), 1.5)
    Y = rng.poisson(np.exp(np.clip(X @ weights, -4, 3))).astype(float)

    def loss(y, X, Y):
        return jnp.mean(jnp.exp(X @ y) - Y * (X @ y))

    def inner(x, y, X, Y):
        penalties = jnp.append(jax.nn.softplus(x), 1e-3)
        return loss(y, X, Y) + 0.5 * jnp.sum(penalties * y**2)

    problem = bl.Problem(
        inner,
        lambda x, y, X, Y: loss(y, X, Y),
        inner_data=(X[:samples], Y[:samples]),
        outer_data=(X[samples:], Y[samples:]),
    )
    return problem, jnp.full(features, -2.0), jnp.zeros(features + 1)


@pytest.fixture(scope="module")
def counts():
    return poisson()


def largest_curvature(problem, x, y):
    hessian = jax.hessian(lambda y: problem.inner(x, y, *problem.inner_data))(y)
    return float(np.linalg.eigvalsh(hessian)[-1])


AID_SCHEMES = ["No-loop AID", "N-loop AID", "Q-loop AID", "N-Q-loop AID", "BA"]


@pytest.mark.slow
def test_a_curvature_that_grows_on_the_way_to_y_is_met(counts):
    """1/L at y0 would be unstable at y*(x0): no scheme of the comparison may diverge by it."""
    problem, x0, y0 = counts
    exact = bl.Exact()
    _, solved, _ = stepped(exact, problem, x0, y0)
    there = largest_curvature(problem, x0, solved.y)
    assert there > 2 * largest_curvature(problem, x0, y0)
    found = bl.compare(
        *counts, schemes=[*AID_SCHEMES, "Adaptive"], N=10, Q=10, seeds=SEEDS, budget=800
    )
    assert found.settings["inner step size"] <= 1.01 / there
    assert all(scheme.status != "diverged" for scheme in found.schemes)
    assert sum(math.isfinite(scheme.cost) for scheme in found.schemes) >= 3
    assert not any("not decided" in sentence for sentence in found.verdict)
    for scheme in found.schemes:
        assert all(run.end < 0.1 * run.norm2[0] for run in scheme.runs)
    assert min(scheme.outer_step for scheme in found.schemes[:-1]) > 1e-3


@pytest.mark.slow
def test_a_step_that_is_too_long_is_shortened_to_what_the_failure_names(counts, monkeypatch):
    """Where the first look says 1/L for an L that is far too small."""
    sizes = bl.estimate.StepSizes
    wrong = sizes(**dict.fromkeys(sizes._fields, 1) | {"inner": 20.0, "linear": 20.0})
    monkeypatch.setattr("biloop.comparison.terms.step_sizes", lambda *a, **k: wrong)
    found = bl.compare(*counts, schemes=["N-Q-loop AID"], N=10, Q=10, seeds=[0], budget=300)
    (scheme,) = found.schemes
    assert scheme.status != "diverged"
    assert found.settings["inner step size"] < 1.0
    assert "where all runs with" in found.settings["the inner step size is"]


def test_step_sizes_that_are_given_are_kept_and_their_failure_is_explained(counts):
    found = bl.compare(
        *counts, schemes=["N-loop AID"], N=10, seeds=[0], budget=200, inner_step=20.0
    )
    (scheme,) = found.schemes
    assert found.settings["inner step size"] == 20.0
    assert scheme.status == "diverged"
    assert scheme.cost == math.inf
    assert "The inner step size 20 is above the largest stable one" in " ".join(found.verdict)
    assert found.payload()["schemes"][0]["cause"]
    assert "inner_step=20" in found.call


def test_it_says_what_it_does_where_there_is_no_terminal(counts, capsys, monkeypatch):
    """A clock on which each look takes a minute: there is always something to be said again."""
    minutes = itertools.count(step=60.0)
    monkeypatch.setattr("time.monotonic", lambda: next(minutes))
    bl.compare(*counts, schemes=["No-loop AID"], seeds=[0], budget=60)
    said = capsys.readouterr().err
    assert "tuning No-loop AID, N = 1, Q = 1 (1/1)" in said
    assert "measuring ‖∇Φ‖² (" in said
    bl.compare(*counts, schemes=["No-loop AID"], seeds=[0], budget=60, progress=False)
    assert capsys.readouterr().err == ""


def test_newtons_method_of_the_reference_ends_where_nothing_falls():
    """With curvatures of 1 and 1e34 no step can be had from H; it took its hundred all the same."""
    problem, _, y0 = penalties(60, features=3)
    x = jnp.array([80.0, 40.0, -3.0])
    exact = bl.Exact()
    _, _, info = stepped(exact, problem, x, y0)
    assert bl.Status(int(info.result)) is bl.Status.NEWTON_FAILED
    assert int(info.cost.gradients) < 10
