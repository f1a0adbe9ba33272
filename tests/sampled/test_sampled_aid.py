"""AID on batches: with all rows the AID of the paper to the bit; otherwise what NumPy says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl

from ..helpers import stepped
from .common import Hand, everything, path, regression, rows_of, samples


@pytest.mark.parametrize(("N", "Q"), [(1, 1), (3, 2)])
def test_with_all_rows_it_is_aid_to_the_bit(N, Q):
    problem, x, y = regression()
    loops = bl.GradientDescent(0.2, N), bl.Richardson(0.15, Q)
    found = path(bl.SampledAID(*loops, everything()), problem, x, y, 50)
    scheme = bl.schemes.no_loop if N == 1 else bl.schemes.n_q_loop
    numbers = {} if N == 1 else {"N": N, "Q": Q}
    expected = path(scheme(inner_step=0.2, linear_step=0.15, **numbers), problem, x, y, 50)
    for have, want in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(have, want)


def by_hand(method, problem, x, y, steps, N, Q, cold):
    """AmIGO (warm), or stocBiO (cold): v = η Σ_{j ≤ Q} ∏ (I − ηH_i) ∇_y f, a new batch each."""
    hand, x, y = Hand(problem), np.asarray(x), np.asarray(y)
    v, draws = np.zeros_like(y), 0
    for k in range(steps):
        for t in range(draws, draws + N):
            y = y - 0.2 * hand.gradient(rows_of(method, problem, t)[0], x, y)
        i, j = rows_of(method, problem, draws + N, k)
        f_y = hand.outer_y(j, x, y)
        total = term = f_y
        for t in range(draws + N + 1, draws + N + 1 + Q):
            rows = rows_of(method, problem, t)[0]
            term = term - 0.15 * hand.hessian(rows, x, y, term)
            total = total + term
            v = v if cold else v - 0.15 * (hand.hessian(rows, x, y, v) - f_y)
        v = 0.15 * total if cold else v
        h = hand.outer_x(j, x, y) - hand.cross(i, x, y, v)
        x, draws = x - 0.1 * h, draws + N + 1 + Q
        yield x, y, v, h


@pytest.mark.parametrize(("scheme", "cold"), [("amigo", False), ("stocbio", True)])
def test_loops_on_batches_by_hand(scheme, cold):
    problem, x, y = regression()
    method = getattr(bl.schemes, scheme)((4, 5), 0.2, 0.15, N=3, Q=2, key=1)
    found = path(method, problem, x, y, 20)[:4]
    for k, step in enumerate(by_hand(method, problem, x, y, 20, 3, 2, cold)):
        for have, want in zip(found, step, strict=True):
            np.testing.assert_allclose(have[k], want, rtol=1e-11)


def test_fsla_by_hand():
    """STORM for h at (x, y, v) after the steps of y and v; its old point is that of the last h."""
    problem, x, y = regression()
    method = bl.schemes.fsla((4, 5), (0.2, -0.5), (0.15, -0.5), weight=(1.0, -0.5))
    found = path(method, problem, x, y, 20)[:4]
    hand, x, y = Hand(problem), np.asarray(x), np.asarray(y)
    v, d, last = np.zeros_like(y), None, None
    for k in range(20):
        root = (k + 1) ** -0.5
        rows = [rows_of(method, problem, 3 * k + i, k) for i in range(3)]
        y = y - 0.2 * root * hand.gradient(rows[0][0], x, y)
        i, j = rows[1]
        v = v - 0.15 * root * (hand.hessian(rows[2][0], x, y, v) - hand.outer_y(j, x, y))
        at = lambda x, y, v, i=i, j=j: hand.outer_x(j, x, y) - hand.cross(i, x, y, v)  # noqa: E731
        d = at(x, y, v) if k == 0 else at(x, y, v) + (1 - root) * (d - at(*last))
        last = (x, y, v)
        x = x - 0.1 * d
        for have, want in zip(found, (x, y, v, d), strict=True):
            np.testing.assert_allclose(have[k], want, rtol=1e-11)


def test_a_random_term_is_the_series_on_average():
    problem, x, y = regression()
    y, eta, terms = y + 0.3, 0.3, 5

    @jax.jit
    @jax.vmap
    def one(key):
        loops = bl.GradientDescent(1e-30, 1), bl.RandomNeumann(eta, terms)
        method = bl.SampledAID(*loops, bl.Samples(bl.All(), bl.All(), key))
        _, state, info = stepped(method, problem, x, y)
        return state.v, info.samples.products // 24 - 1

    v, lengths = one(jax.random.split(jax.random.key(0), 2000))
    hand, i, j = Hand(problem), np.arange(24), np.arange(20)
    term, series = hand.outer_y(j, x, np.asarray(y)), 0.0
    for p in range(terms):
        mine = np.asarray(lengths) == p
        assert 320 < np.sum(mine) < 480  # 2000 / 5, ± 4.5 deviations
        expected = np.broadcast_to(terms * eta * term, (np.sum(mine), 3))
        np.testing.assert_allclose(np.asarray(v)[mine], expected, rtol=1e-12)
        series = series + eta * term
        term = term - eta * hand.hessian(i, x, None, term)
    means = [np.asarray(v)[np.asarray(lengths) == p][0] for p in range(terms)]
    np.testing.assert_allclose(np.mean(means, axis=0), series, rtol=1e-12)


def test_products_of_a_random_term_meet_rows_of_their_own():
    """E ∏ (I − ηH_i) = (I − ηH)^p only for independent rows: the mean over keys is the series."""
    problem, x, y = regression()
    y, eta, terms = y + 0.3, 0.3, 4

    @jax.jit
    @jax.vmap
    def one(key):
        method = bl.SampledAID(
            bl.GradientDescent(1e-30, 1),
            bl.RandomNeumann(eta, terms),
            bl.Samples(bl.Uniform(2), bl.All(), key),
        )
        return method(problem, x, method.init(problem, x, y), 0)[1].v

    v = np.asarray(one(jax.random.split(jax.random.key(1), 20_000)))
    hand, i, j = Hand(problem), np.arange(24), np.arange(20)
    term, series = hand.outer_y(j, x, np.asarray(y)), 0.0
    for _ in range(terms):
        series, term = series + eta * term, term - eta * hand.hessian(i, x, None, term)
    deviation = np.std(v, axis=0) / len(v) ** 0.5
    assert np.all(np.abs(np.mean(v, axis=0) - series) < 4.5 * deviation)
    assert np.all(deviation < 0.1 * np.abs(series).max())


@pytest.mark.parametrize("carry", [True, False])
def test_adam_inside(carry):
    problem, x, y = regression()
    adam = optax.adam(0.05)
    method = bl.SampledAID(
        bl.Optax(adam, steps=2, carry_state=carry), bl.Richardson(0.15, 1), samples()
    )
    _, found, *_ = path(method, problem, x, y, 10, 0.0)
    hand, own = Hand(problem), adam.init(y)
    with jax.numpy_dtype_promotion("standard"):
        for k in range(10):
            own = own if carry else adam.init(y)
            for t in (4 * k, 4 * k + 1):
                g = hand.gradient(rows_of(method, problem, t)[0], np.asarray(x), np.asarray(y))
                updates, own = adam.update(jnp.asarray(g), own, y)
                y = y + updates
            np.testing.assert_allclose(found[k], y, rtol=1e-11)


@pytest.mark.parametrize("inner", [bl.Nesterov(0.1, 0.4, 3), bl.HeavyBall(0.1, 0.3, 3)], ids=repr)
def test_momentum_inside_with_all_rows(inner):
    problem, x, y = regression()
    loops = inner, bl.Richardson(0.15, 2)
    found = path(bl.SampledAID(*loops, everything()), problem, x, y, 5)
    expected = path(bl.AID(*loops), problem, x, y, 5)
    for have, want in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-13)


def test_loops_that_grow():
    """BSA: N_k = ⌈√(k + 1)⌉ inner steps, counted by the rows they took."""
    problem, x, y = regression()
    *_, info = path(bl.schemes.bsa((4, 5), terms=3), problem, x, y, 10)
    expected = [4 * np.ceil((k + 1) ** 0.5) for k in range(10)]
    np.testing.assert_array_equal(info.samples.inner, expected)
    np.testing.assert_array_equal(info.samples.outer, [10] * 10)


def test_one_program_for_other_keys_numbers_and_data():
    traces = []

    @eqx.filter_jit
    def step(method, problem, x, state):
        traces.append(1)
        return method(problem, x, state, 0)

    for seed in range(3):
        problem, x, y = regression(seed)
        method = bl.schemes.amigo(4, 0.1 + 0.01 * seed, 0.1, key=seed)
        step(method, problem, x, method.init(problem, x, y))
    assert len(traces) == 1


def test_a_step_that_failed_leaves_a_state_to_go_on_from():
    problem, x, y = regression()
    method = bl.schemes.amigo((4, 5), 1e200, 0.1, N=3, Q=2)
    _, after, info = stepped(method, problem, x, y)
    assert int(info.result) == bl.Status.INNER_NOT_FINITE
    np.testing.assert_array_equal(after.y, y)
