"""Proximal maps and their penalties by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

P = bl.prox
Z = [[3.0, -0.5], [-4.0, 0.0]]
CASES = {  # the map, prox(x, Z, ½) at x = 2, and r there
    "l1": (P.L1(lambda x: x), [[2.0, 0.0], [-3.0, 0.0]], 2 * 5.0),
    "l1 of each": (
        P.L1(jnp.array([[0.0, 1.0], [4.0, 1.0]])),
        [[3.0, 0.0], [-2.0, 0.0]],
        4 * 2.0,
    ),
    "elastic net": (
        P.ElasticNet(lambda x: x, 6.0),  # what L1 leaves, divided by 1 + 6/2
        [[0.5, 0.0], [-0.75, 0.0]],
        2 * 1.25 + 3 * (0.25 + 0.5625),
    ),
    "group lasso": (
        P.GroupLasso(lambda x: x + 4),  # rows shortened by 3
        [[3 * (1 - 3 / 9.25**0.5), -0.5 * (1 - 3 / 9.25**0.5)], [-1.0, 0.0]],
        6 * (9.25**0.5 - 3 + 1),
    ),
    "box": (P.Box(-1.0, lambda x: x), [[2.0, -0.5], [-1.0, 0.0]], 0.0),
    "non-negative": (P.NonNegative(), [[3.0, 0.0], [0.0, 0.0]], 0.0),
    "simplex": (P.Simplex(2.0), [[2.0, 0.0], [0.0, 2.0]], 0.0),
    "ball": (P.BallL2(lambda x: x), np.array(Z) * 2 / 25.25**0.5, 0.0),
    "large ball": (P.BallL2(5.1), Z, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_maps_and_penalties(name):
    prox, expected, penalty = CASES[name]
    x, z = jnp.asarray(2.0), jnp.asarray(Z)
    y = prox(x, z, jnp.asarray(0.5))
    np.testing.assert_allclose(y, expected, atol=1e-14)
    assert float(prox.penalty(x, y)) == pytest.approx(penalty)


@pytest.mark.parametrize(
    "prox",
    [
        P.L1(lambda x: x),
        P.ElasticNet(lambda x: x, 1.0),
        P.ElasticNet(1.0, lambda x: x),
        P.GroupLasso(lambda x: x),
        P.Box(lambda x: -x, lambda x: x),
        P.Simplex(lambda x: x),
        P.BallL2(lambda x: x),
    ],
    ids=lambda prox: type(prox).__name__,
)
def test_below_zero_there_is_no_map_and_no_penalty_and_what_is_nan_stays_so(prox):
    z, step = jnp.asarray(Z), jnp.asarray(0.5)
    negative, positive = jnp.asarray(-1e-9), jnp.asarray(1.0)
    assert np.isnan(prox(negative, z, step)).all()
    assert not np.isfinite(prox.penalty(negative, z))
    assert np.isfinite(prox(positive, z, step)).all()
    assert np.isnan(prox(positive, z.at[0, 0].set(jnp.nan), step)[0, 0])


def test_what_is_nan_is_not_negative():
    y = P.NonNegative()(None, jnp.asarray([jnp.nan, -1.0]), jnp.ones(()))
    np.testing.assert_array_equal(y, [np.nan, 0.0])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_what_was_projected_is_in_the_set_at_any_scale(scale):
    """To rounding; and a millionth of its size outside, it is not."""
    z = scale * jnp.asarray(np.random.default_rng(0).normal(size=(5, 7)))
    for constraint in (P.Simplex(3.7 * scale), P.BallL2(3.3 * scale), P.Box(-scale, 0.7 * scale)):
        y = constraint(jnp.zeros(()), z, jnp.ones(()))
        assert float(constraint.penalty(jnp.zeros(()), y)) == 0
        assert float(constraint.penalty(jnp.zeros(()), (1 + 1e-6) * y)) == np.inf


@pytest.mark.parametrize(
    ("constraint", "outside"),
    [(P.Box(-1.0, 2.0), 2.1), (P.NonNegative(), -0.1), (P.BallL2(1.0), 0.8)],
)
def test_zero_is_in_the_set_and_what_is_outside_has_an_infinite_penalty(constraint, outside):
    assert float(constraint.penalty(jnp.zeros(()), jnp.zeros(2))) == 0
    assert float(constraint.penalty(jnp.zeros(()), jnp.full(2, outside))) == np.inf
