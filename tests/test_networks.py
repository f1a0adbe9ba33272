"""Networks: g that is not convex, products for them, modules as variables, starts, and metrics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .helpers import stepped

KEY = jax.random.key(0)


@eqx.filter_jit
def drawn():
    """Samples, of which four are wrong, and a network."""
    X = jax.random.normal(KEY, (20, 3))
    wrong = jnp.where(jnp.arange(20) < 4, 3.0, 0.0)
    net = eqx.nn.MLP(3, "scalar", 6, 1, activation=jnp.tanh, key=KEY)
    return X, jnp.sin(2 * X[:, 0]) * X[:, 1] + wrong, net


X, TARGETS, NET = drawn()
DATA = tuple(
    (np.asarray(X[part]), np.asarray(TARGETS[part])) for part in np.arange(20).reshape(2, 10)
)


def squares(model):
    return sum(
        jnp.sum(leaf**2) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    )


def inner(x, y, X, T):
    return jnp.mean(jax.nn.sigmoid(x) * (jax.vmap(y)(X) - T) ** 2) + 1e-2 * squares(y)


def outer(x, y, X, T):
    return jnp.mean((jax.vmap(y)(X) - T) ** 2)


PROBLEM = bl.Problem(inner, outer, *DATA)


def test_auto_goes_on_where_the_hessian_is_indefinite_and_says_so():
    run = bl.solve(PROBLEM, jnp.zeros(10), NET, steps=15)
    assert run.status in (bl.Status.COMPLETED, bl.Status.SETTLED)
    assert np.any(run.trace["result"] == bl.Status.NONCONVEX)
    assert "not positive definite" in run.message
    assert run.value <= run.trace["value"][0]
    assert isinstance(run.y, eqx.nn.MLP)  # as it was given, with its activation
    assert run.y.activation is NET.activation
    np.testing.assert_allclose(run.value, outer(run.x, run.y, *DATA[1]), rtol=1e-6)


@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.relu])
def test_auto_learns_which_labels_are_wrong(activation):
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, labels = datasets.load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    pixels, labels = pixels[order] / 16, labels[order]
    noisy = np.where(rng.random(200) < 0.3, rng.integers(0, 10, 200), labels[:200])
    training = jnp.asarray(pixels[:200]), jnp.asarray(np.eye(10)[noisy])
    validation = jnp.asarray(pixels[200:400]), jnp.asarray(np.eye(10)[labels[200:400]])
    model = eqx.filter_jit(eqx.nn.MLP)(64, 10, 12, 1, activation=activation, key=KEY)

    def losses(y, X, T):
        return -jnp.sum(T * jax.nn.log_softmax(jax.vmap(y)(X)), axis=1)

    problem = bl.Problem(
        lambda x, y, X, T: jnp.mean(jax.nn.sigmoid(x) * losses(y, X, T)) + 5e-3 * squares(y),
        lambda x, y, X, T: jnp.mean(losses(y, X, T)),
        training,
        validation,
    )
    run = bl.solve(problem, jnp.zeros(200), model, steps=10)
    assert run.status in (bl.Status.COMPLETED, bl.Status.SETTLED)
    assert run.value < 0.6 * run.trace["value"][0]
    wrong = noisy != labels[:200]
    assert run.x[wrong].mean() < run.x[~wrong].mean()


H = jnp.diag(jnp.asarray([4.0, 1.0, -0.5]))
B = jnp.asarray([1.0, 2.0, 3.0])


@eqx.filter_jit
def linear(solver):
    return solver(lambda v: H @ v, B, jnp.zeros(3), solver.init(B), 0)


def test_damping_solves_a_positive_definite_system_that_it_tells():
    v, state, info = linear(bl.CG(3, indefinite="damp"))
    assert info.result == bl.Status.NONCONVEX
    shift = 2 * state.damping  # halved for the next outer step
    assert shift > 0.5
    np.testing.assert_allclose(H @ v + shift * v, B, rtol=1e-9)
    assert linear(bl.CG(3))[2].result == bl.Status.INDEFINITE


def test_a_damped_system_is_solved_from_where_the_first_one_started():
    """Not from where that met negative curvature: its steps are those of H + δI alone."""
    rng = np.random.default_rng(1)
    U = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A, b, v0 = U * [3.0, 2.0, 1.0, 0.5, -0.4] @ U.T, *rng.normal(size=(2, 5))

    @jax.jit
    def solve(b, v0):
        solver = bl.CG(3, indefinite="damp")
        v, state, info = solver(lambda v: A @ v, b, v0, solver.init(b), 0)
        shift = 2 * state.damping
        few, _, _ = bl.CG(3)(lambda v: A @ v + shift * v, b, v0, (), 0)
        return v, few, shift, info

    v, few, shift, info = solve(b, v0)
    assert (int(info.result), int(info.cost.products)) == (bl.Status.NONCONVEX, 4 + 4)
    assert np.linalg.norm(A @ few + shift * few - b) > 1e-3  # three steps are not enough
    np.testing.assert_allclose(v, few, rtol=1e-9)


def test_truncation_returns_what_was_before_negative_curvature():
    v, _, info = linear(bl.CG(3, indefinite="truncate"))
    assert info.result == bl.Status.NONCONVEX
    assert jnp.vdot(B, v) > 0
    first = B * jnp.vdot(B, B) / jnp.vdot(B, H @ B)  # the first step of the textbook
    if jnp.vdot(B, H @ B) > 0:
        np.testing.assert_allclose(v, first, rtol=1e-9)
    else:
        np.testing.assert_allclose(v, B * jnp.linalg.norm(B) / jnp.linalg.norm(H @ B), rtol=1e-9)


@pytest.mark.parametrize("mode", ["fail", "truncate", "damp"])
def test_on_a_positive_definite_matrix_all_are_the_same(mode):
    A = jnp.diag(jnp.asarray([4.0, 1.0, 0.5]))
    solver = bl.CG(3, indefinite=mode)
    v, _, info = jax.jit(lambda b: solver(lambda v: A @ v, b, 0 * b, solver.init(b), 0))(B)
    assert info.result == bl.Status.COMPLETED
    np.testing.assert_allclose(A @ v, B, rtol=1e-12)


def small(y, X):
    return jnp.tanh(X @ y)


COMPOSITE = bl.Composite(
    outputs=lambda x, y, X, T: small(y, X),
    loss=lambda x, z, X, T: jnp.mean(jax.nn.sigmoid(x) * (z - T) ** 2),
    penalty=lambda x, y: 0.1 * jnp.sum(y**2),
)
Y, WEIGHTS = jnp.asarray([0.3, -0.2, 0.5]), jnp.linspace(-1.0, 1.0, 10)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_gauss_newton_is_the_dense_formula(damping):
    problem = bl.Problem(COMPOSITE, lambda x, y, X, T: jnp.sum(y**2), *DATA)

    @jax.jit
    def products():
        _, product, cross = bl.GaussNewton(damping)(problem, WEIGHTS, Y)
        return jax.vmap(product)(jnp.eye(3)), jax.vmap(cross)(jnp.eye(3)).T

    @jax.jit
    def dense():
        J = jax.jacobian(lambda y: small(y, DATA[0][0]))(Y)
        S = jnp.diag(2 * jax.nn.sigmoid(WEIGHTS) / 10)
        mixed = jax.jacobian(jax.grad(lambda x, y: COMPOSITE(x, y, *DATA[0])), argnums=1)
        return J.T @ S @ J + (0.2 + damping) * jnp.eye(3), mixed(WEIGHTS, Y)

    for found, expected in zip(products(), dense(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_products_computed_anew_or_by_differences_agree_and_are_counted():
    problem = bl.Problem(COMPOSITE, lambda x, y, X, T: jnp.mean((small(y, X) - T) ** 2), *DATA)
    found = {}
    for derivatives in (bl.Autodiff(), bl.Autodiff(recompute=True), bl.Differences(1e-4)):
        method = bl.AID(bl.GradientDescent(0.5, 40), bl.CG(3), derivatives=derivatives)
        h, _, info = stepped(method, problem, WEIGHTS, Y)
        found[repr(derivatives)] = h, tuple(map(int, info.cost))
    (h, cost), (again, same), (near, gradients) = found.values()
    np.testing.assert_allclose(again, h, rtol=1e-9)
    np.testing.assert_allclose(near, h, rtol=1e-4)
    assert cost == same == (42, 5)
    assert gradients == (42 + 2 * 5, 0)


def test_one_step_approximations_are_the_formulas_of_their_papers():
    problem = bl.Problem(COMPOSITE, lambda x, y, X, T: jnp.mean((small(y, X) - T) ** 2), *DATA)
    a, eta = 0.5, 0.3
    g, f = (lambda x, y: COMPOSITE(x, y, *DATA[0])), (lambda y: problem.outer(None, y, *DATA[1]))
    mixed = lambda y, v: jax.grad(lambda x: jax.grad(g, 1)(x, y) @ v)(WEIGHTS)  # noqa: E731

    def found(method):
        h, state, info = stepped(method, problem, WEIGHTS, Y)
        return h, state.y, tuple(map(int, info.cost))

    after = Y - a * jax.jit(jax.grad(g, 1))(WEIGHTS, Y)
    f_y = jax.jit(jax.grad(f))(after)
    h, y, cost = found(bl.schemes.t1_t2(a, eta))
    np.testing.assert_allclose(h, -eta * jax.jit(mixed)(after, f_y), rtol=1e-10)
    np.testing.assert_allclose(y, after, rtol=1e-12)
    assert cost == (3, 1)

    h, _, cost = found(bl.schemes.darts(a))
    eps = 0.01 / np.linalg.norm(f_y)
    slope = jax.jit(jax.grad(g))
    ends = [slope(WEIGHTS, Y + sign * eps * f_y) for sign in (1, -1)]
    np.testing.assert_allclose(h, -a * (ends[0] - ends[1]) / (2 * eps), rtol=1e-9)
    assert cost == (5, 0)
    exact, _, _ = found(bl.ITD(bl.GradientDescent(a, 1)))
    np.testing.assert_allclose(h, exact, rtol=1e-3)


def test_gauss_newton_has_to_see_where_the_loss_begins():
    method = bl.AID(bl.GradientDescent(0.5, 4), bl.CG(3), derivatives=bl.GaussNewton())
    with pytest.raises(TypeError, match="where the loss begins"):
        method.init(PROBLEM, jnp.zeros(10), NET)


# --- starts -------------------------------------------------------------------------------------

MAML = bl.Problem(
    lambda x, y, X, T: jnp.mean((small(y, X) - T) ** 2),
    lambda x, y, X, T: jnp.mean((small(y, X) - T) ** 2),
    *DATA,
    start=lambda x: x,
)


@pytest.mark.parametrize("memory", ["store", "recompute", "sqrt"])
def test_itd_has_the_derivative_of_the_start_as_maml_does(memory):
    def by_hand(x):
        y = x
        for _ in range(5):
            y = y - 0.1 * jax.grad(MAML.inner, argnums=1)(x, y, *DATA[0])
        return MAML.outer(x, y, *DATA[1])

    method = bl.ITD(bl.GradientDescent(0.1, 5), memory=memory)
    h, _, info = stepped(method, MAML, Y, jnp.zeros(3), 3)
    value, slope = jax.jit(jax.value_and_grad(by_hand))(Y)
    np.testing.assert_allclose(h, slope, rtol=1e-8)
    np.testing.assert_allclose(info.value, value, rtol=1e-10)


def test_who_cannot_take_a_start_refuses_it():
    with pytest.raises(TypeError, match="cannot take a problem with a start"):
        bl.Exact().init(MAML, Y, Y)
    with pytest.raises(ValueError, match="before it reaches the start"):
        bl.ITD(bl.GradientDescent(0.1, 5), truncate=2).init(MAML, Y, Y)


# --- metrics ------------------------------------------------------------------------------------


def with_metrics(x, y, X, T):
    error = small(y, X) - T
    return jnp.mean(error**2), {"worst": jnp.max(jnp.abs(error)), "rows": len(T)}


MEASURED = bl.Problem(COMPOSITE, with_metrics, *DATA, has_aux=True)
METHOD = bl.AID(bl.GradientDescent(0.5, 10), bl.CG(3))


def test_metrics_are_columns_of_the_trace_and_survive_a_restart(tmp_path):
    def solve(steps, **options):
        return bl.solve(MEASURED, WEIGHTS, Y, METHOD, outer=0.5, steps=steps, **options)

    whole = solve(6)
    solve(3, checkpoint=tmp_path / "run")
    resumed = solve(6, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(resumed.trace["worst"], whole.trace["worst"])
    _, state, _ = stepped(METHOD, MEASURED, WEIGHTS, Y)
    np.testing.assert_array_equal(whole.trace["rows"], 10.0)  # a number of Python
    first = with_metrics(WEIGHTS, state.y, *DATA[1])[1]["worst"]
    np.testing.assert_allclose(whole.trace["worst"][0], first, rtol=1e-10)

    swept = bl.sweep(MEASURED, WEIGHTS, Y, METHOD, over={"outer": [0.5, 1.0]}, steps=6)
    np.testing.assert_allclose(swept["worst"][0], whole.trace["worst"], rtol=1e-9)


def test_metrics_that_are_none_are_refused():
    problem = bl.Problem(COMPOSITE, lambda *_: (jnp.ones(()), {"k": 1.0}), *DATA, has_aux=True)
    with pytest.raises(ValueError, match="cannot be called 'k'"):
        METHOD.init(problem, WEIGHTS, Y)


def test_value_and_y_belong_together_where_the_last_trial_would_be_taken_back():
    problem = bl.Problem(
        lambda x, y: jnp.sum((y**2 - 1) ** 2) / 4 - x @ y + 0.3 * jnp.sum(jnp.cos(4 * y)),
        lambda x, y: jnp.sum((y - 0.2) ** 2) + 0.01 * jnp.sum(x**2),
    )
    for seed in range(100, 120):
        x, y = 2 * jax.random.normal(jax.random.key(seed), (2, 4))
        run = bl.solve(problem, x, y, steps=20)
        np.testing.assert_allclose(run.value, problem.outer(run.x, run.y), rtol=1e-6)
        best = run.best
        np.testing.assert_allclose(best.value, problem.outer(best.x, best.y), rtol=1e-6)


def test_truncation_before_any_step_is_a_step_along_b():
    """H = −2I: v = ‖b‖/‖Hb‖ b = b/2, for one product more than the 5 + 1 of the loop."""
    calls = []
    b = jnp.asarray([3.0, 4.0])

    def matvec(v):
        calls.append(v)
        return -2.0 * v

    with jax.disable_jit():
        v, _, info = bl.CG(5, indefinite="truncate")(matvec, b, jnp.zeros(2), (), 0)
    np.testing.assert_allclose(v, b / 2)
    assert int(info.result) == bl.Status.NONCONVEX
    assert int(info.cost.products) == len(calls) == 7


def test_damping_grows_to_twice_the_negative_curvature_at_once():
    """H = −I: δ = 2, so that H + δI = I and v = b after two systems of two products each."""
    solver, b = bl.CG(5, 1e-9, indefinite="damp"), jnp.asarray([3.0, 4.0])
    v, state, info = jax.jit(lambda b: solver(lambda v: -v, b, 0 * b, solver.init(b), 0))(b)
    np.testing.assert_allclose(v, b)
    assert float(state.damping) == 1.0  # half of it, for the next outer step
    assert int(info.cost.products) == 4
