"""Pieces of the estimators by themselves: the folds that are drawn, and how penalties are held."""

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.model_selection import KFold

from biloop.sklearn.family import Samples
from biloop.sklearn.inputs import folds_of
from biloop.sklearn.penalties import ByGroup


@pytest.mark.parametrize("state", [0, 1])
def test_folds_are_drawn_by_the_state_that_is_given(state):
    samples = Samples(np.zeros((20, 2)), np.arange(20.0), np.ones(20))
    found = folds_of(4, samples, state, classify=False)
    own = KFold(4, shuffle=True, random_state=state).split(samples.X)
    for (fitted, judged), (train, test) in zip(found.pairs, own, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(fitted), train)
        np.testing.assert_array_equal(np.flatnonzero(judged), test)


def test_penalties_of_groups_are_held_to_one_another_and_not_to_a_number():
    """2 Σ ln(1 + (x − x̄)²) over the groups that have features."""
    there = jnp.asarray([1.0, 1.0, 1.0, 0.0])
    kind = ByGroup(jnp.asarray(0.0), jnp.asarray(9.0), jnp.asarray([0, 1, 2]), there)
    for shift in (0.0, 5.0):
        x = jnp.asarray([-1.0, 0.0, 1.0, 70.0]) + shift
        np.testing.assert_allclose(kind.apart(x), 4 * np.log(2))
