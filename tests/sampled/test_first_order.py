"""Penalties, differences, a barrier, chance and matrices against ∇Φ in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from ..helpers import advanced, logistic_problem, relative_error, stepped
from .common import Hand, everything, path, regression, rows_of, samples


def at_convergence(method, steps=300):
    """h at a fixed x, and ∇Φ there."""
    problem, x, y = regression()
    *_, h, _ = path(method, problem, x, y, steps, 0.0)
    return np.asarray(h[-1]), Hand(problem).hypergradient(np.asarray(x))


@pytest.mark.parametrize(("scheme", "order"), [("f2sa", 1), ("f2sa_2", 2)])
def test_the_bias_of_a_penalty(scheme, order):
    """O(1/λ) for one-sided differences, O(1/λ²) for central ones."""
    errors = []
    for multiplier in (10.0, 40.0, 160.0):
        method = getattr(bl.schemes, scheme)(None, 0.3, multiplier=multiplier)
        h, truth = at_convergence(method)
        errors.append(relative_error(h, truth))
    slopes = np.diff(np.log(errors)) / np.log(4)
    np.testing.assert_allclose(slopes, -order, atol=0.15)


@pytest.mark.parametrize(
    "estimator",
    [bl.Storm(0.3), bl.Recursive(5), bl.Recursive(probability=0.2), bl.Saga()],
    ids=repr,
)
def test_penalties_with_all_rows_are_plain_whatever_estimates(estimator):
    """In particular an estimate is compared with what the last one saw, x and both copies."""
    problem, x, y = regression()
    make = lambda e: bl.Penalty(everything(), 0.2, 20.0, 2, e)  # noqa: E731
    found = path(make(estimator), problem, x, y, 30)[:4]
    for have, want in zip(found, path(make(bl.Plain()), problem, x, y, 30)[:4], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-11, atol=1e-12)


def test_penalties_draw_rows_anew_in_each_step():
    """Else a run would see its first batch alone."""
    (problem, x, y), k = regression(), jnp.zeros((), jnp.int32)
    method = bl.schemes.f2sa((4, 5), 0.2, multiplier=5.0)
    state = method.init(problem, x, y)
    h, after, _ = advanced(method, problem, x, state, k)
    later, *_ = advanced(method, problem, x, state._replace(draws=after.draws), k)
    assert not np.allclose(later, h, rtol=1e-3)


def test_spider_in_a_penalty_sees_all_rows_in_time():
    """With a period of 1 all rows in the first move of each outer step, and for h."""
    problem, x, y = regression()
    method = bl.Penalty(samples(), 0.2, 20.0, 1, bl.Recursive(1))
    found = path(method, problem, x, y, 30)[:4]
    expected = path(bl.Penalty(everything(), 0.2, 20.0, 1), problem, x, y, 30)[:4]
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-11, atol=1e-13)


def test_differences_are_products():
    problem, x, y = logistic_problem()
    for scheme in ("soba", "saba"):
        method = getattr(bl.schemes, scheme)(8, 0.5, 0.5)
        exact = path(method, problem, x, y, 30)
        own = bl.SingleLoop(
            method.samples, 0.5, 0.5, method.estimators, derivatives=bl.Differences(1e-3)
        )
        found = path(own, problem, x, y, 30)
        assert relative_error(found[:4], exact[:4]) < 1e-5
        assert not np.array_equal(found[0], exact[0])
        # Two gradients for each of the two products; no products.
        assert int(found[4].samples.products[0]) == 0
        assert int(found[4].samples.inner[0]) == 8 + 4 * 8


@pytest.mark.parametrize("scheme", ["pzobo", "hozog"])
def test_chance_is_itd_on_average(scheme):
    """The mean over u of ⟨∂F/∂x, u⟩ u, with F = f(x, y^N(x)), which ITD differentiates."""
    problem, x, y = regression()
    directions = 40_000
    method = getattr(bl.schemes, scheme)(None, 0.2, N=6, directions=directions, radius=1e-4)
    h, state, _ = jax.jit(method)(problem, x, method.init(problem, x, y), 0)
    itd = bl.ITD(bl.GradientDescent(0.2, 6))
    truth, expected, _ = jax.jit(itd)(problem, x, itd.init(problem, x, y), 0)
    np.testing.assert_allclose(state.y, expected.y, rtol=1e-12)
    scale = np.linalg.norm(truth) * (4 / directions) ** 0.5  # a deviation, about
    assert np.linalg.norm(h - truth) < 4.5 * scale


@pytest.mark.parametrize("scheme", ["stable", "rsvrb"])
def test_matrices_with_all_rows_reach_the_solution(scheme):
    """h is ∇Φ at convergence, and x ends where it is zero."""
    problem, x, y = regression()
    method = getattr(bl.schemes, scheme)(None, 0.3, mu=0.1)
    h, truth = at_convergence(method, 100)
    assert relative_error(h, truth) < 1e-10
    xs, *_, infos = path(method, problem, x, y, 400, 1.0)
    assert np.linalg.norm(Hand(problem).hypergradient(np.asarray(xs[-1]))) < 1e-8
    # STORM evaluates twice: of the matrices q products with H and as many with ∇_x∇_y g.
    n, m, twice = problem.inner_samples, problem.outer_samples, 1 + (scheme == "rsvrb")
    counts = [int(rows[-1]) for rows in infos.samples]
    assert counts == [twice * n, twice * 2 * m, 2 * 2 * y.size * n]


def test_matrices_follow_x():
    """With full batches and a quadratic g, y is y*(x) after every move of x, to first order."""
    problem, x, y = regression()
    y = at_minimiser(problem, x)
    method = bl.schemes.stable(None, 1e-9, mu=0.01)
    xs, ys, *_ = path(method, problem, x, y, 3, 1e-2)
    expected = at_minimiser(problem, xs[1])
    assert relative_error(ys[2], expected) < 0.01 * relative_error(y, expected)


def at_minimiser(problem, x):
    X, t = map(np.asarray, problem.inner_data)
    H = X.T @ X / len(X) + np.diag(np.exp(np.asarray(x)))
    return jnp.asarray(np.linalg.solve(H, X.T @ t / len(X)))


def test_eigenvalues_below_mu_are_lifted():
    problem, x, y = regression()
    method = bl.schemes.stable(None, 0.3, mu=100.0)
    h, _ = at_convergence(method, 50)
    y = np.asarray(at_minimiser(problem, x))
    hand, j = Hand(problem), np.arange(20)
    v = hand.outer_y(j, x, y) / 100.0
    np.testing.assert_allclose(h, 0.1 * np.asarray(x) - hand.cross(None, x, y, v), rtol=1e-8)


def test_bome_ends_near_a_solution():
    """At its fixed point ∇f + λ∇q = 0: both f and q cannot go down together."""
    problem, x, y = regression()
    method = bl.schemes.bome(0.3, y_step=0.01, N=20)
    before = Hand(problem).hypergradient(np.asarray(x))
    xs, ys, _, _h, info = path(method, problem, x, y, 3000, 0.01)
    after = Hand(problem).hypergradient(np.asarray(xs[-1]))
    assert np.linalg.norm(after) < 0.1 * np.linalg.norm(before)
    close = at_minimiser(problem, xs[-1])
    assert np.linalg.norm(ys[-1] - close) < 0.05 * np.linalg.norm(close)
    np.testing.assert_array_equal(info.cost.gradients, [25] * 3000)


@pytest.mark.parametrize("strength", [0.1, 2.0])
def test_a_step_of_bome_by_hand(strength):
    """½(y − x)² and f = y + x: ŷ = x + ¼ after two halvings of the way; q may fall by itself."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y + x))
    method = bl.schemes.bome(0.5, y_step=0.1, N=2, strength=strength)
    x = jnp.zeros(1)
    h, state, _ = stepped(method, problem, x, jnp.ones(1))
    q_x, q_y = -1.0 + 0.25, 1.0
    weight = max(0.0, strength - (q_x + q_y) / (q_x**2 + q_y**2))
    assert (weight > 0) == (strength > 1)
    np.testing.assert_allclose(h, 1.0 + weight * q_x)
    np.testing.assert_array_equal(state.y, jnp.ones(1))  # where f and h are
    np.testing.assert_allclose(state.ahead, 1.0 - 0.1 * (1.0 + weight * q_y))


def test_a_run_of_bome_goes_on_from_its_end_as_if_it_had_not_ended():
    problem, x, y = regression()
    method = bl.schemes.bome(0.3, y_step=0.1, N=2)
    half = bl.solve(problem, x, y, method, outer=0.1, steps=4)
    np.testing.assert_allclose(half.value, problem.outer(half.x, half.y, *problem.outer_data))
    whole = bl.solve(problem, x, y, method, outer=0.1, steps=8)
    rest = bl.solve(problem, half.x, half.y, method, outer=0.1, steps=4)
    np.testing.assert_array_equal(rest.x, whole.x)
    np.testing.assert_array_equal(rest.y, whole.y)


def neumann(problem, x, y, eta, terms):
    """∇_x f − ∇_x∇_y g v with so many terms of the series."""
    hand, i, j = Hand(problem), np.arange(24), np.arange(20)
    x, y = np.asarray(x), np.asarray(y)
    v, term = 0.0, hand.outer_y(j, x, y)
    for _ in range(terms):
        v, term = v + eta * term, term - eta * hand.hessian(i, x, y, term)
    return hand.outer_x(j, x, y) - hand.cross(i, x, y, v)


@pytest.mark.parametrize("scheme", ["mrbo", "vrbo", "sustain"])
def test_series_with_all_rows(scheme):
    """h is that of the truncated series where it was taken; of SUSTAIN, of one term."""
    problem, x, y = regression()
    terms = {"terms": 1} if scheme == "sustain" else {"Q": 3}
    method = getattr(bl.schemes, scheme)(None, 0.2, 0.3, **terms)
    xs, ys, _, h, _ = path(method, problem, x, y, 8)
    for k in range(1, 8):
        y = ys[k] if scheme == "vrbo" else ys[k - 1]
        expected = neumann(problem, xs[k - 1], y, 0.3, 1 if scheme == "sustain" else 4)
        np.testing.assert_allclose(h[k], expected, rtol=1e-10)


def test_vrbo_by_hand():
    """Every q steps all rows at (x_k, y_k); x; N steps of y, the first across the move of x."""
    problem, x, y = regression()
    method = bl.schemes.vrbo((4, 5), 0.2, 0.3, N=2, Q=0, period=3, key=2)
    _xs, ys, _, h, _ = path(method, problem, x, y, 10)
    hand, x, y = Hand(problem), np.asarray(x), np.asarray(y)
    everywhere = np.arange(24), np.arange(20)

    def at(rows, x, y):  # Q = 0: v = η ∇_y f
        i, j = rows
        v = 0.3 * hand.outer_y(j, x, y)
        return np.stack([hand.gradient(i, x, y), hand.outer_x(j, x, y) - hand.cross(i, x, y, v)])

    d, last, t = np.zeros((2, 3)), (x, y), 0
    for k in range(10):
        for _ in range(2):
            rows = rows_of(method, problem, t)
            d, last, t = d + at(rows, x, y) - at(rows, *last), (x, y), t + 1
            y = y - 0.2 * d[0]
        rows = rows_of(method, problem, t)
        d = at(everywhere, x, y) if k % 3 == 0 else d + at(rows, x, y) - at(rows, *last)
        last, t = (x, y), t + 1
        np.testing.assert_allclose(h[k], d[1], rtol=1e-10)
        x = x - 0.1 * d[1]
        np.testing.assert_allclose(ys[k], y, rtol=1e-10)
