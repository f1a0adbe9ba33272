"""Compiled programs: products in another form, what is compiled when, donated and freed."""

import gc
import re
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import biloop as bl
from biloop.compilation import SWITCH, compiled, products
from biloop.compilation.programs import KEPT

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)))
W = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))

names_programs = pytest.mark.skipif(
    not hasattr(jax.monitoring, "unregister_event_duration_listener"),
    reason="the oldest JAX does not name the programs that it compiles",
)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(products, "LARGE", 1)


def loss(X, W):
    return jnp.sum(jnp.tanh(X @ W) ** 2)


def gradient(X, W):
    return jax.grad(loss, argnums=1)(X, W)


def hessian_product(X, W):
    return jax.jvp(lambda W: gradient(X, W), (W,), (jnp.cos(W),))[1]


def in_a_scan(X, W):
    return lax.scan(lambda W, _: (W - 0.1 * gradient(X, W), jnp.sum(W)), W, length=3)


def in_a_while_loop(X, W):
    return lax.while_loop(lambda W: jnp.sum(W * W) > 1, lambda W: W - 0.1 * gradient(X, W), W)


def in_a_branch(X, W):
    return lax.cond(jnp.sum(W) > 0, gradient, lambda X, W: W, X, jnp.abs(W))


def recomputed(X, W):
    step = jax.checkpoint(lambda W: W - 0.1 * gradient(X, W))
    return jax.grad(lambda W: loss(X, step(step(W))))(W)


def in_many_lanes(X, W):
    return jax.vmap(in_a_scan, in_axes=(None, 0))(X, jnp.stack([W, 2 * W]))


def of_a_vector(X, W):
    return X.T @ (X @ W[:, 0])


def of_columns(X, W):
    return X.T @ (X @ W)


def with_a_rule_of_its_own(X, W):
    return gradient(X, jax.nn.relu(W)) + jax.nn.logsumexp(X.T @ (X @ W))


PROGRAMS = [
    gradient,
    hessian_product,
    in_a_scan,
    in_a_while_loop,
    in_a_branch,
    recomputed,
    in_many_lanes,
    of_a_vector,
    of_columns,
    with_a_rule_of_its_own,
]


def slow_products(lowered):
    """How often the compiled program has X as the first factor and sums over its rows."""
    text = lowered.compile().as_text()
    operands = dict(re.findall(r"(%[\w.-]+) = (f64\[[\d,]*\])", text))
    found = re.findall(r" dot\((%[\w.-]+), [^)]*\), lhs_contracting_dims=\{0\}", text)
    return sum(operands[name] == "f64[6,5]" for name in found)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_numbers_are_the_same(program):
    before, after = jax.jit(program)(X, W), compiled(program)(X, W)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "program", [gradient, hessian_product, in_a_scan, of_columns], ids=lambda p: p.__name__
)
def test_no_slow_product_is_left(program):
    assert slow_products(jax.jit(program).lower(X, W)) > 0
    assert slow_products(compiled(program).lower(X, W)) == 0


def test_the_switch_leaves_programs_as_they_are(monkeypatch):
    of_all = compiled(of_columns)
    assert slow_products(of_all.lower(X, W)) == 0
    monkeypatch.setenv(SWITCH, "0")
    assert slow_products(of_all.lower(X, W)) > 0


def test_it_goes_by_where_the_arguments_are(monkeypatch):
    of_all = compiled(of_columns)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert slow_products(of_all.lower(X, W)) > 0
    here = jax.device_put(X, jax.devices("cpu")[0])
    assert slow_products(of_all.lower(here, W)) == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_by_segments_the_numbers_are_the_same(program, monkeypatch):
    monkeypatch.setitem(products._FORMS, "cpu", products._by_segments)
    monkeypatch.setattr(products, "SEGMENTS", range(2, 4))
    text = compiled(program).lower(X, W).as_text()
    if program not in (of_a_vector, in_many_lanes):
        assert "2x3x5" in text  # X in two segments
    before, after = jax.jit(program)(X, W), compiled(program)(X, W)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("precision", [None, ("high", "highest")])
def test_any_axis_of_the_small_factor(first, axis, precision):
    shape = [2, 2]
    shape.insert(axis, len(X))
    R = jnp.arange(float(np.prod(shape))).reshape(shape)

    def program(X, R):
        if first:
            return lax.dot_general(X, R, (((0,), (axis,)), ((), ())), precision=precision)
        return lax.dot_general(R, X, (((axis,), (0,)), ((), ())), precision=precision)

    found = compiled(program)(X, R)
    axes = (0, axis) if first else (axis, 0)
    expected = np.tensordot(*((X, R) if first else (R, X)), axes=axes)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_is_not_an_array_goes_through():
    def program(X, W, *, name):
        return {"value": gradient(X, W), "name": name, "nothing": None}

    found = compiled(program)(X, W, name="g")
    assert found["name"] == "g"
    assert found["nothing"] is None
    np.testing.assert_allclose(found["value"], gradient(X, W), rtol=1e-12)


@pytest.mark.parametrize(
    "method",
    [
        bl.schemes.n_q_loop(3, 2, inner_step=0.01, linear_step=0.01),
        bl.schemes.n_n_loop(3, inner_step=0.01),
    ],
    ids=["AID", "ITD"],
)
def test_a_run_is_the_same(method, monkeypatch):
    def run():
        # Other functions each time, or the second run would be given the program of the first.
        problem = bl.Problem(
            lambda x, W, X: loss(X, W) + jnp.exp(x) * jnp.sum(W**2),
            lambda x, W, X: loss(X, W - 1),
            (X,),
            (X,),
        )
        return bl.solve(problem, jnp.zeros(()), W, method, outer=0.01, steps=3, progress=False)

    turned = run()
    monkeypatch.setattr(products, "LARGE", 10**9)
    as_it_was = run()
    np.testing.assert_allclose(turned.y, as_it_was.y, rtol=1e-12)
    np.testing.assert_allclose(turned.x, as_it_was.x, rtol=1e-12)


@pytest.mark.slow
def test_xla_still_needs_it():
    """The canary: when this fails, the form for CPUs can go."""
    rng = np.random.default_rng(0)
    A = jnp.asarray(rng.normal(size=(20_000, 785)), jnp.float32)
    R = jnp.asarray(rng.normal(size=(20_000, 10)), jnp.float32)
    as_written = jax.jit(lambda A, R: A.T @ R)
    turned = compiled(lambda A, R: A.T @ R)
    best = {as_written: np.inf, turned: np.inf}
    for _ in range(15):
        for product in best:
            start = time.perf_counter()
            jax.block_until_ready(product(A, R))
            best[product] = min(best[product], time.perf_counter() - start)
    ratio = best[as_written] / best[turned]
    print(f"XᵀR takes {ratio:.2f} times as long as (RᵀX)ᵀ")
    assert ratio > 1.3, "XLA now computes XᵀR as fast as (RᵀX)ᵀ: compilation.py can go"


class Traced:
    """A function that counts how often it is traced."""

    def __init__(self, function):
        self.function, self.times, self.__name__ = function, 0, "traced"

    def __call__(self, state, data, *, power: float = 2):
        self.times += 1
        return self.function(state, data, power)


def update(state, data, power):
    return jax.tree.map(lambda s: s + data**power, state)


def test_numbers_are_arguments_and_settings_are_not():
    function = Traced(update)
    program = compiled(function)
    state = {"a": jnp.zeros(3)}
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(program(state, scale * jnp.ones(3))["a"], scale**2)
    assert function.times == 1
    np.testing.assert_allclose(program(state, 2 * jnp.ones(3), power=3)["a"], 8)
    assert function.times == 2
    program(state, jnp.ones(3), power=3.0)  # not the integer
    assert function.times == 3
    program({"a": jnp.zeros(4)}, jnp.ones(4))
    assert function.times == 4


def test_compiled_ahead_it_is_not_traced_lowered_or_compiled_again(caplog):
    function = Traced(update)
    program = compiled(function)
    arguments = {"a": jnp.zeros(3)}, jnp.ones(3)
    stages = ("tracing", "MLIR", "XLA compilation")
    told = lambda: [sum(stage in line for line in caplog.messages) for stage in stages]  # noqa: E731
    with jax.log_compiles():
        program.compile(*arguments)
        once = told()
        assert min(once) > 0
        program.compile(*arguments)
        program(*arguments)
    assert told() == once
    assert function.times == 1


def test_what_is_donated_is_overwritten_and_the_rest_is_not():
    program = compiled(donate=["state"])(Traced(update))
    for call in (lambda s, d: program(s, d), lambda s, d: program(data=d, state=s)):
        state, data = {"a": jnp.zeros(3)}, jnp.ones(3)
        np.testing.assert_allclose(call(state, data)["a"], 1)
        assert state["a"].is_deleted()
        assert not data.is_deleted()


def test_a_donated_argument_must_exist():
    with pytest.raises(TypeError, match="has no argument store"):
        compiled(donate=["store"])(Traced(update))


def test_only_the_last_programs_are_kept():
    program = compiled(lambda function, y: function(y))
    functions = []

    def use():
        shift = jnp.ones(3)
        function = lambda y: y + shift  # noqa: E731
        functions.append(weakref.ref(function))
        program(function, jnp.zeros(3))

    for _ in range(2 * KEPT):
        use()
    gc.collect()
    alive = [function() is not None for function in functions]
    assert alive == [False] * KEPT + [True] * KEPT


def test_one_that_is_used_again_and_again_is_kept():
    program, function = compiled(lambda function, y: function(y)), Traced(update)
    for i in range(2 * KEPT):
        program(lambda y, i=i: y + i, jnp.zeros(3))
        program(jax.tree_util.Partial(function, data=jnp.ones(3)), jnp.zeros(3))
    assert function.times == 1


@names_programs
@pytest.mark.parametrize("placed", [False, True], ids=["anywhere", "put on a device"])
def test_the_steps_and_the_last_look_are_one_program(placed):
    """The last look brings its own k, which must lie where that of the steps does."""
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    method, start = bl.schemes.n_q_loop(2, 2, inner_step=0.25, linear_step=0.25), jnp.zeros(7)
    if placed:
        start = jax.device_put(start, jax.devices()[0])
    run, names = compiling(
        lambda: bl.solve(problem, start, jnp.zeros(7), method, outer=0.1, steps=3)
    )
    assert run.status is bl.Status.COMPLETED
    assert sum("advance" in name for name in names) == 1, names


@names_programs
def test_a_run_with_nothing_set_compiles_no_operation_by_itself():
    """Each would be a program: ten of them took a tenth of a second of a first run."""
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    x0, y0 = np.ones(9), np.ones(9)
    run, names = compiling(lambda: bl.solve(problem, x0, y0))
    assert run.status is bl.Status.CONVERGED
    mine = [name for name in names if "advance" not in name and "around" not in name]
    assert len(mine) <= 1, names  # which looks what this version of XLA can be told


def compiling(call):
    """What a call gives, and the names of the programs that were lowered for it."""
    names = []

    def count(event, *_, fun_name="", **__):
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        return call(), names
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
