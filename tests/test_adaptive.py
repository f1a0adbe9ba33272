"""Loops that size themselves: the rule, what they learn for it, and that it needs no setting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import biloop as bl
from biloop.linear.conjugate import newton_direction
from biloop.loops.adaptive import Curvature

from .helpers import logistic_problem, random_quadratic, stepped, tree_problem

QUADRATIC = random_quadratic(q=8, p=5, kappa=30.0)
X, Y = QUADRATIC.start()
UNKNOWN, KNOWN = Curvature(jnp.asarray(0.0)), Curvature(jnp.asarray(1 / 0.9))  # μ = 1


def residual(x, y):
    return np.linalg.norm(QUADRATIC.A @ y - QUADRATIC.B @ x - QUADRATIC.c)


def error(x, y):
    return np.linalg.norm(y - QUADRATIC.minimiser(np.asarray(x)))


INNER = {
    "gradient descent": lambda steps: bl.GradientDescent(1 / 30, steps),
    "automatic": lambda steps: bl.GradientDescent("auto", steps),
    "nesterov": lambda steps: bl.Nesterov.tuned(30.0, 1.0, steps),
}


@pytest.mark.parametrize("name", INNER)
def test_the_inner_loop_removes_all_but_its_share(name):
    """The smallest curvature that was seen is at least μ = 1, so the error may be a bit larger."""
    solver = INNER[name](bl.Adaptive(0.1))
    y, state, info = solver(QUADRATIC.problem, X, Y, solver.init(Y), 1)
    assert info.result == bl.Status.COMPLETED
    assert 2 < info.steps < 500
    assert 1 / 30 < state.curvature.inverse_mu <= 1 + 1e-9  # between 1/L and 1/μ
    y, _, again = solver(QUADRATIC.problem, X, Y, state._replace(curvature=KNOWN), 1)
    assert again.steps < info.steps  # which knew nothing, and had to leave less
    assert error(X, y) <= 0.15 * error(X, Y)
    np.testing.assert_allclose(again.residual, residual(X, y), rtol=1e-9)  # at the y returned
    few = INNER[name](bl.Adaptive(0.1, most=2))
    _, _, short = few(QUADRATIC.problem, X, Y, few.init(Y), 1)
    assert short.result == bl.Status.UNCONVERGED


LINEAR = {
    "cg": bl.CG(bl.Adaptive(0.05)),
    "richardson": bl.Richardson(1 / 30, bl.Adaptive(0.05)),
    "automatic": bl.Richardson("auto", bl.Adaptive(0.05)),
    "chebyshev": bl.Chebyshev(30.0, 1.0, bl.Adaptive(0.05)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_the_linear_loop_follows_the_same_rule(name):
    b = jnp.asarray(QUADRATIC.t)
    A = jnp.asarray(QUADRATIC.A)
    v, _, info = LINEAR[name](lambda v: A @ v, b, Y, KNOWN, 1)
    solution = np.linalg.solve(QUADRATIC.A, QUADRATIC.t)
    assert np.linalg.norm(v - solution) <= 0.1 * np.linalg.norm(Y - solution)
    assert info.result == bl.Status.COMPLETED
    assert info.steps <= info.cost.products <= info.steps + 1


@pytest.mark.parametrize("loop", ["inner", "linear"])
def test_a_smaller_share_takes_more_steps(loop):
    def steps(share):
        if loop == "inner":
            solver = bl.GradientDescent(1 / 30, bl.Adaptive(share))
            return solver(QUADRATIC.problem, X, Y, solver.init(Y), 1)[2].steps
        A, b, solver = jnp.asarray(QUADRATIC.A), jnp.asarray(QUADRATIC.t), bl.CG(bl.Adaptive(share))
        return solver(lambda v: A @ v, b, Y, KNOWN, 1)[2].steps

    assert steps(0.5) < steps(0.1) < steps(0.001)


@jax.jit
def both_ways(H, b, v0, share):
    """Conjugate gradients by their recurrences, and with a preconditioner that changes nothing."""
    rule = bl.Adaptive(share)
    nothing = bl.Diagonal(jnp.ones_like(b))
    plain, changed = bl.CG(rule), bl.CG(rule, preconditioner=nothing)
    return tuple(cg(lambda v: H @ v, b, v0, cg.init(b), 0) for cg in (plain, changed))


def spread(seed, log_kappa, dtype):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    H = (basis * np.geomspace(1, 10**log_kappa, 12) @ basis.T).astype(dtype)
    return H, *rng.normal(size=(2, 12)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    log_kappa=st.floats(0.3, 3),
    share=st.floats(0.01, 0.5),
    seed=st.integers(0, 99),
    start=st.sampled_from([0, 1]),
)
def test_conjugate_gradients_know_the_way_that_they_have_come(dtype, log_kappa, share, seed, start):
    """With a preconditioner it is told by points and residuals."""
    H, b, v0 = spread(seed, log_kappa, dtype)
    (v, known, info), (u, seen, told) = both_ways(H, b, dtype(start) * v0, share)
    # After more steps than there are dimensions the two are rounded differently.
    steps, others = int(info.steps), int(told.steps)
    assert abs(steps - others) <= (dtype is np.float32 and steps > 12)
    assume(steps == others)
    digits = {np.float32: 1e-3, np.float64: 1e-6}[dtype]
    np.testing.assert_allclose(known.inverse_mu, seen.inverse_mu, rtol=digits)
    np.testing.assert_allclose(v, u, rtol=digits, atol=digits)


@given(log_kappa=st.floats(0.3, 3), share=st.floats(0.01, 0.05), seed=st.integers(0, 99))
def test_from_zero_the_first_residual_is_known(log_kappa, share, seed):
    """The systems of Newton's method start there, and spare a product.

    (With a large share one that is not part of a loop goes on until v = 0 is far from as good.)
    """
    H, b, _ = map(jnp.asarray, spread(seed, log_kappa, np.float64))
    (v, known, info), _ = both_ways(H, b, jnp.zeros_like(b), share)
    delta, learnt, products, left, *_ = DIRECTION(H, b, share)
    assert int(products) + 1 == int(info.cost.products)
    np.testing.assert_allclose(left, np.linalg.norm(H @ delta - b), rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(learnt.inverse_mu, known.inverse_mu, rtol=1e-9)
    np.testing.assert_allclose(delta, v, rtol=1e-9, atol=1e-12)


@jax.jit
def DIRECTION(H, d, share, travelled=0.0):
    share = jnp.asarray(share, float)
    return newton_direction(lambda v: H @ v, d, UNKNOWN, share, 1000, jnp.asarray(travelled))


def test_a_system_that_is_part_of_a_loop_counts_the_way_before_it():
    A, b = jnp.asarray(QUADRATIC.A), jnp.asarray(QUADRATIC.t)
    steps = []
    for come in (0.0, 1e3, 1e9):
        v, learnt, products, *_ = DIRECTION(A, b, 0.01, come)
        left = learnt.inverse_mu * np.linalg.norm(A @ v - b)
        assert left <= 1e-4 * np.hypot(np.linalg.norm(v), come) * (1 + 1e-9)
        steps.append(int(products))
    assert steps[0] > steps[1] > steps[2] == 2  # the second shows whether the first was enough
    # The two ways are taken to stand upright on one another.
    come = float(np.linalg.norm(np.linalg.solve(A, b)))
    known = jax.jit(lambda share: newton_direction(lambda v: A @ v, b, KNOWN, share, 1000, come))
    for share in np.geomspace(1e-3, 0.9, 60):
        v, learnt, *_ = known(jnp.asarray(share))
        left = learnt.inverse_mu * np.linalg.norm(A @ v - b)
        assert left <= share * np.hypot(np.linalg.norm(v), come) * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_curvature_is_seen_in_half_precision(dtype):
    """The difference of two gradients has a digit or two there, which is enough."""
    H = jnp.diag(jnp.geomspace(1, 20, 8)).astype(dtype)
    solvers = (
        bl.Richardson(0.05, bl.Adaptive(0.1)),
        bl.CG(bl.Adaptive(0.1)),
        bl.CG(bl.Adaptive(0.1), preconditioner=bl.Diagonal(jnp.ones(8, dtype))),
    )
    for solver in solvers:
        b = jnp.ones(8, dtype)
        v, state, info = solver(lambda v: H @ v, b, jnp.zeros_like(b), solver.init(b), 0)
        assert state.inverse_mu > 0.05
        assert info.steps < 100
        error = np.linalg.norm(np.asarray(v, float) - np.geomspace(1, 1 / 20, 8))
        assert error < 0.3 * np.linalg.norm(np.geomspace(1, 1 / 20, 8))


def test_a_system_that_is_solved_already_is_left_alone():
    """Its residual is rounding: there is no step to learn from, and none to wait for."""
    b = jnp.asarray([3.0, 6.0, 9.0])
    v0 = jnp.asarray([np.nextafter(1.0, 2.0), 2.0, 3.0])
    assert 0 < jnp.linalg.norm(b - 3 * v0) < np.finfo(float).eps * jnp.linalg.norm(b)
    _, _, info = bl.CG("auto")(lambda v: 3 * v, b, v0, Curvature(jnp.asarray(0.5)), 1)
    assert info.cost.products <= 3


def test_an_adaptive_loop_ends_at_a_breakdown():
    """The second direction is (0, 2), along which H is flat: nothing is learnt from it."""
    H = jnp.diag(jnp.asarray([1.0, 1e-18]))
    v, state, info = bl.CG("auto")(lambda v: H @ v, jnp.ones(2), jnp.zeros(2), UNKNOWN, 1)
    assert info.result == bl.Status.SINGULAR
    np.testing.assert_allclose(state.inverse_mu, 2.0)  # ⟨p, p⟩ / ⟨p, Hp⟩ of the first, (1, 1)
    np.testing.assert_allclose(v, 2.0)


def test_the_first_outer_step_starts_cold_and_goes_farther():
    solver = bl.GradientDescent("auto", "auto")
    cold, warm = (solver(QUADRATIC.problem, X, Y, solver.init(Y), k)[0] for k in (0, 1))
    assert residual(X, cold) < 0.3 * residual(X, warm)


def test_a_loop_that_has_only_rounding_left_ends():
    """Started at the solution, no residual can fall to a share of the first one."""
    y = jnp.asarray(QUADRATIC.minimiser(np.asarray(X)))
    solver = bl.GradientDescent("auto", "auto")
    _, _, info = solver(QUADRATIC.problem, X, y, solver.init(y), 1)
    assert info.steps < 100
    assert info.result == bl.Status.COMPLETED
    v, _, linear = bl.CG("auto")(lambda v: 2 * v, 2 * y, y, UNKNOWN, 1)
    assert linear.steps < 100
    np.testing.assert_array_equal(v, y)


PROBLEMS = {
    "quadratic": (QUADRATIC.problem, X, Y),
    "logistic": logistic_problem(),
    "pytrees": tree_problem(),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS])
def test_no_setting_is_needed(name):
    """‖∇Φ‖² falls to a millionth (as measured exactly) without a step size or a loop size."""
    problem, x, y = PROBLEMS[name]

    def squared_norm(x, y):
        h, _, info = stepped(EXACT, problem, x, y)
        assert info.result < 10
        return sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(h))

    start = squared_norm(x, y)
    run = bl.solve(
        problem, x, y, bl.schemes.auto(), outer="auto", steps=100, epsilon=0.5e-6 * float(start)
    )
    assert run.status is bl.Status.CONVERGED
    assert squared_norm(run.x, run.y) <= 1e-6 * start


EXACT = bl.Exact()


@pytest.mark.parametrize(
    "inner", [bl.NewtonCG(), bl.GradientDescent(0.015, "auto")], ids=["newton", "descent"]
)
@pytest.mark.parametrize("seen_by", ["N-loop", "Q-loop"])
def test_both_loops_know_what_one_has_seen_of_the_curvature(seen_by, inner):
    """One of them moves only along the stiff coordinate, the other only along the flat one."""
    curvature = jnp.asarray([100.0, 0.1])
    flat, stiff = jnp.asarray([0.0, 1.0]), jnp.asarray([1.0, 0.0])
    y_way, v_way = (flat, stiff) if seen_by == "N-loop" else (stiff, flat)
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(curvature * (y - y_way) ** 2) + 0 * x,
        lambda x, y: jnp.vdot(v_way, y) + 0.5 * x**2,
    )
    method, x = bl.AID(inner, bl.CG("auto")), jnp.asarray(1.0)
    _, state, _ = stepped(method, problem, x, jnp.zeros(2))
    inner_curvature = getattr(state.inner, "curvature", state.inner)
    seen = [inner_curvature.inverse_mu, state.linear.inverse_mu]
    np.testing.assert_allclose(seen, 1 / 0.1, rtol=0.11)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, np.nan])
def test_shares_that_are_none_are_refused(share):
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        bl.Adaptive(share)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bl.Adaptive(0.1, most=0), "most must be an integer of at least 1, got 0"),
        (lambda: bl.GradientDescent("automatic", 3), "step_size must be a number"),
        (lambda: bl.CG("automatic"), 'steps must be an integer, "auto"'),
        (lambda: bl.NewtonCG(3), "NewtonCG sizes its own loops: .* got 3"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


BOWL = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y))


@pytest.mark.parametrize(("k", "steps"), [(0, 19), (1, 16)])
def test_the_first_loop_leaves_its_share_to_the_power_of_three_halves(k, steps):
    """½(y − 1)² from 0 with α = ½: the residual 2⁻ʲ is a share 1/(2ʲ − 1) of the way.

    A hundredth of 10⁻² is reached at j = 14 and of 10⁻³ at j = 17: so much is asked of a loop that
    knows nothing; and what is seen first is believed when seen twice.
    """
    solver = bl.GradientDescent(0.5, bl.Adaptive(1e-2))
    _, _, info = solver(BOWL, jnp.ones(1), jnp.zeros(1), solver.init(jnp.zeros(1)), k)
    assert (int(info.steps), int(info.result)) == (steps, bl.Status.COMPLETED)


def test_what_was_seen_of_the_curvature_is_trusted_less_in_the_next_loop():
    solver = bl.GradientDescent(0.5, bl.Adaptive(1e-2))
    for before, after in ((4.0, 3.6), (0.5, 1.0)):  # 1/μ = 1 is seen anew
        state = solver.init(jnp.zeros(1))
        state = state._replace(curvature=state.curvature._replace(inverse_mu=jnp.asarray(before)))
        _, state, _ = solver(BOWL, jnp.ones(1), jnp.zeros(1), state, 1)
        assert float(state.curvature.inverse_mu) == pytest.approx(after)


def test_a_loop_that_gets_no_further_ends_after_thirty_steps():
    """A slope that never falls: the first residual, and thirty that are no smaller."""
    problem = bl.Problem(lambda x, y: jnp.sum(y), lambda x, y: jnp.sum(y))
    solver = bl.GradientDescent(0.5, bl.Adaptive(1e-2))
    _, _, info = solver(problem, jnp.ones(1), jnp.zeros(1), solver.init(jnp.zeros(1)), 1)
    assert (int(info.steps), int(info.result)) == (31, bl.Status.UNCONVERGED)


@pytest.mark.parametrize("inner", [bl.NewtonCG(), bl.GradientDescent("auto", "auto")])
def test_how_far_the_first_start_is_does_not_say_how_well_y_must_be_known(inner):
    """From y⁰ = 10⁵ a share of the way was thirty times y*, and h was that of another y."""
    scales, x = jnp.asarray([1.0, 0.1, 0.01]), jnp.asarray([1.0, 2.0, 3.0])
    problem = bl.Problem(
        lambda x, y: 0.5 * jnp.sum(scales * (y - x) ** 2), lambda x, y: jnp.sum(jnp.sin(y))
    )
    method, far = bl.AID(inner, bl.CG("auto")), jnp.full(3, 1e5)
    h, _, info = jax.jit(method)(problem, x, method.init(problem, x, far), 0)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(h, jnp.cos(x), atol=0.1)


STIFF = random_quadratic(q=60, p=5, kappa=1e8)


@pytest.mark.parametrize(
    ("method", "times"),
    [
        (bl.schemes.auto(), 2),
        (bl.AID(bl.GradientDescent("auto", "auto"), bl.CG("auto")), 2),
        (bl.ITD(bl.GradientDescent("auto", "auto")), 3),
    ],
    ids=["newton", "descent", "itd"],
)
@pytest.mark.parametrize("budget", [20, bl.Cost(20, 20)])
def test_a_loop_spends_no_more_than_a_budget_leaves(method, times, budget):
    """What the first step would take is far more; where its h leads x does not go."""
    x, y = STIFF.start()
    run = bl.solve(STIFF.problem, x, y, method, budget=budget)
    assert run.status is bl.Status.BUDGET_SPENT
    assert 20 <= run.cost.total < times * 20 + 6
    np.testing.assert_array_equal(run.x, x)
    assert "stopped before its residual" in run.message


def test_the_budget_of_one_run_cuts_no_loop_of_another():
    """Side by side each has its own; the look at the end has none."""
    x, y = STIFF.start()
    over = {"method": {"stiff": bl.schemes.auto(), "steep": bl.schemes.auto(0.2)}}
    swept = bl.sweep(
        STIFF.problem, x, y, bl.schemes.auto(), over=over, outer="auto", budget=10**5, steps=3
    )
    short = bl.sweep(
        STIFF.problem, x, y, bl.schemes.auto(), over=over, outer="auto", budget=20, steps=3
    )
    assert all(run.cost.total > 200 for run in swept.runs)
    assert all(20 <= run.cost.total < 46 for run in short.runs)
