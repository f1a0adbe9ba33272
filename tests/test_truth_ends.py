"""What a run says at its end of loops that do not do what they seem to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.run.diagnosis import far_away

RNG = np.random.default_rng(3)
X, V = RNG.normal(size=(2, 40, 6))
WEIGHTS = np.array([1.0, -2.0, 0.0, 0.0, 1.5, 0.5])
LABELS, VALID = X @ WEIGHTS + RNG.normal(size=40), V @ WEIGHTS
L = float(np.linalg.eigvalsh(X.T @ X / 40)[-1]) + 1.0


def squares(x, y, X, t):
    return 0.5 * jnp.mean((X @ y - t) ** 2)


def penalised(loss):
    return lambda x, y, X, t: jnp.mean(loss(X @ y - t)) + 0.5 * jnp.exp(x) * jnp.sum(y**2)


LOSSES = {  # with a kink
    "absolute": jnp.abs,
    "quantile": lambda r: jnp.maximum(0.3 * r, -0.7 * r),
    "hinge": lambda r: jnp.maximum(0.0, 1 - r),
    # and without: the second derivatives of two of them jump
    "huber": lambda r: jnp.where(jnp.abs(r) < 1, 0.5 * r**2, jnp.abs(r) - 0.5),
    "squared hinge": lambda r: jnp.maximum(0.0, 1 - r) ** 2,
    "pseudo-Huber": lambda r: jnp.sqrt(1 + r**2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_kinks_are_told_from_smooth_bends(name):
    """Of every loss, with loops that are long enough and with loops that are not."""
    problem = bl.Problem(penalised(LOSSES[name]), squares, (X, LABELS), (V, VALID))
    for steps in (5, 300):
        loop = jnp.asarray(steps)  # one program for both
        method = bl.AID(bl.GradientDescent(0.5 / L, loop), bl.CG(loop))
        run = bl.solve(problem, jnp.asarray(-2.0), jnp.zeros(6), method, outer=1e-4, steps=6)
        kink = name in ("absolute", "quantile", "hinge")
        assert run.status is (bl.Status.UNCONVERGED if kink else bl.Status.COMPLETED)
        assert ("g is not smooth there" in run.message) == kink


class ProximalDescent(bl.Descent):
    """A user's own: its step minimises g + 0.3‖y‖₁, and its residual is that of g, as it is."""

    steps: bl.schedules.Schedule
    tolerance: None = None

    def start(self, y, kept):
        return ()

    def step(self, gradient, y, state):
        d = gradient(y)
        y = y - d / L
        return jnp.sign(y) * jnp.maximum(jnp.abs(y) - 0.3 / L, 0.0), state, d


def test_a_loop_that_stands_still_away_from_the_minimum_is_named():
    problem = bl.Problem(
        lambda x, y, X, t: squares(x, y, X, t) + jnp.exp(x) * jnp.sum(y**2),
        squares,
        (X, LABELS),
        (V, VALID),
    )
    start = jnp.asarray(-2.0), jnp.zeros(6)
    method = bl.AID(ProximalDescent(bl.schedules.Constant(100)), bl.CG(6))
    run = bl.solve(problem, *start, method, outer=1e-3, steps=6)
    assert run.status is bl.Status.UNCONVERGED
    assert "has come to a stand" in run.message
    # ... and one whose tolerance is met need not move.
    lax = bl.AID(bl.GradientDescent(1 / L, 100, tolerance=0.5), bl.CG(6))
    assert bl.solve(problem, *start, lax, outer=1e-3, steps=6).status is bl.Status.COMPLETED
    # ... nor one that begins at y⁰ in every step, and always ends at the same y.
    cold = bl.AID(bl.GradientDescent(1 / L, 2), bl.CG(6), warm_start_y=False)
    assert bl.solve(problem, *start, cold, outer=1e-3, steps=6).status is bl.Status.COMPLETED


def test_a_linear_loop_that_diverges_is_named_when_it_happens():
    """From v = 0 in every step: its residual is 10¹¹ from the first step on, and never grows."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(jnp.array([1.0, 8.0]) * (y - x) ** 2),
        lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2),
    )
    method = bl.AID(
        bl.GradientDescent(0.1, 50), bl.Chebyshev(L=1.0, mu=0.1, steps=20), warm_start_v=False
    )
    run = bl.solve(problem, jnp.zeros(2), jnp.zeros(2), method, outer=1e-14, steps=5000, every=50)
    assert run.status is bl.Status.DIVERGED
    assert run.steps < 5000
    assert "and that of v = 0 is" in run.message


def test_a_point_that_is_looked_at_twice_is_left_again():
    """As after a small h that was not certain: x stays, and the step must not become zero."""
    outer, x = bl.QuasiNewton(), jnp.zeros(1)
    step = jax.jit(lambda *given: outer.step(*given))
    slope = lambda x: 2 * (x - 3.0)  # noqa: E731
    state = outer.init(x)
    for k in range(12):
        value = jnp.sum((x - 3.0) ** 2)
        after, state, _ = step(x, slope(x), value, state)
        if k == 1:  # the same x again
            after, state, _ = step(x, slope(x), value, state)
        x = after
    np.testing.assert_allclose(x, 3.0, atol=1e-6)


def test_a_point_with_a_zero_h_is_left_again():
    outer, x = bl.QuasiNewton(), jnp.zeros(1)
    state = outer.init(x)
    x, state, _ = outer.step(x, jnp.zeros(1), jnp.asarray(9.0), state)
    for _ in range(12):
        x, state, _ = outer.step(x, 2 * (x - 3.0), jnp.sum((x - 3.0) ** 2), state)
    np.testing.assert_allclose(x, 3.0, atol=1e-6)


def test_values_that_lag_behind_do_not_take_good_steps_back():
    """f is 0.1 % too low after the first step, as that of a y that is not there yet."""
    outer, x = bl.QuasiNewton(first=1e-3), jnp.full(1, 2.9)
    state, taken = outer.init(x), []
    for k in range(12):
        value = 10.0 + jnp.sum((x - 3.0) ** 2) - (0.01 * 0.5 ** (k - 1) if k else 0.0)
        x, state, accepted = outer.step(x, 2 * (x - 3.0), value, state)
        taken.append(bool(accepted))
    assert all(taken)
    np.testing.assert_allclose(x, 3.0, atol=1e-6)


def test_at_the_border_of_a_box_a_run_is_at_its_end():
    """Φ = ½(x − 5)² is least at the border x = 2, where ∇Φ = −3."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: 0.5 * jnp.sum((y - 5.0) ** 2)
    )
    outer = bl.Projected("auto", bl.Box(-2.0, jnp.array([2.0, 8.0])))
    run = bl.solve(problem, jnp.zeros(2), jnp.zeros(2), outer=outer)
    assert run.status is bl.Status.SETTLED
    np.testing.assert_allclose(run.x, [2.0, 5.0], atol=1e-3)


def test_a_kink_of_phi_is_not_blamed_on_the_loops():
    """y*(x) = x above 0 and x/101 below it, so that Φ has a corner at 0, with slopes 0.9, −0.09."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - x) ** 2) + 50 * jnp.sum(jnp.maximum(0.0, -y) ** 2),
        lambda x, y: jnp.sum(y) - 0.1 * jnp.sum(x),
    )
    run = bl.solve(problem, jnp.ones(1), jnp.zeros(1))
    np.testing.assert_allclose(run.x, 0.0, atol=1e-2)
    assert run.status is bl.Status.UNCONVERGED
    assert "h is right, and leads nowhere" in run.message
    assert "too inexact" not in run.message


def test_what_was_left_again_does_not_set_the_end():
    """‖h‖ is 10⁶² where a step led to H < 0: the end is a share of the ‖h‖ of points that count."""
    problem = bl.Problem(
        lambda x, y: 0.5 * (1 - x) * jnp.sum(y**2) - jnp.sum(y),
        lambda x, y: 0.5 * jnp.sum((y - 30) ** 2),
    )
    run = bl.solve(problem, jnp.zeros(()), jnp.zeros(4))
    kept = run.trace["result"] != bl.Status.UNDONE
    most = np.max(run.trace["hypergradient_norm"][kept])
    y = 1 / (1 - float(run.x))  # ∇Φ = Σ (y − 30) y²
    assert run.status is bl.Status.CONVERGED
    assert abs(4 * (y - 30) * y**2) <= 1.2e-4 * most


@pytest.mark.parametrize(("target", "flat"), [(1.0, True), (0.5, False)])
def test_a_plateau_is_told_from_a_minimum(target, flat):
    """y*(x) = 1/(1 + eˣ): f = ½(y − 1)² falls for ever, and f = ½(y − ½)² is least at x = 0."""
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum((y - 1) ** 2) + 0.5 * jnp.exp(x) * jnp.sum(y**2),
        lambda x, y, target: 0.5 * jnp.sum((y - target["y"]) ** 2),
        outer_data=({"y": jnp.asarray(target)},),
    )
    run = bl.solve(problem, jnp.asarray(2.0), jnp.zeros(2))
    assert run.status is bl.Status.CONVERGED
    assert ("they are on a plateau" in run.message) == flat
    assert flat or float(run.x) == pytest.approx(0.0, abs=1e-2)


def test_the_bounds_advised_on_a_plateau_are_in_the_unit_of_x():
    unit = 1e-3
    problem = bl.Problem(
        lambda x, y: jnp.sum((y - 1) ** 2) + jnp.exp(x / unit) * jnp.sum(y**2),
        lambda x, y: 0.5 * jnp.sum((y - 1) ** 2),
    )
    run = bl.solve(problem, jnp.asarray(2.0 * unit), jnp.zeros(2))
    assert "they are on a plateau" in run.message
    bound = float(run.message.split("Box(-")[1].split(",")[0])
    assert 0 < bound < abs(float(run.x))


@pytest.mark.parametrize(("kappa", "known"), [(1e6, True), (1e24, False)])
def test_an_adaptive_system_is_not_solved_by_its_stiffest_direction(kappa, known):
    """After one step that is all it has seen; and with κ = 10²⁴ the rounding of Hv is above b."""
    A = jnp.asarray(X.T @ X / 40 + np.diag([kappa, 0.0, 0.0, 0.0, 0.0, 0.0]))
    cg, b, v0 = bl.CG("auto"), jnp.ones(6), jnp.full(6, 3.0)
    v, _, info = cg(lambda v: A @ v, b, v0, cg.init(b), 0)
    assert (bl.Status(int(info.result)) is bl.Status.COMPLETED) == known
    if known:
        np.testing.assert_allclose(v, np.linalg.solve(A, b), atol=0.5)


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_f_that_falls_for_ever_as_fast_as_at_first(single):
    """Φ(x) = −Σx: neither does ‖h‖ grow nor does f stand still, and no x is a plateau."""
    with jax.enable_x64(not single):
        problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: -jnp.sum(y))
        run = bl.solve(problem, jnp.full(3, 0.3), jnp.zeros(3))
    assert run.status is bl.Status.UNBOUNDED
    assert run.steps < 100
    assert "plateau" not in run.message
    assert np.all(np.isfinite(run.x))


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_a_biased_hypergradient_sets_no_scale(single):
    """From one well of g to the other h is that of a damped system, and larger than all ∇Φ.

    y³ − y = x/10 and y = 1.05 at the minimum. What f gained by the jump makes no plateau of it.
    """
    with jax.enable_x64(not single):
        problem = bl.Problem(
            lambda x, y: jnp.sum((y**2 - 1) ** 2) / 4 - 0.1 * x * jnp.sum(y),
            lambda x, y: jnp.sum((y - 1.05) ** 2),
        )
        run = bl.solve(problem, jnp.asarray(0.5), jnp.full(2, -0.2))
    assert run.status is bl.Status.CONVERGED
    # In float32 ‖h‖ need only be 5e-3 of 0.023, and ∇²Φ = 7.5e-3.
    bound = 1.5e-2 if single else 5e-3
    np.testing.assert_allclose(run.x, 10 * (1.05**3 - 1.05), rtol=bound)
    assert "plateau" not in run.message


def test_a_step_just_above_the_largest_stable_one_is_told_where_the_gradient_hides_it():
    """The one direction that grows, by 0.3 % a step, is a small part of ∇_y g yet."""
    rng = np.random.default_rng(52)
    d, kappa = int(rng.integers(5, 40)), 10 ** rng.uniform(0.5, 3.5)
    U = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A, B = (U * np.geomspace(1 / kappa, 1, d)) @ U.T, rng.normal(size=(d, d)) / d**0.5
    c, t = rng.normal(size=(2, d))
    problem = bl.Problem(
        lambda x, y, q: 0.5 * y @ q["A"] @ y - y @ (q["B"] @ x + q["c"]),
        lambda x, y, q: 0.5 * jnp.sum((y - q["t"]) ** 2) + 0.05 * jnp.sum(x**2),
        ({"A": A, "B": B, "c": c},),
        ({"t": t},),
    )
    method = bl.AID(bl.GradientDescent(2.003089, steps=4), bl.CG(5 * d, tolerance=1e-8))
    run = bl.solve(problem, jnp.zeros(d), jnp.zeros(d), method, outer=1e-3, steps=20)
    assert run.status is bl.Status.UNCONVERGED
    assert "does not settle" in run.message


@pytest.mark.parametrize("steps", [1, 2])
def test_the_derivative_of_an_unstable_loop_is_told_where_y_does_not_show_it(steps):
    """From y = y*(x) no step moves y, and h is Σ 2^N times what it should be."""
    curvature = jnp.array([1.0, 0.1])
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(curvature * (y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2)
    )
    for size, told in ((3.0, True), (1.9, False)):
        method = bl.ITD(bl.GradientDescent(size, 20))
        run = bl.solve(problem, jnp.zeros(2), jnp.zeros(2), method, outer=1e-12, steps=steps)
        assert ("inner step size 3 is above" in run.message) == told
        assert (run.status is bl.Status.COMPLETED) != told


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("end", [[18.0, 18.0, 18.0], [-20.0, 3.0, 0.0]])
def test_a_penalty_that_runs_away_is_known_in_any_unit(unit, end):
    """By its exponential, which the bounds that are advised limit to e⁸."""
    weights = jnp.array([1.0, 1.0, 0.0]) if min(end) > 0 else jnp.array([0.0, 1.0, 1.0])
    problem = bl.Problem(
        lambda x, y: jnp.sum((jnp.exp(x / unit) + weights) * y**2), lambda x, y: jnp.sum(y)
    )
    told = far_away(problem, unit * jnp.array(end), jnp.ones(3))
    assert "it runs away" in told
    assert f"Box(-{8 * unit}, {8 * unit})" in told
    assert not far_away(problem, unit * jnp.array([4.0, 4.0, 4.0]), jnp.ones(3))


@pytest.mark.parametrize(
    "inner",
    [
        lambda x, y: jnp.sum((1 + x**8) * y**2),  # steep, but no exponential
        lambda x, y: jnp.sum((1e3 * (1 + 1e-9) - x) * y**2),  # singular here alone
        lambda x, y: jnp.sum((y - x) ** 2),
    ],
)
def test_a_large_x_alone_runs_not_away(inner):
    problem = bl.Problem(inner, lambda x, y: jnp.sum(y))
    assert not far_away(problem, jnp.full(3, 1e3), jnp.ones(3))


@pytest.mark.parametrize("method", [bl.Exact(), bl.AID(bl.NewtonCG(), bl.CG(10))])
def test_a_run_does_not_end_where_its_last_step_would_be_taken_back(method):
    """y* = 1 / (1 − x) and Φ = (y* − 30)²; from x = 1 on g has no minimum."""
    problem = bl.Problem(
        lambda x, y: 0.5 * (1 - x) * jnp.sum(y**2) - jnp.sum(y),
        lambda x, y: 0.5 * jnp.sum((y - 30.0) ** 2),
    )
    over = {"x0": [jnp.zeros(()), jnp.full((), 0.5)]}
    for steps in (4, 8):  # the last of which leads beyond 1
        run = bl.solve(problem, jnp.zeros(()), jnp.ones(2), method, outer="auto", steps=steps)
        swept = bl.sweep(problem, None, jnp.ones(2), method, over=over, outer="auto", steps=steps)
        for each in (run, *swept.runs):
            assert each.status is bl.Status.COMPLETED
            assert each.x < 0.99
            np.testing.assert_allclose(each.value, (1 / (1 - each.x) - 30) ** 2, rtol=0.2)
        assert swept.runs[0].x == run.x
