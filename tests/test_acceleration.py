"""Chebyshev, preconditioning and block CG against polynomials and dense algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import chebyshev

import biloop as bl

from .helpers import logistic_problem, random_quadratic, relative_error, tree_problem
from .test_cost import run_and_count


@eqx.filter_jit
def solve_linear(solver, H, b, v0, k=0):
    v, _, info = solver(lambda v: H @ v, b, v0, solver.init(b), k)
    return v, info


def rotated(spectrum, seed=0):
    """A symmetric matrix with these eigenvalues, and two vectors."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(len(spectrum), len(spectrum))))[0]
    return jnp.asarray((U * spectrum) @ U.T), *jnp.asarray(rng.normal(size=(2, len(spectrum))))


# Chebyshev


def first_kind(Q, t):
    """T_Q(t), by NumPy."""
    return chebyshev.chebval(t, np.eye(Q + 1)[Q])


@given(
    seed=st.integers(0, 1000), kappa=st.floats(1.0, 1e4), Q=st.integers(1, 60), L=st.floats(0.1, 9)
)
def test_chebyshev_multiplies_the_error_by_its_polynomial(seed, kappa, Q, L):
    """v^Q − v* = T_Q((θ − H)/δ)/T_Q(θ/δ) (v⁰ − v*), with the interval's middle θ and radius δ."""
    mu = L / kappa
    rng = np.random.default_rng(seed)
    spectrum = np.concatenate([[mu, L], mu + (L - mu) * rng.uniform(size=4)])
    b, v0 = rng.normal(size=(2, 6))
    solver = bl.Chebyshev(L=L, mu=mu, steps=jnp.asarray(Q))
    v, info = solve_linear(solver, jnp.diag(spectrum), jnp.asarray(b), jnp.asarray(v0))
    error = v0 - b / spectrum
    if kappa > 1 + 1e-9:
        middle, radius = (L + mu) / 2, (L - mu) / 2
        factor = first_kind(Q, (middle - spectrum) / radius) / first_kind(Q, middle / radius)
    else:
        factor = np.zeros(6)
    scale = np.linalg.norm(error) + np.linalg.norm(b / spectrum)
    np.testing.assert_allclose(v - b / spectrum, factor * error, atol=1e-12 * kappa * scale)
    assert (int(info.cost.products), int(info.steps), int(info.result)) == (Q, Q, 0)


@pytest.mark.parametrize("kappa", [10.0, 1e4])
def test_chebyshev_needs_the_root_of_kappa(kappa):
    """As many steps as the bound asks for, and not fewer by more than a tenth."""
    H, b, _ = rotated(np.geomspace(1 / kappa, 1.0, 12))
    exact = np.linalg.solve(H, b)
    epsilon = 1e-6
    bound = int(np.ceil(np.arccosh(1 / epsilon) / np.arccosh((kappa + 1) / (kappa - 1))))

    def error(Q):
        solver = bl.Chebyshev(L=1.0, mu=1 / kappa, steps=jnp.asarray(Q))
        v, _ = solve_linear(solver, H, b, jnp.zeros_like(b))
        return np.linalg.norm(v - exact) / np.linalg.norm(exact)

    assert error(bound) <= epsilon < error(int(0.9 * bound))
    assert bound < np.sqrt(kappa) * np.log(2 / epsilon) / 2 + 1


def test_chebyshev_stops_at_its_tolerance_and_says_when_it_cannot():
    H, b, v0 = rotated(np.linspace(1.0, 8.0, 6))
    v, info = solve_linear(bl.Chebyshev(8.0, 1.0, steps=1000, tolerance=1e-5), H, b, v0)
    assert int(info.steps) < 40
    assert info.residual <= 1e-5
    assert relative_error(info.residual, np.linalg.norm(H @ v - b)) < 1e-6  # at the v returned
    _, info = solve_linear(bl.Chebyshev(8.0, 1.0, steps=3, tolerance=1e-9), H, b, v0)
    assert int(info.result) == bl.Status.UNCONVERGED


def test_chebyshev_refuses_an_empty_interval():
    with pytest.raises(ValueError, match=r"mu <= L, got mu=2.0, L=1.0"):
        bl.Chebyshev(L=1.0, mu=2.0, steps=3)
    with pytest.raises(ValueError, match="mu must be a finite number greater than 0, got 0"):
        bl.Chebyshev(L=1.0, mu=0, steps=3)


# Preconditioning


def badly_scaled(q=30, kappa=4.0, span=1e6, seed=0):
    """S A S with A well-conditioned and S spread over √span: all of its trouble is scaling."""
    A, b, _ = rotated(np.linspace(1.0, kappa, q), seed)
    scales = np.random.default_rng(seed).permutation(np.geomspace(span**-0.5, 1, q))
    return jnp.asarray(np.outer(scales, scales) * A), b * scales


def condition(H):
    low, *_, high = np.linalg.eigvalsh(H)
    return high / low


def steps_to(solver, H, b, relative=1e-8):
    """The steps until the residual is down to this share of b."""
    tolerance = relative * float(jnp.linalg.norm(b))
    _, info = solve_linear(solver(tolerance), H, b, jnp.zeros_like(b))
    assert info.residual <= tolerance
    return int(info.steps)


def test_the_diagonal_undoes_bad_scaling():
    """Steps fall from those of κ(H) to those of κ(D^{−½} H D^{−½}), by the bound of CG."""
    H, b = badly_scaled()
    D = jnp.diag(H)
    scaled = H / np.sqrt(np.outer(D, D))
    assert condition(H) > 1e5
    assert condition(scaled) < 5

    plain = steps_to(lambda tolerance: bl.CG(2000, tolerance), H, b)
    known = steps_to(lambda t: bl.CG(2000, t, preconditioner=bl.Diagonal(D)), H, b)
    found = steps_to(lambda t: bl.CG(2000, t, preconditioner=bl.Jacobi()), H, b)
    # ‖r‖ ≤ 2 √κ(H) ((√κ' − 1)/(√κ' + 1))^Q ‖r⁰‖ with κ' the condition number after scaling.
    root = np.sqrt(condition(scaled))
    bound = np.log(2 * np.sqrt(condition(H)) / 1e-8) / np.log((root + 1) / (root - 1))
    assert known == found <= bound
    assert plain > 3 * known


def test_preconditioned_cg_is_cg_on_the_scaled_system():
    """Step by step: v = D^{−½} w with w from CG on D^{−½} H D^{−½} w = D^{−½} b."""
    H, b = badly_scaled(q=8, span=100.0)
    roots = jnp.sqrt(jnp.diag(H))
    scaled = H / jnp.outer(roots, roots)
    for steps in (1, 3, 6):
        solver = bl.CG(jnp.asarray(steps), preconditioner=bl.Diagonal(roots**2))
        v, info = solve_linear(solver, H, b, jnp.zeros_like(b))
        w, _ = solve_linear(bl.CG(jnp.asarray(steps)), scaled, b / roots, jnp.zeros_like(b))
        assert relative_error(v, w / roots) < 1e-9
        np.testing.assert_allclose(info.residual, np.linalg.norm(H @ v - b), rtol=1e-6, atol=1e-12)
        assert int(info.cost.products) == steps + 1


def test_probes_estimate_the_diagonal_to_their_standard_error():
    H, b, _ = rotated(np.linspace(1.0, 3.0, 40))
    probes = 200
    apply, products = bl.Jacobi(probes)(lambda v: H @ v, b, 0)
    estimate = 1 / apply(jnp.ones_like(b))
    off = np.asarray(H) - np.diag(np.diag(H))
    standard_error = np.linalg.norm(off, axis=1) / np.sqrt(probes)
    deviations = (estimate - np.diag(H)) / standard_error
    assert int(products) == probes
    assert np.all(np.abs(deviations) < 5)
    assert 0.7 < np.sqrt(np.mean(deviations**2)) < 1.3
    exact, products = bl.Jacobi()(lambda v: H @ v, b, 0)
    np.testing.assert_allclose(1 / exact(jnp.ones_like(b)), np.diag(H), rtol=1e-14)
    assert int(products) == 40


def test_entries_below_their_noise_stay_positive():
    """Correlated coordinates of very different scale: single samples are often negative."""
    H, b = badly_scaled(span=1e4)
    apply, _ = bl.Jacobi(probes=2)(lambda v: H @ v, b, 0)
    assert np.all(np.asarray(apply(jnp.ones_like(b))) > 0)
    v, info = solve_linear(bl.CG(steps=500, preconditioner=bl.Jacobi(probes=20)), H, b, 0 * b)
    assert int(info.result) == 0
    assert relative_error(v, np.linalg.solve(H, b)) < 1e-6


def test_a_negative_diagonal_is_named_not_divided_by():
    H = jnp.diag(jnp.asarray([1.0, -0.5, 2.0]))
    solver = bl.CG(steps=10, preconditioner=bl.Jacobi())
    v, info = solve_linear(solver, H, jnp.asarray([0.1, 1.0, 0.1]), jnp.zeros(3))
    assert int(info.result) == bl.Status.INDEFINITE
    assert np.all(np.isfinite(v))


class Reflection(bl.Preconditioner):
    """No preconditioner at all: it is not definite."""

    def __call__(self, matvec, b, k):
        return lambda r: r * jnp.asarray([1.0, -1.0, 1.0]), jnp.zeros((), jnp.int32)


def test_a_preconditioner_that_is_not_definite_is_named():
    """H is: only ⟨r, M⁻¹r⟩ < 0 gives it away."""
    solver = bl.CG(steps=10, preconditioner=Reflection())
    v, info = solve_linear(solver, jnp.eye(3), jnp.asarray([0.1, 1.0, 0.1]), jnp.zeros(3))
    assert int(info.result) == bl.Status.INDEFINITE
    np.testing.assert_array_equal(v, jnp.zeros(3))


def test_products_of_the_preconditioner_are_in_the_cost():
    """Counted at run time; y has five entries."""
    inner = bl.GradientDescent(step_size=0.1, steps=3)
    run, _, counted = run_and_count(bl.AID(inner, bl.CG(2, preconditioner=bl.Jacobi())), K=2)
    assert run.cost.products == counted == 2 * (5 + 2 + 2)


def test_preconditioners_refuse_what_cannot_be():
    eye = jnp.eye(3), jnp.ones(3), jnp.ones(3)
    with pytest.raises(ValueError, match="must be positive; the smallest is -1"):
        bl.Diagonal({"w": jnp.asarray([1.0, -1.0])})
    with pytest.raises(ValueError, match="probes must be an integer of at least 2"):
        bl.Jacobi(probes=1)
    with pytest.raises(TypeError, match="preconditioner must be Diagonal"):
        bl.CG(steps=3, preconditioner=jnp.ones(3))
    with pytest.raises(ValueError, match="does not have the structure of y"):
        solve_linear(bl.CG(3, preconditioner=bl.Diagonal(jnp.ones(2))), *eye)
    with pytest.raises(ValueError, match="would take 3 products"):
        solve_linear(bl.CG(3, preconditioner=bl.Jacobi(limit=2)), *eye)


# Several right-hand sides


@eqx.filter_jit
def solve_block(H, B, V0, steps, tolerance=None):
    return bl.block_cg(lambda v: H @ v, B, V0, steps=steps, tolerance=tolerance)


def test_block_cg_solves_all_columns_in_fewer_steps_than_the_slowest_cg():
    q, p = 60, 6
    H, _, _ = rotated(np.geomspace(1e-3, 1.0, q))
    B = jnp.asarray(np.random.default_rng(1).normal(size=(p, q)))
    V, info = solve_block(H, B, jnp.zeros_like(B), 200, tolerance=1e-9)
    assert relative_error(V, np.linalg.solve(H, B.T).T) < 1e-8
    np.testing.assert_allclose(info.residual, np.linalg.norm(V @ H - B), rtol=1e-3)
    assert int(info.cost.products) == (int(info.steps) + 2) * p  # the residuals at both ends

    single = [int(solve_linear(bl.CG(200, 1e-9), H, b, jnp.zeros_like(b))[1].steps) for b in B]
    assert int(info.steps) < 0.5 * max(single)


def test_block_cg_minimises_over_the_directions_of_all_columns():
    H, _, _ = rotated(np.geomspace(0.02, 1.0, 12))
    B, V0 = jnp.asarray(np.random.default_rng(2).normal(size=(2, 3, 12)))
    R = (B - V0 @ H).T
    krylov = R
    for steps in (1, 2, 3):
        K = np.linalg.qr(krylov)[0]
        best = V0.T + K @ np.linalg.solve(K.T @ H @ K, K.T @ R)
        V, _ = solve_block(H, B, V0, jnp.asarray(steps))
        assert relative_error(V.T, best) < 1e-9
        krylov = np.concatenate([krylov, H @ krylov[:, -3:]], axis=1)


def test_block_cg_takes_dependent_zero_and_too_many_columns():
    H, b, c = rotated(np.linspace(1.0, 5.0, 4))
    B = jnp.stack([b, 2 * b, c, jnp.zeros(4), b + c, c - b])  # six columns, rank two, q = 4
    V, info = solve_block(H, B, jnp.zeros_like(B), jnp.asarray(6))
    assert int(info.result) == 0
    np.testing.assert_allclose(V, np.linalg.solve(H, B.T).T, atol=1e-12)
    assert int(info.cost.products) == 6 * 4 + 2 * 6
    indefinite = H - 2 * jnp.eye(4)
    _, info = solve_block(indefinite, B[:2], jnp.zeros_like(B[:2]), jnp.asarray(6))
    assert int(info.result) == bl.Status.INDEFINITE
    _, info = solve_block(H.at[0, 0].set(jnp.nan), B, jnp.zeros_like(B), jnp.asarray(6))
    assert not np.isfinite(info.residual)


def test_response_of_a_quadratic():
    quadratic = random_quadratic(q=9, p=4, kappa=20.0)
    x, _ = quadratic.start()
    y = jnp.asarray(quadratic.minimiser(x))
    jacobian, info, cost = bl.response(quadratic.problem, x, y, tolerance=1e-12)
    assert relative_error(jacobian, np.linalg.solve(quadratic.A, quadratic.B)) < 1e-10
    assert int(info.steps) <= 3  # nine dimensions in steps of four
    assert cost == (0, (int(info.steps) + 3) * 4)  # with the residuals at both ends
    small = quadratic._replace(B=1e-8 * quadratic.B).problem  # the tolerance is relative to it
    reduced = bl.response(small, x, y, tolerance=1e-6).jacobian
    assert relative_error(1e8 * reduced, jacobian) < 1e-5


def test_response_has_the_form_of_a_jacobian():
    """On pytrees, against differences of the exact solution."""
    problem, x, y = tree_problem()
    exact = bl.Exact()
    solve = jax.jit(lambda x: exact(problem, x, exact.init(problem, x, y), 0)[1].y)
    solution = solve(x)
    jacobian, _, _ = bl.response(problem, x, solution, tolerance=1e-10)
    shapes = jax.tree.map(jnp.shape, jacobian)
    assert shapes == [
        {"bias": (3, 2, 2), "matrix": (3, 2)},
        {"bias": {"b": {"bias": (1, 2, 2), "matrix": (1, 2)}}},
    ]
    step = 1e-5
    up, down = (solve(x | {"matrix": x["matrix"] + s}) for s in (step, -step))
    difference = jax.tree.map(lambda a, b: (a - b) / (2 * step), up, down)
    assert relative_error(jacobian[0]["matrix"], difference[0]) < 1e-8
    assert relative_error(jacobian[1]["bias"]["b"]["matrix"], difference[1]) < 1e-8


def test_response_gives_the_hypergradient():
    """∇Φ = ∇_x f + (∂y*/∂x)ᵀ ∇_y f, for any outer function, once it is there."""
    problem, x, y = logistic_problem()
    exact = bl.Exact()
    h, state, _ = jax.jit(exact)(problem, x, exact.init(problem, x, y), 0)
    jacobian = bl.response(problem, x, state.y, tolerance=1e-12).jacobian
    f_y = jax.grad(problem.outer, 1)(x, state.y, *problem.outer_data)
    assert relative_error(jacobian.T @ f_y, h) < 1e-9


def test_response_refuses_a_large_x():
    problem, x, y = logistic_problem()
    with pytest.raises(ValueError, match=r"x has 5 entries.*limit=5"):
        bl.response(problem, x, y, limit=4)
