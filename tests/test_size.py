"""Large networks: products that keep nothing, predicted bytes, and functions in fewer bits."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.methods import derivatives


@jax.jit
def drawn():
    keys = jax.random.split(jax.random.key(0), 4)
    return [
        jax.random.normal(key, shape)
        for key, shape in zip(keys, [(32, 8), (32,), (8, 8), (8,)], strict=True)
    ]


INPUTS, TARGETS, *Y = drawn()
Y = [leaf / 3 for leaf in Y]
X = jnp.linspace(-1.0, 1.0, 32)


def outputs(x, y, X, T):
    return jnp.tanh(X @ y[0]) @ y[1]


def loss(x, z, X, T):
    return jnp.mean(jax.nn.sigmoid(x) * (z - T) ** 2)


def penalty(x, y):
    return 0.5 * sum(jnp.sum(leaf**2) for leaf in y)


PROBLEM = bl.Problem(
    bl.Composite(outputs, loss, penalty),
    bl.Composite(outputs, lambda x, z, X, T: jnp.mean((z - T) ** 2)),
    (INPUTS, TARGETS),
    (INPUTS + 1, TARGETS),
)
LOOPS = bl.GradientDescent(0.3, 40), bl.CG(8)


def hypergradient(problem, **options):
    method = bl.AID(*LOOPS, **options)
    return jax.jit(method)(problem, X, method.init(problem, X, Y), 0)


def test_a_network_in_half_precision_keeps_y_and_v_in_full():
    h, state, info = hypergradient(PROBLEM)
    low = bl.problems.in_precision(PROBLEM, jnp.bfloat16)
    near, rough, told = hypergradient(low)
    assert {leaf.dtype for leaf in jax.tree.leaves((rough.y, rough.v, near))} == {X.dtype}
    gap = jnp.linalg.norm(near - h) / jnp.linalg.norm(h)
    assert 1e-6 < gap < 0.05  # it was computed in bfloat16, and it is close
    np.testing.assert_allclose(told.value, info.value, rtol=0.02)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.02), rough.y, state.y)
    text = str(jax.make_jaxpr(low.inner)(X, Y, *low.inner_data))
    assert "bf16" in text
    assert "f64[] = reduce_sum" in text  # the mean over samples has all digits


def test_a_plain_function_is_computed_in_half_precision_as_a_whole():
    plain = bl.Problem(PROBLEM.inner.outputs, lambda x, y: jnp.sum(y[1]), (INPUTS, TARGETS))
    low = bl.problems.in_precision(plain, jnp.float16)
    found = low.inner(X, Y, *low.inner_data)
    assert found.dtype == X.dtype
    half = [leaf.astype(jnp.float16) for leaf in (INPUTS, *Y)]
    by_hand = jnp.tanh(half[0] @ half[1]) @ half[2]
    np.testing.assert_array_equal(found, by_hand.astype(X.dtype))


def test_what_is_not_floating_is_refused():
    with pytest.raises(TypeError, match="must be a floating type"):
        bl.problems.in_precision(PROBLEM, jnp.int32)
    fixed = bl.Problem.fixed_point(lambda x, y: y / 2, lambda x, y: jnp.sum(y))
    with pytest.raises(TypeError, match="smooth g"):
        bl.problems.in_precision(fixed)


def test_what_products_keep_is_predicted_and_what_does_not_fit_is_recomputed(monkeypatch):
    predicted = bl.Autodiff().predict_bytes(PROBLEM, X, Y)
    gradient = jax.grad(lambda x, y: PROBLEM.inner(x, y, *PROBLEM.inner_data), argnums=1)
    kept = jax.tree.leaves(jax.vjp(gradient, X, Y)[1])
    given = [*jax.tree.leaves((X, Y)), INPUTS, TARGETS]
    made = [a for a in kept if not any(a is b for b in given)]
    total = sum(a.nbytes for a in made if hasattr(a, "nbytes"))
    assert 0.5 * total <= predicted["keep"] <= 1.5 * total

    h, _, _ = hypergradient(PROBLEM)
    assert not bl.Autodiff().recomputes(PROBLEM, X, Y)
    monkeypatch.setattr(derivatives, "fits", lambda needed: False)
    expected = predicted["recompute"] < predicted["keep"]
    assert bl.Autodiff().recomputes(PROBLEM, X, Y) == expected
    again, _, _ = hypergradient(PROBLEM, derivatives=bl.Autodiff(recompute=True))
    np.testing.assert_allclose(again, h, rtol=1e-9)
    with pytest.raises(TypeError, match="recompute"):
        bl.Autodiff(recompute="sometimes")


@pytest.mark.parametrize("entries", [2**20, 2**20 + 1])
def test_residuals_of_large_loops_are_those_of_small_ones(entries):
    """g = ½‖y − x‖²: N steps of α leave ‖∇g‖ = (1 − α)^{N−1} ‖y⁰ − x‖ before the last."""
    problem = bl.Problem(lambda x, y: 0.5 * jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y))
    solver, y0 = bl.GradientDescent(0.25, steps=3), jnp.ones(entries, jnp.float32)
    x = jnp.zeros((), jnp.float32)
    y, _, info = solver(problem, x, y0, solver.init(y0), 0)
    np.testing.assert_allclose(info.residual, 0.75**2 * entries**0.5, rtol=1e-4)
    np.testing.assert_allclose(y[0], 0.75**3, rtol=1e-6)


def test_a_run_holds_one_copy_of_its_state():
    """y and v, and in a callback the y that it is handed; nothing of where the run started."""
    shape, held = (12_345,), []

    def count(_):
        gc.collect()
        held.append(sum(array.shape == shape for array in jax.live_arrays()))

    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    method = bl.schemes.n_q_loop(2, 2, inner_step=0.1, linear_step=0.1)
    bl.solve(problem, 0.0, np.zeros(shape), method, outer=0.1, steps=3, callback=count)
    assert max(held) == 3
