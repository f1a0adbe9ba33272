"""Schedules: the numbers, the rounding of steps, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biloop import schedules
from biloop.loops.iteration import count


@given(k=st.integers(0, 2**20))
def test_ba_loop_sizes_are_exact(k):
    """⌈(k + 1)^¼ / 2⌉ in integers: the least n with 16 n⁴ ≥ k + 1. Rounding must not add a step."""
    n = int(count(schedules.Power(0.5, 0.25), jnp.asarray(k)))
    assert 16 * n**4 >= k + 1 > 16 * (n - 1) ** 4


@pytest.mark.parametrize("root", range(1, 9))
def test_ba_loop_sizes_at_fourth_powers(root):
    """Exactly where the power is an integer, in both precisions."""
    k = (2 * root) ** 4 - 1
    for dtype in (jnp.float32, jnp.float64):
        schedule = schedules.Power(jnp.asarray(0.5, dtype), 0.25)
        assert int(count(schedule, jnp.asarray(k))) == root
        assert int(count(schedule, jnp.asarray(k + 1))) == root + 1


def test_values():
    k = jnp.asarray(3)
    assert schedules.Constant(0.5)(k) == 0.5
    assert schedules.Fixed(7)(k) == 7
    np.testing.assert_allclose(schedules.Power(2.0, -1.0)(k), 0.5)
    np.testing.assert_allclose(schedules.Geometric(2.0, 0.5)(k), 0.25)
    assert int(schedules.Function(lambda k: k + 1)(k)) == 4


def test_counts_are_integers():
    assert count(schedules.Fixed(7), 0) == 7
    assert int(count(schedules.Function(lambda k: 2.2 + 0.0 * k), 0)) == 3
    assert count(schedules.Constant(jnp.asarray(4)), 0).dtype == jnp.int32


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (5, schedules.Fixed),
        (np.int64(5), schedules.Fixed),
        (jnp.asarray(5), schedules.Constant),
        (lambda k: k, schedules.Function),
        (schedules.Power(1.0, 0.5), schedules.Power),
    ],
)
def test_steps_become_schedules(given, kind):
    assert type(schedules.as_steps(minimum=1)(given)) is kind


def test_tolerance_zero_means_no_tolerance():
    assert schedules.as_tolerance(0) is None
    assert schedules.as_tolerance(0.0) is None
    assert schedules.as_tolerance(None) is None
    assert type(schedules.as_tolerance(1e-3)) is schedules.Constant
    assert type(schedules.as_tolerance(lambda k: 1.0 / k)) is schedules.Function


@pytest.mark.parametrize("bad", [-1, 0, jnp.asarray(0)])
def test_too_few_steps_are_refused(bad):
    with pytest.raises(ValueError, match="at least 1"):
        schedules.as_steps(minimum=1)(bad)


@pytest.mark.parametrize("bad", ["three", 1.5, None, True])
def test_steps_that_are_no_integers_are_refused(bad):
    with pytest.raises(TypeError, match='integer, "auto" or a schedule'):
        schedules.as_steps(minimum=1)(bad)
