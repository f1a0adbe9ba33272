"""Schedules: the numbers, the rounding of steps, and what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop import schedules
from biloop.schedules import step_count

LIMIT = 10**7


@given(k=st.integers(0, 2**20))
def test_ba_loop_sizes_are_exact(k):
    """⌈(k + 1)^¼ / 2⌉ in integers: the least n with 16 n⁴ ≥ k + 1. Rounding must not add a step."""
    n = int(step_count(schedules.Power(0.5, 0.25), jnp.asarray(k)))
    assert 16 * n**4 >= k + 1 > 16 * (n - 1) ** 4


@pytest.mark.parametrize("root", range(1, 9))
def test_ba_loop_sizes_at_fourth_powers(root):
    """Exactly where the power is an integer, in both precisions."""
    k = (2 * root) ** 4 - 1
    for dtype in (jnp.float32, jnp.float64):
        schedule = schedules.Power(jnp.asarray(0.5, dtype), 0.25)
        assert int(step_count(schedule, jnp.asarray(k))) == root
        assert int(step_count(schedule, jnp.asarray(k + 1))) == root + 1


def test_values():
    k = jnp.asarray(3)
    assert schedules.Constant(0.5)(k) == 0.5
    assert schedules.Fixed(7)(k) == 7
    np.testing.assert_allclose(schedules.Power(2.0, -1.0)(k), 0.5)
    np.testing.assert_allclose(schedules.Geometric(2.0, 0.5)(k), 0.25)
    assert int(schedules.Function(lambda k: k + 1)(k)) == 4


def test_counts_are_integers():
    assert step_count(schedules.Fixed(7), 0) == 7
    assert int(step_count(schedules.Function(lambda k: 2.2 + 0.0 * k), 0)) == 3
    assert step_count(schedules.Constant(jnp.asarray(4)), 0).dtype == jnp.int32


def counted(value, dtype=None):
    """The steps of a schedule that gives this number, compiled, as loops do it."""
    value = jnp.asarray(value, dtype)
    return int(jax.jit(lambda v: step_count(schedules.Constant(v), 0))(value))


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        (0.0, 0),
        (1e-9, 1),
        (0.999999, 1),
        (1.0, 1),
        (16**0.25 / 2, 1),
        (2 * (1 + 2e-6), 3),
        (2.5, 3),
        (1e7, 10**7),  # of which a millionth is ten steps
        (float(LIMIT), LIMIT),
        (LIMIT - 0.5, LIMIT),
    ],
)
def test_numbers_of_steps_are_rounded_up(value, steps):
    assert counted(value) == steps
    if value < 2**24:
        assert counted(value, jnp.float32) == steps


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rounding_of_a_power_is_no_step(dtype):
    """Up to eight units in the last place of an integer it is that integer."""
    for integer in (1, 2, 3, 1000):
        eps = np.spacing(np.asarray(integer, dtype))
        for units, steps in ((-4, 0), (0, 0), (1, 0), (4, 0), (17, 1)):
            assert counted(integer + units * eps, dtype) == integer + steps


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, -1.0, -0.5, -1e-12, 1e12, 1e300, LIMIT + 1.0, 2.0**31]
)
def test_what_is_no_number_of_steps_is_negative(value):
    assert counted(value) < 0
    if abs(value) < 1e30 and value != LIMIT + 1.0:
        assert counted(value, jnp.float32) < 0


@pytest.mark.parametrize(
    ("value", "dtype", "steps"),
    [
        (2**32 + 3, jnp.int64, -1),
        (LIMIT, jnp.int64, LIMIT),
        (LIMIT + 1, jnp.int64, -1),
        (LIMIT + 1, jnp.int32, -1),
        (-1, jnp.int32, -1),
        (2**32 - 1, jnp.uint32, -1),
        (2**63 + 5, jnp.uint64, -1),
        (7, jnp.uint64, 7),
        (100, jnp.int8, 100),
        (-100, jnp.int8, -1),
        (200, jnp.uint8, 200),
        (3, jnp.float16, 3),
        (60000, jnp.float16, 60000),
        (2.5, jnp.bfloat16, 3),
    ],
)
def test_every_dtype_counts_alike(value, dtype, steps):
    assert counted(np.asarray(value, dtype)) == steps


@given(st.floats(0, 2.0**31, exclude_max=True, allow_subnormal=False))
def test_a_step_is_never_left_out_nor_two_added(value):
    steps = counted(value)
    if steps < 0:
        assert value > LIMIT
    else:
        assert value * (1 - 1e-14) <= steps < value + 1 or steps == math.ceil(value)


def test_a_schedule_may_fail_at_some_k_only():
    """Known in compiled code only: the count says it."""
    schedule = schedules.Geometric(2.0, 1e10)
    counts = [int(step_count(schedule, jnp.asarray(k))) for k in range(4)]
    assert counts == [2, -1, -1, -1]
    assert int(step_count(schedules.Function(lambda k: 3 - k), jnp.asarray(4))) == -1


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


def test_settings_are_shown_with_their_numbers():
    assert repr(bl.GradientDescent(0.1, 20)) == "GradientDescent(step_size=0.1, steps=20)"
    method = bl.schemes.n_q_loop(3, 4, inner_step=0.1, linear_step=0.25)
    assert "steps=3" in repr(method)
    assert "Richardson(step_size=0.25, steps=4)" in repr(method)
    shown = repr(bl.CG(5, tolerance=bl.schedules.Power(0.1, -2.0)))
    assert shown == "CG(steps=5, tolerance=Power(scale=0.1, power=-2), indefinite='fail')"
    assert repr(bl.Projected(0.5, bl.Box(0.0, 1.0))).startswith("Projected(inner_step=GradientStep")
    jax.jit(lambda m: repr(m) and 0)(method)  # also where the numbers are traced


def test_no_loop_is_longer_than_the_steps_that_are_made_ask_for():
    """What is seen at the last x is seen with the last loop, not with the 10⁹ steps of k = 3."""
    asked = []

    def steps(k):
        jax.debug.callback(lambda k: asked.append(int(k)), k)
        return 10.0 ** (3 * k)

    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    method = bl.AID(bl.GradientDescent(0.25, steps), bl.CG(3))
    run = bl.solve(problem, jnp.zeros(2), jnp.zeros(2), method, outer=0.1, steps=3)
    jax.effects_barrier()
    assert run.status is bl.Status.COMPLETED
    assert max(asked) == 2


def at_k_three(bad):
    return bl.schedules.Function(lambda k: jnp.where(k < 3, 0.1, bad))


@pytest.mark.parametrize(
    ("make", "status"),
    [
        (lambda s: (bl.AID(bl.GradientDescent(s, 3), bl.CG(3)), 0.1), "INNER_NOT_FINITE"),
        (lambda s: (bl.AID(bl.GradientDescent(0.1, 3), bl.Richardson(s, 3)), 0.1), "LINEAR_NOT"),
        (lambda s: (bl.ITD(bl.GradientDescent(s, 3)), 0.1), "INNER_NOT_FINITE"),
        (lambda s: (bl.schemes.bome(s), 0.1), "INNER_NOT_FINITE"),
        (lambda s: (bl.schemes.no_loop(0.1, 0.1), bl.ScheduledStep(s)), "UPDATE_NOT_FINITE"),
    ],
)
def test_a_schedule_that_gives_no_step_size_ends_the_run(make, status):
    """α < 0 led up instead of down, and the run COMPLETED."""
    problem = bl.Problem(
        lambda x, y: jnp.sum((y - x) ** 2) / 2, lambda x, y: jnp.sum((y - 1.0) ** 2)
    )
    method, outer = make(at_k_three(-0.1))
    run = bl.solve(problem, jnp.zeros(3), jnp.zeros(3), method, outer=outer, steps=8)
    assert run.status.name.startswith(status)
    assert run.steps == 3
    if "UPDATE" not in status:
        assert "-0.1 at k = 3: no number to use" in run.message
