"""How a run that does not fail ends, and that it says no more than what is known."""

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.ends import falls_for_ever, has_settled, relative_epsilon

from .helpers import logistic_problem, random_quadratic, relative_error, stepped

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
CERTAIN = bl.AID(bl.GradientDescent(1 / QUADRATIC.L, 200), bl.CG(8))


def exact_norm(problem, x, y):
    h, _, info = stepped(bl.Exact(), problem, x, y)
    assert int(info.result) == 0
    return float(jnp.linalg.norm(h))


@pytest.mark.parametrize(
    "problem", [(QUADRATIC.problem, X, Y), logistic_problem()], ids=["quadratic", "logistic"]
)
def test_nothing_has_to_be_set(problem):
    """‖∇Φ‖ falls by a factor of 10⁵, as Exact has it, and the run ends by itself."""
    problem, x, y = problem
    run = bl.solve(problem, x, y)
    assert run.status in (bl.Status.CONVERGED, bl.Status.SETTLED)
    assert run.steps < 1000
    assert exact_norm(problem, run.x, run.y) <= 2e-4 * max(run.trace["hypergradient_norm"])


@pytest.fixture(scope="module")
def scaled():
    """The end of a run where g and f are multiplied by numbers, in one program."""
    problem = QUADRATIC.problem

    def inner(x, y, data, g):
        return g["scale"] * problem.inner(x, y, data)

    def outer(x, y, data, f):
        return f["scale"] * problem.outer(x, y, data)

    def run(g, f):
        data = [(*problem.inner_data, {"scale": g}), (*problem.outer_data, {"scale": f})]
        return bl.solve(bl.Problem(inner, outer, *data), X, Y)

    return run


@pytest.mark.parametrize(("g", "f"), [(1e-6, 1.0), (1e6, 1.0), (1.0, 1e-6), (1.0, 1e6)])
def test_no_scale_is_absolute(scaled, g, f):
    """g and f times any number: the same end, at the same x."""
    run, plain = scaled(g, f), scaled(1.0, 1.0)
    assert run.status is plain.status
    assert relative_error(run.x, plain.x) < 1e-3


def test_a_small_h_that_is_wrong_is_not_called_converged():
    """ITD with N = 1 settles where its own h vanishes, and ∇Φ does not."""
    method = bl.ITD(bl.GradientDescent(1 / QUADRATIC.L, 1))
    run = bl.solve(QUADRATIC.problem, X, Y, method, outer=0.05, steps=3000, epsilon=1e-10)
    assert run.trace["hypergradient_norm"][-1] ** 2 <= 1e-10
    assert exact_norm(QUADRATIC.problem, run.x, run.y) > 1e-2
    assert run.status is bl.Status.UNCERTAIN
    assert "not known to be accurate enough" in run.message


def test_a_run_goes_on_after_a_small_h_that_was_wrong():
    """∇_x f vanishes at the start, and with Q = 0 from v = 0 so does h: no reason to stop there.

    After n steps it is looked at again when n/2 more were made: for k = 0, 2, 4 and 7. From k = 6
    on h = x − 1 is halved in each step.
    """
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2)
    )
    method = bl.AID(
        bl.GradientDescent(1.0, 1),
        bl.Richardson(1.0, steps=lambda k: jnp.where(k < 6, 0, 1)),
    )
    run = bl.solve(problem, jnp.zeros(2), jnp.zeros(2), method, outer=0.5, steps=200, epsilon=1.0)
    assert run.trace["hypergradient_norm"][5] == 0.0
    np.testing.assert_array_equal(np.isnan(run.trace["linear_residual"]), np.arange(8) < 6)
    assert run.status is bl.Status.CONVERGED
    assert len(run.trace) == 8
    np.testing.assert_allclose(run.x, 0.5)


def test_a_run_that_converged_says_so_of_the_true_gradient():
    run = bl.solve(QUADRATIC.problem, X, Y, CERTAIN, outer=0.1, steps=2000, epsilon=1e-8)
    assert run.status is bl.Status.CONVERGED
    assert np.linalg.norm(QUADRATIC.hypergradient(np.asarray(run.x))) <= 1.1e-4


def test_a_loop_that_misses_its_tolerance_at_the_last_x_is_not_passed_over():
    short = bl.AID(bl.GradientDescent(0.01, 1, tolerance=1e-8), bl.CG(6))
    run = bl.solve(QUADRATIC.problem, X, Y, short, outer=0.05, steps=5)
    assert run.status is bl.Status.UNCONVERGED
    late = bl.AID(
        bl.GradientDescent(0.1, steps=lambda k: jnp.where(k < 3, 1, 500), tolerance=1e-8), bl.CG(6)
    )
    run = bl.solve(QUADRATIC.problem, X, Y, late, outer=0.05, steps=5)
    assert run.status is bl.Status.COMPLETED
    assert "In 3 of 5 steps a loop stopped before" in run.message


def test_only_rounding_is_left():
    """From the solution nothing can become smaller; a run without an end of its own ends there."""
    best = bl.solve(QUADRATIC.problem, X, Y, CERTAIN, outer="auto", steps=100_000)
    assert best.status is bl.Status.SETTLED
    assert best.steps < 100_000
    assert np.linalg.norm(QUADRATIC.hypergradient(np.asarray(best.x))) < 1e-10


def test_without_a_minimum_a_run_says_so():
    """Φ(x) = −x⁴: with a step size x grows without end."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: -jnp.sum(y**4))
    method = bl.AID(bl.GradientDescent(1.0, 1), bl.Richardson(1.0, 1))
    run = bl.solve(problem, jnp.ones(1), jnp.ones(1), method, outer=1e-3, steps=100_000)
    assert run.status in (bl.Status.UNBOUNDED, bl.Status.UPDATE_NOT_FINITE) or run.status.failed
    assert run.status.failed
    assert np.all(np.isfinite(run.x))


class Columns:
    """A record of f and ‖h‖, one of them UNDONE where it says so."""

    def __init__(self, value, norm, undone=()):
        result = np.zeros(len(value), int)
        result[list(undone)] = bl.Status.UNDONE
        self._columns = {"value": value, "hypergradient_norm": norm, "result": result}

    def judged(self):
        return self._columns


def test_points_that_were_left_again_do_not_set_the_scale_of_an_end():
    record = Columns(np.ones(4), np.asarray([2.0, 1e6, 1e3, 1.0]), undone=[1])
    assert relative_epsilon(record, X) == pytest.approx((1e-4 * 1e3) ** 2)
    record.judged()["result"][2] = bl.Status.NONCONVEX  # h is no gradient there
    assert relative_epsilon(record, X) == pytest.approx((1e-4 * 2.0) ** 2)
    record.judged()["result"][[0, 3]] = bl.Status.NONCONVEX  # but there is nothing else
    assert relative_epsilon(record, X) == pytest.approx((1e-4 * 1e3) ** 2)
    single = jnp.asarray(X, jnp.float32)
    assert relative_epsilon(record, single) == pytest.approx((2**-23) ** (2 / 3) * 1e6)


@pytest.mark.parametrize(
    ("steps", "fall", "settled"),
    [(40, 0.0, True), (39, 0.0, False), (40, 1e-12, False), (40, 2e-14, True)],
)
def test_a_run_has_settled_when_twenty_steps_of_forty_bring_nothing(steps, fall, settled):
    """f = 1, after a first value of 100, falls by no more than the rounding of 100."""
    value = np.ones(steps)
    value[0] = 100.0
    value[-20:] -= fall
    assert has_settled(Columns(value, np.ones(steps)), X) == settled


@pytest.mark.parametrize(("norm", "settled"), [(0.95, True), (0.85, False)])
def test_a_run_whose_h_falls_has_not_settled(norm, settled):
    """By a tenth in the last twenty steps; what happened before them does not count."""
    norms, value = np.full(60, 4.0), np.full(60, 2.0)
    norms[20:], value[20:] = 1.0, 1.0
    norms[-1] = norm
    assert has_settled(Columns(value, norms), X) == settled


@pytest.mark.parametrize(
    ("value", "norm", "for_ever"),
    [
        ((1.0, 0.5, -2e12), (1.0, 1.0, 1.0), True),
        ((1.0, 0.5, -0.9e12), (1.0, 1.0, 1.0), False),  # against |f| at first, which is larger
        ((0.1, -0.9, -0.9e12), (1.0, 1.0, 1.0), False),  # ... or against the first step
        ((1.0, 0.5, -2e12), (1.0, 1.0, 0.4), False),  # a minimum may be there
        ((1.0, 1.0, -2e12), (1.0, 1.0, 1.0), False),  # at first it did not fall
        ((1.0,), (1.0,), False),
    ],
)
def test_f_falls_for_ever_where_h_does_not(value, norm, for_ever):
    told = falls_for_ever(Columns(np.asarray(value), np.asarray(norm)))
    assert bool(told) == for_ever
    if told:
        assert told == "f went from 1 to -2e+12, where ‖h‖ is 1 and was 1 at first."
