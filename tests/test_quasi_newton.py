"""The outer step that finds its own size: BFGS, how long it is, and what is taken back."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

BOTH = [bl.QuasiNewton(), bl.Projected("auto", bl.Box(-9.0, 9.0))]


def walk(outer, x, values, sizes):
    """Steps along h = size · (1, 1, …)/√p; whether each x was accepted."""
    step, state, taken = eqx.filter_jit(outer.step), outer.init(x), []
    direction = jnp.ones_like(x) / x.size**0.5
    for value, size in zip(values, sizes, strict=True):
        x, state, accepted = step(x, size * direction, jnp.asarray(value), state)
        taken.append(bool(accepted))
    return taken


def test_a_bad_outer_step_is_taken_back():
    """Far beyond the first curvature Φ is steep: the run must come back and go on."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
        lambda x, y: jnp.sum(jnp.cosh(4 * (y - 5))) + 1e-3 * jnp.sum((x - 5) ** 2),
    )
    run = bl.solve(
        problem,
        jnp.asarray([5.25]),
        jnp.zeros(1),
        bl.schemes.auto(),
        outer=bl.QuasiNewton(first=8.0),
        steps=60,
        epsilon=1e-12,
    )
    assert run.status is bl.Status.CONVERGED
    assert bl.Status.UNDONE in run.trace["result"]
    np.testing.assert_allclose(run.x, 5.0, atol=1e-5)


@pytest.mark.parametrize(("value", "times"), [(np.nan, 24), (5.0, 8)])
@pytest.mark.parametrize("outer", BOTH, ids=["free", "projected"])
def test_a_step_is_not_taken_back_for_ever(outer, value, times):
    """Where loops fail however near x is to the last good one, the failure must come to light."""
    x, h = jnp.asarray([1.0, 1.0]), jnp.asarray([0.3, 0.4])
    step = eqx.filter_jit(outer.step)
    after, state, accepted = step(x, h, jnp.asarray(1.0), outer.init(x))
    assert accepted
    for k in range(times):
        after, state, accepted = step(after, h, jnp.asarray(value), state)
        assert not accepted
        np.testing.assert_allclose(x - after, 2 * h * 0.25 ** (k + 1), atol=1e-15)
    assert step(after, h, jnp.asarray(value), state)[2]


@pytest.mark.parametrize("outer", BOTH, ids=["free", "projected"])
@pytest.mark.parametrize(
    ("value", "size", "accepted"),
    [
        (3.0, 1.0, True),  # no rise
        (3.19, 1.0, True),  # less than a tenth of the spread, 2: values are not exact
        (3.24, 1.0, False),  # ... and more than f may lag behind, a hundredth of it
        (3.19, 3.1, False),  # h has become longer as well
        (3.19, 2.9, True),  # not longer than it was
        (2.0, 50.0, True),  # h may be what it likes where f has fallen
        (np.nan, 1.0, False),  # a loop failed
    ],
)
def test_a_rise_counts_if_it_is_clear_or_h_rises_too(outer, value, size, accepted):
    """After f = 3, 2, 1 with ‖h‖ = 3, 2, 1."""
    taken = walk(outer, jnp.zeros(2), [3.0, 2.0, 1.0, value], [3.0, 2.0, 1.0, size])
    assert taken == [True, True, True, accepted]


@pytest.mark.parametrize("memory", [2, 4])
def test_quasi_newton_is_bfgs_on_a_quadratic(memory):
    """With exact hypergradients: the matrix form of BFGS over the last pairs, written out densely.

    With a memory of two the ring of pairs has gone round.
    """
    outer = bl.QuasiNewton(memory=memory)
    H = np.diag([1.0, 2.0, 5.0])
    step = eqx.filter_jit(outer.step)
    x = jnp.asarray([1.0, -1.0, 0.5])
    state = outer.init(x)
    points = [np.asarray(x)]
    for _ in range(4):
        h = H @ np.asarray(x)
        x, state, accepted = step(x, jnp.asarray(h), jnp.asarray(0.5 * np.asarray(x) @ h), state)
        assert accepted
        points.append(np.asarray(x))

    pairs = [(b - a, H @ (b - a)) for a, b in itertools.pairwise(points[:-1])][-memory:]
    s, e = pairs[-1]
    B = np.eye(3) * (s @ e) / (e @ e)
    for s, e in pairs:
        rho = 1 / (s @ e)
        V = np.eye(3) - rho * np.outer(e, s)
        B = V.T @ B @ V + rho * np.outer(s, s)
    step = B @ (H @ points[-2])
    np.testing.assert_allclose(points[-1], points[-2] - step, rtol=1e-10)


@pytest.mark.parametrize("unit", [2.0**-40, 1.0, 2.0**40])
@pytest.mark.parametrize(
    ("x", "value", "length"),
    [
        (0.5, 0.3, 0.5 * 0.3 / 5.0),  # half of the value, by the slope
        (0.5, -0.3, 0.5 * 0.3 / 5.0),
        (0.5, 1e3, 0.5),  # at most ‖x‖, which is not nothing against 100
        (0.5, 1e-30, 1e-3 * 0.5),  # the value says nothing
        (0.5, 0.0, 1e-3 * 0.5),
    ],
)
def test_the_first_outer_step_is_as_long_as_value_and_slope_say(x, value, length, unit):
    """Whatever the unit of x."""
    outer, x = bl.QuasiNewton(), unit * jnp.asarray([x, 0.0, 0.0, 0.0])
    h = jnp.asarray([3.0, 0.0, -4.0, 0.0]) / unit
    after, _, _ = STEP(outer, x, h, jnp.asarray(value), outer.init(x))
    np.testing.assert_allclose(x - after, unit * length * np.asarray([0.6, 0.0, -0.8, 0.0]))


@pytest.mark.parametrize(
    ("x", "value", "length"),
    [
        (0.0, 1e-9, 1e-10),
        (0.0, 1e3, 4.0**0.5),
        (0.0, 0.0, 1e-3 * 4.0**0.5),
        (1e-5, 0.3, 0.03),  # is as good as zero
    ],
)
def test_from_zero_the_first_outer_step_is_at_most_the_root_of_the_dimension(x, value, length):
    outer, x = bl.QuasiNewton(), jnp.full(4, x)
    h = jnp.asarray([3.0, 0.0, -4.0, 0.0])
    after, _, _ = STEP(outer, x, h, jnp.asarray(value), outer.init(x))
    np.testing.assert_allclose(x - after, length * h / 5.0, rtol=1e-12)


STEP = eqx.filter_jit(lambda outer, *given: outer.step(*given))


def test_where_nothing_curves_each_step_is_twice_as_long_as_the_last():
    outer, x, h = bl.QuasiNewton(), jnp.asarray([3.0, 4.0]), jnp.asarray([0.6, 0.8])
    step, state, points = eqx.filter_jit(outer.step), outer.init(x), [x]
    for value in (1.0, 0.5, -0.5, -2.5):  # f falls as its slope says
        after, state, accepted = step(points[-1], h, jnp.asarray(value), state)
        assert accepted
        points.append(after)
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
    np.testing.assert_allclose(lengths, [0.5, 1.0, 2.0, 4.0])


def test_it_begins_no_longer_than_the_steps_that_led_to_x():
    outer, x, h = bl.QuasiNewton(), jnp.asarray([3.0, 4.0]), jnp.asarray([0.6, 0.8])
    state = outer.begun(outer.init(x), jnp.asarray(0.01))
    lengths, before = [], x
    for value in (1.0, 0.99, 0.97):  # f falls as its slope says
        after, state, _ = STEP(outer, before, h, jnp.asarray(value), state)
        lengths.append(np.linalg.norm(after - before))
        before = after
    np.testing.assert_allclose(lengths, [0.01, 0.02, 0.04], rtol=1e-6)


@pytest.mark.parametrize(("rise", "accepted"), [(0.021, True), (0.024, False)])
def test_values_that_do_as_the_slopes_say_leave_no_doubt(rise, accepted):
    """½x² from 1: half of both slopes along a step is what f falls by, 7/32; a tenth is allowed."""
    outer, x = bl.QuasiNewton(), jnp.ones(1)
    state = outer.init(x)
    for _ in range(2):
        x, state, _ = STEP(outer, x, x, 0.5 * x[0] ** 2, state)
    assert STEP(outer, x, x, jnp.asarray(0.5 + rise), state)[2] == accepted


@pytest.mark.parametrize(("rise", "accepted"), [(0.1535, True), (0.1545, False)])
def test_half_of_a_doubt_is_left_a_step_later(rise, accepted):
    """f falls by 0.01 less than its slope says, and then as it says: 0.149 and 0.01/2 are allowed.

    0.149 is a tenth of the spread, from 1 to −0.49.
    """
    outer, x, h = bl.QuasiNewton(), jnp.asarray([3.0, 4.0]), jnp.asarray([0.6, 0.8])
    state = outer.init(x)
    for value in (1.0, 0.51, -0.49):
        x, state, _ = STEP(outer, x, h, jnp.asarray(value), state)
    assert STEP(outer, x, h, jnp.asarray(1.0 + rise), state)[2] == accepted


def test_only_these_steps_find_their_size():
    assert all(outer.finds_its_size for outer in BOTH)
    assert not bl.GradientStep(0.1).finds_its_size
    assert not bl.Projected(0.1, bl.Ball(1.0)).finds_its_size


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bl.QuasiNewton(memory=0), "memory must be an integer of at least 1.*, got 0"),
        (lambda: bl.QuasiNewton(first=0.0), "first must be .* greater than 0"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("memory", [3, 10])
def test_what_is_carried_is_bounded_and_told(memory):
    x, outer = {"a": jnp.zeros((100, 30)), "b": np.zeros(17, np.float32)}, bl.QuasiNewton(memory)
    told = outer.predict_bytes(x)
    state = outer.init(jnp.asarray(x["a"]))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert outer.predict_bytes(x["a"]) == held
    vectors = (2 * memory + 3) * (8 * 3000 + 4 * 17)
    assert vectors <= told <= vectors + 16 * memory**2 + 200


OUTER = bl.QuasiNewton()
step = eqx.filter_jit(OUTER.step)


def lengths_of(slopes):
    """How long the steps are where h has these values, one after the other, and f falls."""
    x, lengths = jnp.zeros(1), []
    state = OUTER.init(x)
    for k, slope in enumerate(slopes):
        after, state, accepted = step(x, jnp.asarray([slope]), jnp.asarray(1.0 - 0.01 * k), state)
        assert accepted
        lengths.append(float(jnp.linalg.norm(after - x)))
        x = after
    return np.asarray(lengths)


def test_a_step_that_was_too_short_is_followed_by_one_twice_as_long():
    """An h that was wrong at first leaves a curvature that no later step measures again."""
    lengths = lengths_of([100.0, *6 * [1.0], *1.2 ** np.arange(1, 7)])
    np.testing.assert_allclose(lengths[2:], 2 * lengths[1:-1])


def test_a_small_change_of_h_after_a_large_one_is_no_curvature():
    """Loops that leave a tenth of the error may show that of the first step at the second."""
    first, *others = lengths_of([100.0, 1.0, 0.5])
    np.testing.assert_allclose(others, [first / 99, 0.5 * first / 99])
