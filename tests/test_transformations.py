"""Optax optimizers that do the same are one object, and those of a factory have arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.compilation import canonical, compiled
from biloop.compilation import transformations as module


def rate(k):
    return 0.1 / (1 + k)


MASK = {"a": True, "b": False}
FACTORIES = {
    "adam": lambda: optax.adam(0.01),
    "clip and adamw with a schedule": lambda: optax.chain(
        optax.clip(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 100), weight_decay=1e-3)
    ),
    "a schedule of one's own": lambda: optax.sgd(lambda k: rate(k)),
    "masked": lambda: optax.masked(optax.sgd(0.1, momentum=0.9), {"a": True, "b": False}),
    "masked by a function": lambda: optax.masked(optax.sgd(0.1), lambda tree: MASK),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "with an array": lambda: optax.sgd(jnp.asarray(0.1)),
    "with a NumPy array": lambda: optax.scale(np.asarray([0.1, 0.2])),
    "lbfgs": lambda: optax.lbfgs(0.1, memory_size=3),
    "many": lambda: optax.multi_transform(
        {"fast": optax.sgd(0.1), "slow": optax.adam(0.01)}, {"a": "fast", "b": "slow"}
    ),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_made_twice_it_is_one_object(name):
    first, second = FACTORIES[name](), FACTORIES[name]()
    assert first is not second
    assert canonical(first) is canonical(second)
    assert canonical(first) is canonical(canonical(first))


def test_any_other_number_makes_another():
    several = [
        optax.adam(0.01),
        optax.adam(0.02),
        optax.adam(0.01, b1=0.8),
        optax.adamw(0.01),
        optax.sgd(0.01),
        optax.sgd(0.01, momentum=0.0),
        optax.sgd(jnp.asarray(0.01)),
        optax.sgd(jnp.asarray(0.02)),
        optax.chain(optax.clip(1.0), optax.sgd(0.01)),
        optax.chain(optax.clip(2.0), optax.sgd(0.01)),
        optax.chain(optax.clip(1), optax.sgd(0.01)),
        optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
        optax.sgd(optax.cosine_decay_schedule(0.1, 200)),
        optax.masked(optax.sgd(0.1), {"a": True, "b": False}),
        optax.masked(optax.sgd(0.1), {"a": True, "b": True}),
    ]
    assert len({id(canonical(each)) for each in several}) == len(several)


class Rate:
    """Something that nobody else understands, and that cannot be hashed."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, value):
        self.value = value


def own(rate):
    return optax.GradientTransformation(
        lambda params: (), lambda updates, state, params=None: (updates * rate.value, state)
    )


def test_what_holds_something_unknown_is_itself_alone():
    held = Rate(0.1)
    one, other = own(Rate(0.1)), own(Rate(0.1))
    assert canonical(one) is one
    assert canonical(other) is other
    assert canonical(own(held)) is canonical(own(held))


SCALE = 2.0


def by_a_constant_of_the_module():
    return optax.stateless(lambda g, params: jax.tree.map(lambda g: -SCALE * g, g))


def test_a_constant_of_the_module_that_changes_is_seen(monkeypatch):
    before = canonical(by_a_constant_of_the_module())
    assert canonical(by_a_constant_of_the_module()) is before
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert canonical(by_a_constant_of_the_module()) is not before


def test_a_first_one_that_was_written_into_is_given_to_nobody():
    mask = {"a": True, "b": False}
    first = canonical(optax.masked(optax.sgd(0.123), mask))
    mask["b"] = True
    assert canonical(optax.masked(optax.sgd(0.123), {"a": True, "b": False})) is not first


def test_a_function_that_refers_to_itself():
    def make():
        def update(updates, state, params=None):
            return (updates, update)[0], state

        return optax.GradientTransformation(lambda params: (), update)

    assert canonical(make()) is canonical(make())


def test_only_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 4)
    several = [canonical(optax.sgd(0.5 + i)) for i in range(9)]
    assert len(module._FIRST) == 4
    assert canonical(optax.sgd(8.5)) is several[-1]
    assert canonical(optax.sgd(0.5)) is not several[0]


def ten_steps(optimizer, y):
    state = optimizer.init(y)

    def step(_, carry):
        y, state = carry
        updates, state = optimizer.update(y, state, y)
        return jax.tree.map(lambda y, u: y + u.astype(y.dtype), y, updates), state

    return jax.lax.fori_loop(0, 10, step, (y, state))[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_built_inside_it_does_the_same(dtype):
    y = jnp.arange(1, 4).astype(dtype)
    numbers = {"learning_rate": 0.1, "b1": 0.8, "eps": 1e-6}
    with jax.numpy_dtype_promotion("standard"):
        expected = ten_steps(optax.adam(**numbers, nesterov=True), y)
    found = compiled(ten_steps)(bl.Built(optax.adam, {**numbers, "nesterov": True}), y)
    assert found.dtype == y.dtype
    rtol = 1e-5 if dtype != "bfloat16" else 3e-2
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=rtol)


def test_other_numbers_trace_nothing():
    traced = []

    @compiled
    def run(optimizer, y):
        traced.append(1)
        return ten_steps(optimizer, y)

    y = jnp.ones(3)
    ends = [run(bl.Built(optax.adam, {"learning_rate": r}), y)[0] for r in (0.01, 0.02, 0.04)]
    assert len(traced) == 1
    assert ends[0] > ends[1] > ends[2]
    run(bl.Built(optax.adam, {"learning_rate": 0.01, "nesterov": True}), y)
    assert len(traced) == 2


def test_many_rates_side_by_side():
    rates = jnp.asarray([0.01, 0.02])
    y = jnp.ones(3)
    found = jax.vmap(lambda r: ten_steps(bl.Built(optax.adam, {"learning_rate": r}), y))(rates)
    for each, r in zip(found, (0.01, 0.02), strict=True):
        np.testing.assert_allclose(each, ten_steps(bl.Built(optax.adam, {"learning_rate": r}), y))


def test_a_wrong_argument_is_refused_at_once():
    with pytest.raises(TypeError, match="rate"):
        bl.Built(optax.adam, {"rate": 0.1})
    with pytest.raises(TypeError, match="must return an optax"):
        bl.Built(dict, {"learning_rate": 0.1})  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"options of Built must be a mapping.* got 0\.1"):
        bl.Built(optax.adam, 0.1)
    with pytest.raises(TypeError, match=r"factory of Built must be a function.* got 0\.1"):
        bl.Built(0.1, {"learning_rate": 0.1})


def test_methods_of_two_objects_are_two_transformations():
    class Rate:
        def __init__(self, size):
            self.size = size

        def init(self, params):
            return ()

        def update(self, updates, state, params=None):
            return jax.tree.map(lambda u: -self.size * u, updates), state

    slow, fast = Rate(0.1), Rate(0.5)
    made = [optax.GradientTransformation(each.init, each.update) for each in (slow, fast, slow)]
    first, other, again = map(canonical, made)
    assert first is again
    assert first is not other
