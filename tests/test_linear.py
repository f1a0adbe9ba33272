"""The Q-loop against dense algebra and the paper's series; breakdown is named."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biloop as bl
from biloop.vectors import all_finite, norm

from .helpers import LINEAR_SOLVERS, random_quadratic, relative_error, stepped


@eqx.filter_jit
def solve_linear(solver, H, b, v0, k=0):
    v, _, info = solver(lambda v: H @ v, b, v0, solver.init(b), k)
    return v, info


def system(seed=0, q=6, kappa=8.0):
    quadratic = random_quadratic(seed, q=q, kappa=kappa)
    rng = np.random.default_rng(seed)
    return jnp.asarray(quadratic.A), *jnp.asarray(rng.normal(size=(2, q)))


LONG = {
    "richardson": bl.Richardson(step_size=0.12, steps=400),
    "neumann": bl.Neumann(step_size=0.12, steps=400),
    "cg": bl.CG(steps=8),
    "cg to tolerance": bl.CG(steps=100, tolerance=1e-11),
    "dense": bl.Dense(),
    "lineax cg": bl.Lineax(lx.CG(rtol=1e-13, atol=1e-13)),
    "lineax gmres": bl.Lineax(lx.GMRES(rtol=1e-12, atol=1e-12)),
    "lineax bicgstab": bl.Lineax(lx.BiCGStab(rtol=1e-12, atol=1e-12)),
    "lineax cholesky": bl.Lineax(lx.Cholesky()),
    "lineax lu": bl.Lineax(lx.LU()),
    "lineax qr": bl.Lineax(lx.QR()),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("warm", [False, True])
def test_dense_algebra(name, warm):
    H, b, v0 = system()
    v, info = solve_linear(LONG[name], H, b, v0 if warm else jnp.zeros_like(b))
    assert relative_error(v, np.linalg.solve(H, b)) < 1e-10
    assert info.residual < 1e-9
    assert int(info.result) == 0


@pytest.mark.parametrize("solver", [bl.Richardson, bl.Neumann])
@pytest.mark.parametrize("Q", [1, 2, 5])
def test_series_with_q_terms(solver, Q):
    """From v⁰ = 0 both give η Σ_{j<Q} (I − ηH)^j b."""
    H, b, _ = system()
    eta = 0.1
    expected = eta * sum(np.linalg.matrix_power(np.eye(6) - eta * H, j) @ b for j in range(Q))
    v, info = solve_linear(solver(step_size=eta, steps=Q), H, b, jnp.zeros_like(b))
    assert relative_error(v, expected) < 1e-13
    assert int(info.steps) == Q


@given(seed=st.integers(0, 1000), Q=st.integers(1, 40))
def test_neumann_and_richardson_agree_from_any_start(seed, Q):
    H, b, v0 = system(seed)
    steps = jnp.asarray(Q)
    series, info = solve_linear(bl.Neumann(step_size=0.1, steps=steps), H, b, v0)
    descent, _ = solve_linear(bl.Richardson(step_size=0.1, steps=steps), H, b, v0)
    assert relative_error(series, descent) < 1e-11
    np.testing.assert_allclose(info.residual, np.linalg.norm(H @ series - b), atol=1e-12)


@given(seed=st.integers(0, 1000), kappa=st.floats(1.0, 1e4), scale=st.floats(1e-6, 1e6))
def test_cg_ends_in_as_many_steps_as_dimensions(seed, kappa, scale):
    H, b, v0 = system(seed, q=5, kappa=kappa)
    v, info = solve_linear(bl.CG(steps=10), scale * H, b, v0 / scale)
    assert relative_error(v, np.linalg.solve(scale * H, b)) < 1e-8
    assert int(info.result) == 0


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_cg_returns_the_converged_iterate(steps):
    """For A = 2I one step is exact. (The CG that several libraries share returns 0 here.)"""
    b = jnp.arange(1.0, 6.0)
    v, info = solve_linear(bl.CG(steps=steps), 2 * jnp.eye(5), b, jnp.zeros(5))
    np.testing.assert_allclose(v, b / 2, rtol=1e-15)
    assert int(info.result) == 0


def test_cg_minimises_the_energy_over_the_krylov_space():
    """Its defining property, at every step, against a dense minimisation over the space."""
    H, b, v0 = system(kappa=50.0)
    r0 = b - H @ v0
    krylov = [r0]
    for steps in range(1, 5):
        K = np.linalg.qr(np.stack(krylov, axis=1))[0]
        best = v0 + K @ np.linalg.solve(K.T @ H @ K, K.T @ r0)
        v, _ = solve_linear(bl.CG(steps=steps), H, b, v0)
        assert relative_error(v, best) < 1e-10
        krylov.append(H @ krylov[-1])


def test_cg_at_the_solution_stays_there():
    H, b, _ = system()
    solution = jnp.asarray(np.linalg.solve(H, b))
    v, info = solve_linear(bl.CG(steps=20), H, b, solution)
    assert relative_error(v, solution) < 1e-13
    assert int(info.result) == 0


@pytest.mark.parametrize("name", ["richardson", "neumann", "cg", "cg to tolerance", "dense"])
def test_zero_right_hand_side(name):
    H, b, _ = system()
    v, info = solve_linear(LONG[name], H, jnp.zeros_like(b), jnp.zeros_like(b))
    np.testing.assert_array_equal(v, jnp.zeros_like(b))
    assert int(info.result) == 0


@pytest.mark.parametrize("solver", [bl.CG(steps=10), bl.Dense()], ids=["cg", "dense"])
def test_indefinite_is_named(solver):
    H = jnp.diag(jnp.asarray([1.0, -0.5, 2.0]))
    v, info = solve_linear(solver, H, jnp.ones(3), jnp.zeros(3))
    assert int(info.result) == bl.Status.INDEFINITE
    assert np.all(np.isfinite(v))


@pytest.mark.parametrize("solver", [bl.CG(steps=10), bl.Dense()], ids=["cg", "dense"])
def test_singular_is_named(solver):
    H = jnp.diag(jnp.asarray([1.0, 0.0, 2.0]))
    _, info = solve_linear(solver, H, jnp.ones(3), jnp.zeros(3))
    assert int(info.result) == bl.Status.SINGULAR


def test_lineax_failures_are_named():
    H = jnp.diag(jnp.asarray([1.0, 10.0, 100.0, 1000.0]))
    few = bl.Lineax(lx.CG(rtol=1e-12, atol=1e-12, max_steps=2))
    _, info = solve_linear(few, H, jnp.ones(4), jnp.zeros(4))
    assert int(info.result) == bl.Status.UNCONVERGED
    _, info = solve_linear(bl.Lineax(lx.LU()), jnp.zeros((4, 4)), jnp.ones(4), jnp.zeros(4))
    assert int(info.result) >= bl.Status.INNER_NOT_FINITE or not np.isfinite(info.residual)


@pytest.mark.parametrize("name", LINEAR_SOLVERS)
def test_nan_is_not_masked(name):
    H, b, v0 = system()
    _, info = solve_linear(LINEAR_SOLVERS[name](), H.at[0, 0].set(jnp.nan), b, v0)
    assert not np.isfinite(info.residual) or int(info.result) >= bl.Status.INNER_NOT_FINITE


def test_tolerance_is_met():
    H, b, v0 = system()
    for solver in (
        bl.Richardson(step_size=0.1, steps=1000, tolerance=1e-5),
        bl.CG(steps=1000, tolerance=1e-5),
        bl.Neumann(step_size=0.1, steps=1000, tolerance=1e-5),
    ):
        v, info = solve_linear(solver, H, b, v0)
        assert info.steps < 1000
        assert info.residual <= 1e-5
        assert np.linalg.norm(H @ v - b) <= 1e-5
    # A product at the start, one in each term, and one to judge what came out.
    assert info.cost.products == info.steps + 2


def test_a_preconditioner_that_is_not_positive_is_told():
    """Jacobi makes z = (−1, ½) of r = (1, 1), with ⟨r, z⟩ < 0 though ⟨z, Hz⟩ = ½ > 0."""
    H, b = jnp.asarray([[-1.0, -1.0], [-1.0, 2.0]]), jnp.ones(2)
    _, info = solve_linear(bl.CG(1, preconditioner=bl.Jacobi()), H, b, jnp.zeros(2))
    assert int(info.result) == bl.Status.INDEFINITE


@pytest.mark.parametrize("tolerance", [5.0, 5.5])
def test_a_start_that_is_good_enough_is_returned(tolerance):
    """‖b − Hv⁰‖ = 5 exactly: at most the tolerance."""
    H, b = jnp.diag(jnp.asarray([1.0, 2.0])), jnp.asarray([3.0, 4.0])
    v, info = solve_linear(bl.CG(9, tolerance), H, b, jnp.zeros(2))
    np.testing.assert_array_equal(v, jnp.zeros(2))
    assert (int(info.steps), int(info.cost.products), float(info.residual)) == (0, 1, 5.0)
    v, info = solve_linear(bl.Richardson(0.1, 9, tolerance), H, b, jnp.zeros(2))
    np.testing.assert_array_equal(v, jnp.zeros(2))
    assert (int(info.steps), float(info.residual)) == (1, 5.0)


@pytest.mark.parametrize("preconditioned", [False, True])
@given(seed=st.integers(0, 1000), log_kappa=st.floats(1.0, 7.0), digits=st.floats(2.0, 13.0))
def test_cg_says_of_its_residual_what_is_true(preconditioned, seed, log_kappa, digits):
    """In float32 the recurrence drifts: the residual told is not below ‖b − Hv‖ in float64."""
    H, b, v0 = system(seed, q=40, kappa=10**log_kappa)
    tolerance = float(10**-digits * np.linalg.norm(b))
    H32, b32, v32 = (jnp.asarray(a, jnp.float32) for a in (H, b, v0))
    other = np.exp(np.random.default_rng(seed).normal(size=len(b)))  # any positive one will do
    M = bl.Diagonal(jnp.asarray(other * np.diag(H), jnp.float32)) if preconditioned else None
    v, info = solve_linear(bl.CG(jnp.asarray(400), jnp.asarray(tolerance), M), H32, b32, v32)
    wide = [np.asarray(a, np.float64) for a in (H32, v, b32)]
    true = np.linalg.norm(wide[0] @ wide[1] - wide[2])
    rounding = 40**0.5 * np.finfo(np.float32).eps * np.linalg.norm(wide[0], 2)
    noise = rounding * np.linalg.norm(wide[1])  # of a product in float32
    if int(info.result) == bl.Status.COMPLETED:
        assert float(info.residual) <= tolerance * (1 + 1e-6)
        assert true <= tolerance + noise
    else:
        assert int(info.result) in (bl.Status.UNCONVERGED, bl.Status.SINGULAR, bl.Status.INDEFINITE)
    assert true <= 1.01 * float(info.residual) + noise


def test_a_preconditioned_budget_is_spent_in_any_unit_of_h():
    """What counts as rounding is a share of b, and no number in the norm of M."""
    H, b, v0 = (jnp.asarray(a, jnp.float32) for a in system(3, q=40, kappa=1e3))
    for unit in (1.0, 2.0**-40):
        solver = bl.CG(200, preconditioner=bl.Diagonal(jnp.diag(unit * H)))
        v, _ = solve_linear(solver, unit * H, b, v0)
        assert np.linalg.norm(unit * H @ v - b) <= 1e-2 * np.linalg.norm(b)


def test_running_out_of_steps_is_said():
    H, b, v0 = system()
    for solver in (
        bl.Richardson(step_size=0.1, steps=2, tolerance=1e-9),
        bl.CG(steps=2, tolerance=1e-9),
        bl.Neumann(step_size=0.1, steps=2, tolerance=1e-9),
    ):
        _, info = solve_linear(solver, H, b, v0)
        assert int(info.result) == bl.Status.UNCONVERGED


def test_dense_refuses_what_does_not_fit():
    b = jnp.zeros(101)
    with pytest.raises(ValueError, match="101 × 101"):
        bl.Dense(limit=100)(lambda v: v, b, b, (), 0)


@pytest.mark.parametrize("solver", [bl.CG, lambda steps: bl.Neumann(step_size=0.1, steps=steps)])
def test_no_steps_make_no_sense(solver):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        solver(steps=0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        bl.Richardson(step_size=0.1, steps=-1)


@pytest.mark.parametrize("length", [1, 33, 1000])
@pytest.mark.parametrize("exponent", [-120, -70, -35, 0, 35, 70, 115])
def test_norms_are_true_at_both_ends_of_the_numbers(length, exponent):
    a = np.ldexp(np.random.default_rng(0).normal(size=length), exponent).astype(np.float32)
    expected = np.linalg.norm(a.astype(np.float64))
    np.testing.assert_allclose(norm(jnp.asarray(a)), expected, rtol=1e-6)
    # As a constant of a program, which XLA folds in an order of its own.
    np.testing.assert_allclose(jax.jit(lambda: norm(jnp.asarray(a)))(), expected, rtol=1e-6)
    assert jax.jit(lambda: norm(jnp.zeros(length)))() == 0
    a[-1] = np.nan
    assert np.isnan(norm(jnp.asarray(a)))
    assert not all_finite(jnp.asarray(a))


@pytest.mark.parametrize("length", [3, 2**16 + 1])  # in double precision, and with a scale
def test_norms_of_single_precision_without_double_precision(length):
    largest = np.full(length, 3e38, np.float32)
    with jax.enable_x64(False):
        assert jax.jit(all_finite)(largest)  # though its norm is none of float32
        size = jax.jit(norm)(largest * np.float32(1e-3))
        slope = jax.grad(lambda a: norm(a * a))(jnp.ones(length))
    assert size.dtype == slope.dtype == np.float32
    np.testing.assert_allclose(size, 3e35 * length**0.5, rtol=1e-5)
    np.testing.assert_allclose(slope, 2 / length**0.5, rtol=1e-5)


def test_low_precision_reductions_do_not_overflow():
    """⟨r, r⟩ of 400 entries of 200 is 1.6e7: beyond float16, so it must not be taken in it."""
    b = jnp.full(400, 200.0, jnp.float16)
    v, _, info = jax.jit(lambda b: bl.CG(steps=3)(lambda v: 2 * v, b, 0 * b, (), 0))(b)
    assert v.dtype == jnp.float16
    np.testing.assert_array_equal(v, jnp.full(400, 100.0, jnp.float16))
    assert int(info.result) == 0


@pytest.mark.parametrize("restart", [2, 3, 5])
def test_gmres_solves_a_singular_system_that_has_solutions(restart):
    """The Krylov space ends early, and H̄ has no full rank: the zero columns must not matter."""
    A, b = jnp.diag(jnp.array([1.0, 2.0, 0.0, 0.0, 0.0])), jnp.array([1.0, 1.0, 0.0, 0.0, 0.0])
    solver = bl.GMRES(steps=2 * restart, restart=restart, tolerance=1e-12)
    v, _, info = solver(lambda v: A @ v, b, jnp.zeros(5), (), 0)
    assert info.result == bl.Status.COMPLETED
    assert np.allclose(v, [1.0, 0.5, 0.0, 0.0, 0.0], atol=1e-12)


def test_gmres_does_not_hide_products_that_are_not_finite():
    solver = bl.GMRES(steps=4, restart=2, tolerance=1e-12)
    _, _, info = solver(
        lambda v: jnp.where(v[0] > 0.5, jnp.nan, v), jnp.ones(3), jnp.zeros(3), (), 0
    )
    assert not jnp.isfinite(info.residual) or info.result == bl.Status.UNCONVERGED


def test_normal_equations_share_what_they_see_of_the_system_in_its_own_units():
    """The inner loop knows 1/μ of A, theirs is of AᵀA: as one number they would depend on units."""
    method = bl.AID(bl.NewtonCG(), bl.NormalEquations(bl.CG("auto")))
    y = np.random.default_rng(0).normal(size=(20, 20))

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def products(unit, y):
        d = unit * jnp.geomspace(1e-3, 1.0, 20)
        problem = bl.Problem(lambda x, y: jnp.sum(d * y**2 / 2 - x * y), lambda _, y: jnp.sum(y**2))
        x = d * y  # y minimises g
        _, _, info = stepped(method, problem, x, jnp.zeros(20))
        return info.cost.products

    for unit in (2.0**-20, 2.0**20):
        np.testing.assert_array_equal(products(unit, y), products(1.0, y))


def test_a_tolerance_of_normal_equations_is_one_of_the_residual_in_any_unit():
    """CG sees Aᵀ(Av − b), in other units: it stopped before its first step, or went on for ever."""
    rng = np.random.default_rng(1)
    for unit in (1e-10, 1.0, 1e6):
        A, b = unit * rng.normal(size=(6, 6)), rng.normal(size=6)
        for tolerance, arrives in ((1e-8, True), (1e-30, False)):
            solver = bl.NormalEquations(bl.CG(steps=60, tolerance=tolerance))
            v, info = solve_linear(solver, A, b, np.zeros(6))
            left = np.linalg.norm(A @ v - b)
            assert (left <= tolerance) == arrives == (info.result == bl.Status.COMPLETED)
            assert 6 <= info.steps <= 60
            assert left <= 1e-8


def test_least_squares_of_a_singular_system_are_no_solution():
    A, b = np.diag([1.0, 0.0]), np.array([0.0, 1.0])  # Aᵀb = 0, which v = 0 solves
    _, info = solve_linear(bl.NormalEquations(bl.CG("auto")), A, b, np.zeros(2))
    assert info.result == bl.Status.UNCONVERGED
    assert info.residual == 1.0


def test_without_a_right_side_there_is_nothing_to_start_from():
    """b = 0 has no scale: in float32 the squares of a tiny v⁰ are zero, as if Hv⁰ were."""
    H, b, v0 = np.diag([1.0, 2.0, 3.0]).astype("f4"), np.zeros(3, "f4"), np.full(3, 1e-25, "f4")
    for solver in (bl.CG("auto"), bl.CG(3, tolerance=1e-30), bl.Lineax(lx.CG(1e-6, 1e-6))):
        v, info = solve_linear(solver, H, b, v0)
        assert not np.any(v)
        assert info.residual == 0


def test_gmres_does_not_take_a_null_vector_for_a_solution():
    """‖A‖‖v‖ eps is as large as b: that the residual is no larger says nothing of v."""
    b = np.ones(3, np.float32)
    for steps in ("auto", 3):
        for least, fine in ((1e-3, True), (1e-9, False), (0.0, False)):
            A = np.diag([1.0, 0.5, least]).astype("f4") + np.triu(np.full((3, 3), 0.1, "f4"), 1)
            v, info = solve_linear(bl.GMRES(steps), A, b, np.zeros(3, "f4"))
            assert (info.result == bl.Status.COMPLETED) == fine, (steps, least)
            if fine:
                np.testing.assert_allclose(v, np.linalg.solve(A.astype(float), b), rtol=1e-3)
