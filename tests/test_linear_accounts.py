"""What linear solvers say of themselves: products counted, the share of a way, where they end."""

from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.custom_derivatives import linear_call

import biloop as bl

A = np.diag([1.0, 2.0, 3.0, 5.0, 8.0]) + 0.1
B = jnp.asarray([1.0, -1.0, 2.0, 0.5, 3.0])
TICKS: Counter = Counter()


def counted(matrix):
    """v ↦ Av and its transpose, which count themselves when the program runs."""

    def tick(name, v):
        shape = jax.ShapeDtypeStruct(v.shape, v.dtype)
        count = lambda v: TICKS.update([name]) or v  # noqa: E731
        return jax.pure_callback(count, shape, v, vmap_method="sequential")

    def product(_, v):
        return tick("product", matrix @ v)

    def back(_, v):
        return tick("transpose", matrix.T @ v)

    return lambda v: linear_call(product, back, (), v)


SOLVERS = {
    "normal equations": bl.NormalEquations(bl.CG(steps=3)),
    "normal equations, jacobi": bl.NormalEquations(bl.CG(steps=2, preconditioner=bl.Jacobi())),
    "lineax bicgstab": bl.Lineax(lx.BiCGStab(rtol=1e-8, atol=1e-8)),
    "lineax gmres": bl.Lineax(lx.GMRES(rtol=1e-8, atol=1e-8, restart=3)),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_products_are_those_that_were_made(name):
    TICKS.clear()
    solver, matvec = SOLVERS[name], counted(jnp.asarray(A))
    _, _, info = eqx.filter_jit(solver)(matvec, B, jnp.zeros(5), solver.init(B), 0)
    jax.effects_barrier()
    assert int(info.cost.products) == TICKS["product"] + TICKS["transpose"]


def conjugate_gradients(H, b, v, steps):
    """The points and the residuals of the textbook."""
    r = b - H @ v
    points, residuals, p = [v], [r], r
    for _ in range(steps):
        a = r @ r / (p @ H @ p)
        v, left = v + a * p, r - a * (H @ p)
        p, r = left + (left @ left) / (r @ r) * p, left
        points.append(v)
        residuals.append(r)
    return points, residuals


def test_the_share_is_one_of_the_way_from_the_start():
    """With 1/μ = 1 known, ‖r‖ is at most the share of ‖v − v⁰‖: with a bit less a step more."""
    rng = np.random.default_rng(3)
    H, b, v0 = np.diag(np.geomspace(1.0, 20.0, 9)), rng.normal(size=9), rng.normal(size=9)
    points, residuals = conjugate_gradients(H, b, v0, 7)
    shares = [
        np.linalg.norm(r) / np.linalg.norm(v - v0)
        for v, r in zip(points[1:], residuals[1:], strict=True)
    ]
    assert shares == sorted(shares, reverse=True)
    run = eqx.filter_jit(lambda cg, known: cg(lambda v: H @ v, b, v0, known, 1)[2].steps)
    known = bl.CG("auto").init(b)._replace(inverse_mu=jnp.asarray(1 / 0.9))
    for steps in (4, 5, 6):
        assert np.linalg.norm(residuals[steps]) < 0.3 * np.linalg.norm(b)  # not nearly as v = 0
        for slack, more in ((1.001, 0), (0.999, 1)):
            cg = bl.CG(bl.Adaptive(slack * shares[steps - 1]))
            assert int(run(cg, known)) == steps + more


def test_only_damped_systems_are_given_few_products():
    """κ = 10⁴ takes some hundred products; what was damped before is cut off at a hundred."""
    H, b = jnp.geomspace(1e-4, 1.0, 400), jnp.ones(400)
    solver = bl.CG(bl.Adaptive(1e-6), indefinite="damp")
    run = eqx.filter_jit(lambda state: solver(lambda v: H * v, b, 0 * b, state, 1)[2])
    fresh = solver.init(b)
    info = run(fresh)
    assert int(info.result) == bl.Status.COMPLETED
    assert int(info.steps) > 200
    assert int(run(fresh._replace(damping=jnp.asarray(1e-9))).steps) == 100


def test_a_tolerance_below_rounding_does_not_take_all_steps():
    """The residual that is computed anew no longer halves: more steps would bring nothing."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    H = jnp.asarray((U * np.geomspace(1e-3, 1.0, 40)) @ U.T, jnp.float32)
    b = jnp.asarray(rng.normal(size=40), jnp.float32)
    _, _, info = eqx.filter_jit(bl.CG(3000, tolerance=3e-5))(lambda v: H @ v, b, 0 * b, (), 0)
    assert int(info.result) == bl.Status.UNCONVERGED
    assert int(info.steps) < 500
    columns = jnp.stack([b, b[::-1]])
    solve = jax.jit(lambda B: bl.block_cg(lambda v: H @ v, B, 0 * B, steps=3000, tolerance=3e-5))
    _, info = solve(columns)
    assert int(info.result) == bl.Status.UNCONVERGED
    assert int(info.steps) < 1000


@pytest.mark.parametrize(("largest", "converges"), [(4.95, True), (5.05, False)])
def test_chebyshev_bears_eigenvalues_up_to_the_sum_of_its_bounds(largest, converges):
    solver = bl.Chebyshev(L=4.0, mu=1.0, steps=1500)
    size, most = solver.stability(largest)
    assert (size <= most) == converges
    H = jnp.asarray([1.0, largest])
    v, _, _ = eqx.filter_jit(solver)(lambda v: H * v, jnp.ones(2), jnp.zeros(2), (), 0)
    assert (np.linalg.norm(H * v - 1) < 1e-6) == converges


def test_two_probes_of_a_diagonal_of_zeros_give_their_standard_error():
    """z ∘ Hz is (s, s) with s = ±1: twice the same it is their mean, else 1 with the error 1."""
    found = []
    for k in range(8):
        divide, products = bl.Jacobi(probes=2)(lambda v: v[::-1], jnp.zeros(2), k)
        with np.errstate(divide="ignore"):
            found += np.asarray(divide(jnp.ones(2))).tolist()
        assert int(products) == 2
    usual = [entry for entry in found if np.isfinite(entry) and entry > 0]
    assert len(usual) > 4
    np.testing.assert_allclose(usual, 1.0, rtol=1e-12)


@pytest.mark.parametrize(("flat", "arrives"), [(1e2, True), (1e6, False)])
def test_rounding_is_no_arrival_where_it_may_be_an_error_of_more_than_half(flat, arrives):
    """A residual of some 10⁻⁶ of v is an error of v itself where 1/μ = 10⁶ was seen before."""
    H, b = jnp.geomspace(1e-2, 1.0, 20, dtype=jnp.float32), jnp.ones(20, jnp.float32)
    solver = bl.CG(bl.Adaptive(1e-3))
    known = solver.init(b)._replace(inverse_mu=jnp.asarray(flat, jnp.float32))
    v, _, info = eqx.filter_jit(solver)(lambda v: H * v, b, 0 * b, known, 1)
    np.testing.assert_allclose(v, 1 / H, rtol=1e-2)
    assert int(info.result) == (bl.Status.COMPLETED if arrives else bl.Status.UNCONVERGED)


@pytest.mark.parametrize("solver", [bl.CG(3), bl.CG(3, 1e303), bl.Richardson(0.25, 1, 1e303)])
def test_the_largest_numbers_are_not_zero(solver):
    """A division by 1e308 may be a multiplication by 1e-308, which the processor takes for 0."""
    H, b = np.diag([1.0, 2.0, 4.0]), 1e308 * np.array([1.0, 0.5, 0.25])

    @jax.jit
    @jax.vmap
    def lanes(b):
        return solver(lambda v: H @ v, b, jnp.zeros(3), solver.init(b), 0)

    (v, _), _, info = lanes(np.stack([b, 0 * b]))
    true = np.linalg.norm((H @ v - b) / 1e300) * 1e300
    assert true <= 1.1 * float(info.residual[0]) < np.inf
    if isinstance(solver, bl.CG):
        np.testing.assert_allclose(v, b / np.diag(H), rtol=1e-12)
