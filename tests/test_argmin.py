"""y*(x) as a function of JAX: against closed forms, finite differences, and failures that show."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import biloop as bl

from .helpers import INNER_SOLVERS, LINEAR_SOLVERS

RNG = np.random.default_rng(0)
A, B = jnp.asarray(RNG.normal(size=(30, 5))), jnp.asarray(RNG.normal(size=30))
X = jnp.asarray(RNG.normal(size=5))
ZERO = jnp.zeros(5)


def ridge(x, y, A, b):
    return 0.5 * jnp.mean((A @ y - b) ** 2) + 0.5 * jnp.sum(jnp.exp(x) * y**2)


def closed_form(x, y0, A, b):
    return jnp.linalg.solve(A.T @ A / 30 + jnp.diag(jnp.exp(x)), A.T @ b / 30)


@bl.implicit(ridge)
def decorated(x, y0, A, b):
    return closed_form(x, y0, A, b)


@bl.implicit(ridge, host=True)
def on_host(x, y0, A, b):
    assert isinstance(x, np.ndarray)
    return np.linalg.solve(A.T @ A / 30 + np.diag(np.exp(x)), A.T @ b / 30)


YSTAR = bl.argmin(ridge)
MAPS = {"argmin": YSTAR, "closed form": decorated, "host": on_host}
slow_variants = [pytest.param(n, marks=[] if n == "argmin" else pytest.mark.slow) for n in MAPS]


def of(ystar):
    """A scalar function of x and of data."""
    return lambda x, A, b: jnp.sum(jnp.sin(ystar(x, ZERO, A, b)))


def close(a, b, tolerance=1e-10):
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(left, right, atol=tolerance, rtol=tolerance)


def differences(function, x, step=1e-5):
    units = np.eye(x.size)
    return np.array([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in units])


@pytest.mark.parametrize("name", slow_variants)
def test_first_derivatives_against_the_closed_form(name):
    ystar, truth = of(MAPS[name]), of(closed_form)

    @jax.jit
    def everything(x, A, b):
        jacobians = [jax.jacfwd(ystar)(x, A, b), jax.jacrev(ystar)(x, A, b)]
        push = jax.jvp(lambda x: ystar(x, A, b), (x,), (jnp.ones(5),))
        return MAPS[name](x, ZERO, A, b), *jacobians, push, jax.grad(ystar, (1, 2))(x, A, b)

    value, forward, reverse, push, data = everything(X, A, B)
    gradient, *of_data = jax.jit(jax.grad(truth, (0, 1, 2)))(X, A, B)
    close(value, closed_form(X, ZERO, A, B))
    close((forward, reverse), (gradient, gradient))
    close(push, (truth(X, A, B), jnp.sum(gradient)))
    close(data, of_data)


@pytest.mark.parametrize("name", slow_variants)
def test_second_derivatives_against_the_closed_form(name):
    hessian = jax.jit(jax.hessian(of(MAPS[name])))(X, A, B)
    close(hessian, jax.jit(jax.hessian(of(closed_form)))(X, A, B))


def test_vmap_of_grad():
    xs = jnp.stack([X, X + 1, X - 2])
    found = jax.jit(jax.vmap(jax.grad(of(YSTAR)), (0, None, None)))(xs, A, B)
    close(found, jax.jit(jax.vmap(jax.grad(of(closed_form)), (0, None, None)))(xs, A, B))


@pytest.mark.slow
def test_closures_under_vmap_and_without_jit():
    """Tracers of grad itself, and of vmap."""
    truth = jax.jit(jax.grad(lambda x, A: of(closed_form)(x, A, B), (0, 1)))(X, A)
    close(jax.grad(closing, (0, 1))(X, A), truth)
    close(jax.vmap(jax.grad(closing, 1), (0, None))(X[None], A)[0], truth[1])


def closing(x, A):
    ystar = bl.argmin(lambda x, y: ridge(x, y, A, B))
    return jnp.sum(jnp.sin(ystar(x, ZERO)))


def test_closures_over_what_is_differentiated():
    truth = jax.jit(jax.grad(lambda x, A: of(closed_form)(x, A, B), (0, 1)))(X, A)
    close(jax.jit(jax.grad(closing, (0, 1)))(X, A), truth)


def test_pytrees_and_info():
    ystar = bl.argmin(lambda x, y: jnp.sum((y["a"] - x["s"] * x["c"]) ** 2) + (y["b"] - 1) ** 2)
    x = {"s": jnp.asarray(2.0), "c": jnp.arange(3.0)}
    y, info = eqx.filter_jit(ystar.with_info)(x, {"a": jnp.zeros(3), "b": 0.0})
    close(y, {"a": 2 * x["c"], "b": 1.0})
    assert int(info.result) == bl.Status.COMPLETED
    assert info.residual < 1e-12
    assert int(info.cost.gradients) == int(info.steps) >= 2
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(ystar(x, y)["a"])))(x)
    close(gradient, {"s": 3.0, "c": jnp.full(3, 2.0)})


def test_three_levels_against_finite_differences():
    """argmin_z ‖y*(z) − x‖² + …, with y* an argmin itself, whose program is a small one."""
    ystar = bl.argmin(ridge, bl.GradientDescent(0.2, 300), bl.Dense())

    def middle(x, z):
        return jnp.sum((ystar(z, ZERO, A, B) - x) ** 2) + 0.1 * jnp.sum(z**2 + z**4)

    zstar = bl.argmin(middle)
    top = jax.jit(jax.value_and_grad(lambda x: jnp.sum(zstar(x, ZERO) ** 2)))
    x = 0.3 * X
    close(top(x)[1], differences(lambda x: top(x)[0], x), 1e-7)


def test_logistic_regression_against_finite_differences():
    labels = jnp.sign(B)

    def inner(x, y, A):
        return jnp.mean(jax.nn.softplus(-labels * (A @ y))) + 0.5 * jnp.sum(jnp.exp(x) * y**2)

    ystar = bl.argmin(inner)
    loss = jax.value_and_grad(lambda x: jnp.sum(jnp.cos(ystar(x, ZERO, A))))
    both, hessian = jax.jit(loss), jax.jit(jax.jacfwd(lambda x: loss(x)[1]))
    close(both(X)[1], differences(lambda x: both(x)[0], X), 1e-8)
    close(hessian(X), differences(lambda x: both(x)[1], X), 1e-7)


def test_the_start_has_no_derivative():
    with pytest.raises(TypeError, match=r"does not depend on y0.*stop_gradient"):
        jax.grad(lambda y0: jnp.sum(YSTAR(X, y0, A, B)))(ZERO)
    with pytest.raises(TypeError, match="does not depend on y0"):
        jax.jit(jax.jacfwd(lambda x: YSTAR(x, x, A, B)))(X)

    def loss(x):
        return jnp.sum(jnp.sin(YSTAR(x, lax.stop_gradient(x), A, B)))

    warm = jax.jit(jax.grad(loss))(X)
    close(warm, jax.jit(jax.grad(of(closed_form)))(X, A, B))


@pytest.mark.parametrize("jit", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize(
    "ystar",
    [
        bl.argmin(lambda x, y: jnp.sum(x * y) - jnp.sum(y**2)),  # no minimum
        bl.argmin(lambda x, y: jnp.sum(x * y)),  # H = 0
        bl.argmin(lambda x, y: jnp.sum(jnp.log(-1 - x**2) * y**2)),  # NaN
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), bl.GradientDescent(1e-4, 3, tolerance=1e-9)),
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), bl.GradientDescent(1e-4, 3)),  # too short
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), bl.GradientDescent(1.1, 30)),  # still finite
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), linear=bl.CG(steps=1, tolerance=1e-30)),
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), linear=bl.CG(steps=1)),
        bl.implicit(lambda x, y: jnp.sum((y - x) ** 2))(lambda x, y0: x + 1),  # not the minimiser
        bl.argmin(lambda x, y: jnp.sum((y - x) ** 2), bl.GradientDescent(2.0, 3000)),  # diverges
        bl.argmin(lambda x, y: jnp.sum(jnp.abs(y - x) + y**2 / 2)),  # ∇_x∇_y g = 0 for all of JAX
    ],
    ids=[
        "unbounded",
        "singular",
        "nan",
        "unconverged",
        "short",
        "growing",
        "linear",
        "spent",
        "foreign",
        "diverged",
        "kink",
    ],
)
def test_a_solve_that_failed_has_no_quiet_gradient(ystar, jit):
    if "CG(steps=1" in repr(ystar.linear):
        ystar = bl.argmin(ridge, linear=ystar.linear)

        def loss(x):
            return jnp.sum(ystar(x, ZERO, A, B))
    else:

        def loss(x):
            return jnp.sum(ystar(x, ZERO))

    def derivatives(x):
        return (jax.grad(loss)(x), jax.jacfwd(loss)(x))

    for found in (jax.jit(derivatives) if jit else derivatives)(X):
        assert np.all(np.isnan(found))


def test_bad_arguments_are_refused():
    with pytest.raises(TypeError, match=r"decorator bl.implicit"):
        bl.argmin(ridge, solver=lambda x, y0: y0)
    with pytest.raises(TypeError, match="linear must be"):
        bl.argmin(ridge, linear="cg")
    with pytest.raises(TypeError, match="inner must be a function"):
        bl.argmin(3.0)
    with pytest.raises(ValueError, match="must return a scalar, got shape"):
        bl.argmin(lambda x, y: y)(X, ZERO)
    with pytest.raises(ValueError, match=r"inner\(x, y, \*data\) cannot be(.|\n)*  y: f64\[2\]"):
        bl.argmin(ridge)(X, jnp.zeros(2), A, B)
    with pytest.raises(TypeError, match="CG needs a symmetric matrix"):
        bl.equilibrium(lambda x, y: 0.5 * y + x, linear=bl.CG(steps=5))
    with pytest.raises(TypeError, match=r"NewtonCG cannot take.*equilibrium"):
        bl.equilibrium(lambda x, y: 0.5 * y + x, bl.NewtonCG())(X, ZERO)


def test_a_system_that_is_not_solved_is_told_at_any_scale_of_the_cotangent():
    """One step of CG leaves a residual of the size of what it was given, twenty hardly any."""

    def derivative(steps, scale):
        ystar = bl.argmin(ridge, linear=bl.CG(steps))
        return jax.grad(lambda x: scale * jnp.sum(ystar(x, ZERO, A, B) ** 2))(X)

    derivative = jax.jit(derivative)
    for scale in (1e-9, 1e9):
        assert np.all(np.isnan(derivative(1, scale)))
        assert np.all(np.isfinite(derivative(20, scale)))


def test_loops_that_size_themselves_end_when_only_rounding_is_left():
    d, truth = jnp.geomspace(1e-3, 1.0, 5), jnp.array([3.0, -1.0, 0.3, -0.5, 2.0])
    x = d * truth + jnp.tanh(truth)  # where ∇_y g vanishes

    def inner(x, y):
        return jnp.sum(0.5 * d * y**2 + jnp.logaddexp(y, -y) - x * y)

    for solver in (bl.NewtonCG(), bl.GradientDescent("auto", "auto")):
        ystar = bl.argmin(inner, solver, bl.CG("auto"))
        total = jax.value_and_grad(lambda x, f=ystar: (jnp.sum(y := f(x, ZERO)), y), has_aux=True)
        (_, y), derivative = jax.jit(total)(x)
        close(y, truth)
        close(derivative, 1 / (d + 1 / jnp.cosh(truth) ** 2))


def test_a_way_that_was_too_steep_to_tell_is_gone_again_from_its_end():
    """In single precision the rounding of the first gradients, of size 10⁹, hides the last ones."""
    c = np.array([1.0, 0.1, 0.01], np.float32)

    def quartic(x, y):
        return jnp.sum(c * y**4) / 4 - x * jnp.sum(y)

    ystar = bl.argmin(quartic, bl.GradientDescent("auto", "auto"))
    x, far = jnp.float32(1.0), jnp.full(3, 1e3, jnp.float32)
    y, info = eqx.filter_jit(ystar.with_info)(x, far)
    assert int(info.result) == bl.Status.COMPLETED
    np.testing.assert_allclose(y, c ** (-1 / 3), rtol=1e-5)
    derivative = jax.jit(jax.jacfwd(lambda x: ystar(x, far)))(x)
    np.testing.assert_allclose(derivative, c ** (-1 / 3) / 3, rtol=1e-4)


def test_a_curvature_that_was_left_behind_is_no_measure_of_rounding():
    """In single precision y was half a percent off behind a steep slope, and COMPLETED."""
    scales, x = np.array([3.0, 0.3, 0.1], np.float32), np.array([1.0, -0.5, 0.3], np.float32)
    inner = lambda x, y: jnp.sum(jnp.cosh(scales * y - x))  # noqa: E731
    find = eqx.filter_jit(bl.argmin(inner, bl.GradientDescent("auto", "auto")).with_info)
    found = [find(x, np.full(3, start, np.float32)) for start in (1.0, 2.0, 3.0)]
    good = [y for y, info in found if info.result == bl.Status.COMPLETED]
    assert len(good) > 0
    for y in good:
        np.testing.assert_allclose(y, x / scales, rtol=3e-4)


def test_the_adjoint_is_solved_by_what_fits_the_matrix():
    """CG where it is symmetric, GMRES where it is I − ∂T/∂y."""
    assert isinstance(bl.argmin(lambda x, y: jnp.sum(y**2)).linear, bl.CG)
    assert isinstance(bl.equilibrium(lambda x, y: 0.5 * y).linear, bl.GMRES)


def test_made_inside_of_jit_it_is_as_exact():
    """There a share of 0.1 was no longer known as that of "auto": off by 3e-4, and no NaN."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    H, b, c = (Q * np.geomspace(1e-4, 1, 30)) @ Q.T, rng.normal(size=30), rng.normal(size=30)

    @jax.jit
    @jax.value_and_grad
    def found(x):
        ystar = bl.argmin(lambda x, y: y @ H @ y / 2 + 1e-3 * jnp.exp(x) * y @ y / 2 - b @ y)
        return c @ ystar(x, jnp.zeros(30))

    truth = jax.value_and_grad(
        lambda x: c @ jnp.linalg.solve(H + 1e-3 * jnp.exp(x) * np.eye(30), b)
    )
    np.testing.assert_allclose(found(-1.0), truth(-1.0), rtol=1e-9)
    with pytest.raises(ValueError, match="step_size must be a finite number greater than 0"):
        jax.jit(lambda: bl.GradientDescent(-1.0, 3))()


def test_any_loop_can_be_made_inside_of_jit():
    sets = {"box": lambda: bl.Box(-1.0, 1.0), "simplex": lambda: bl.prox.Simplex(2.0)}
    for make in {**INNER_SOLVERS, **LINEAR_SOLVERS, **sets}.values():
        jax.eval_shape(lambda make=make: (make(), jnp.zeros(()))[1])


def test_the_program_of_an_argmin_inside_an_argmin():
    """Each level multiplies it, and the time to compile: g stands in it no oftener than it must."""
    inner = bl.argmin(lambda x, y: jnp.sum((y - x) ** 2 + jnp.tanh(y)))
    nested = bl.argmin(lambda x, y: jnp.sum((y - inner(x * jnp.sum(y), jnp.zeros(2))) ** 2))
    count = [
        jax.jit(lambda x, ystar=ystar: ystar(x, jnp.zeros(2))).lower(X[:2]).as_text().count(".tanh")
        for ystar in (inner, nested)
    ]
    assert 0 < count[0] <= 4
    assert count[1] <= 8 * count[0] + 4
