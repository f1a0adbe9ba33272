"""Fingerprints: what computes the same has the same, after a restart too, and nothing else has."""

import functools
import json
import os
import subprocess
import sys
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.outer import as_outer_step
from biloop.run.fingerprint import differences, fingerprint, parts_of_run
from biloop.run.step import Settings, first_state

ZERO = jnp.zeros(2)
WEIGHT = 1.0


def inner(x, y):
    return jnp.sum((y - x) ** 2)


def outer(x, y):
    return jnp.sum((y - 1.0) ** 2)


def aid(steps=3, step_size=0.1, **options):
    loops = bl.GradientDescent(step_size, steps=steps), bl.Richardson(0.1, steps=2)
    return bl.AID(*loops, **options)


def identity(problem=None, method=None, outer_step=0.1, x=ZERO, y=ZERO, v=None):
    problem = bl.Problem(inner, outer) if problem is None else problem
    method, outer_step = aid() if method is None else method, as_outer_step(outer_step)
    settings = Settings(problem, method, outer_step)
    return fingerprint(lambda: parts_of_run(settings, first_state(settings, x, y, v)))


def in_a_partial(value):
    return functools.partial(lambda c, x, y: c * jnp.sum(y**2), value)


def function_of_a_partial(value):
    first, second = (lambda x, y, p: jnp.sum(y**p)), (lambda x, y, p: jnp.sum(jnp.abs(y) ** p))
    return functools.partial(first if value == 1 else second, p=2)


def attribute_of_a_module(value):
    settings = types.ModuleType("settings")
    settings.scale = value
    return lambda x, y: settings.scale * jnp.sum(y**2)


def function_of_a_module(value):
    mine = types.ModuleType("mine")
    mine.loss = lambda y: value * jnp.sum(y**2)
    return lambda x, y: mine.loss(y)


def attribute_of_a_class(value):
    class Settings:
        scale = value

    return lambda x, y: Settings.scale * jnp.sum(y**2)


def global_in_a_nested_function(value):
    def loss(x, y):
        return (lambda: WEIGHT * jnp.sum(y**2))()

    return types.FunctionType(loss.__code__, globals() | {"WEIGHT": value})


def changed_call(value):
    return type("Loss", (), {"__call__": lambda self, x, y: value * jnp.sum(y**2)})()


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)


class Static(eqx.Module):
    value: float = eqx.field(static=True)

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)


class Dynamic(eqx.Module):
    value: jax.Array

    def __call__(self, x, y):
        return self.value * jnp.sum(y**2)


def in_a_set(value):
    chosen = {1, int(value)}
    return lambda x, y: sum(chosen) * jnp.sum(y**2)


def in_a_range(value):
    return lambda x, y, r=range(int(value)): len(r) * jnp.sum(y**2)


def keyword_default(value):
    def loss(x, y, *, scale=value):
        return scale * jnp.sum(y**2)

    return loss


def constant_of_the_code(value):
    return eval(f"lambda x, y: {value} * jnp.sum(y**2)", {"jnp": jnp})


def array(value):
    constant = jnp.array([1.0, value])
    return lambda x, y: jnp.vdot(constant, y**2)


def numpy_array(value):
    constant = np.array([1.0, value])
    return lambda x, y: jnp.vdot(constant, y**2)


def body_of_a_loop(value):
    def loss(x, y):
        return jax.lax.scan(lambda s, e: (s + value * e**2, None), jnp.zeros(()), y)[0]

    return jax.jit(loss)


def callback_to_the_host(value):
    def loss(x, y):
        shape = jax.ShapeDtypeStruct((), y.dtype)
        total = jax.lax.stop_gradient(jnp.sum(y))
        return jnp.sum(y**2) + jax.pure_callback(lambda s: np.asarray(value * s), shape, total)

    return loss


PLACES = [
    in_a_partial,
    function_of_a_partial,
    attribute_of_a_module,
    function_of_a_module,
    attribute_of_a_class,
    global_in_a_nested_function,
    changed_call,
    Slotted,
    Static,
    in_a_set,
    in_a_range,
    keyword_default,
    constant_of_the_code,
    array,
    numpy_array,
    body_of_a_loop,
    callback_to_the_host,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("which", ["inner", "outer"])
def test_a_constant_is_seen_wherever_it_hides(place, which):
    def found(value):
        functions = {"inner": inner, "outer": outer} | {which: place(value)}
        return identity(bl.Problem(**functions))

    assert found(1.0) == found(1.0)
    assert differences(found(1.0), found(2.0)) == [f"problem ({which} function)"]


A, B = jnp.arange(4.0).reshape(2, 2), jnp.eye(2)


def with_data(inner_data, outer_data):
    def loss(x, y, *data):
        return sum(jnp.sum((D @ y - x) ** 2) for D in data)

    return bl.Problem(loss, loss, inner_data, outer_data)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (with_data((A, B), (A,)), with_data((A, B), (B,))),
        (with_data((A, B), (A,)), with_data((B, A), (A,))),
        (with_data((A,), (A,)), with_data((A.at[0, 0].add(1e-16),), (A,))),
        (bl.Problem(inner, Dynamic(A[0, 1])), bl.Problem(inner, Dynamic(A[1, 0]))),
    ],
)
def test_data_and_their_places_are_seen(one, other):
    assert identity(one) == identity(one)
    assert differences(identity(one), identity(other)) == ["problem (data)"]


def test_data_of_another_shape_are_other_data_not_another_function():
    tall = jnp.concatenate([A, A])
    problem = bl.Problem(
        lambda x, y, D: jnp.mean((D @ y) ** 2) + jnp.sum((x - y) ** 2), outer, (A,), ()
    )
    other = eqx.tree_at(lambda p: p.inner_data, problem, (tall,))
    assert differences(identity(problem), identity(other)) == ["problem (data)"]


def stepping(function):
    return aid(steps=bl.schedules.Function(function))


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"method": aid(step_size=0.1)}, {"method": aid(step_size=0.2)}, ["method"]),
        ({"method": aid(steps=3)}, {"method": aid(steps=4)}, ["method"]),
        ({"method": aid()}, {"method": aid(warm_start_v=False)}, ["method"]),
        ({"method": aid()}, {"method": aid(warm_start_y=False)}, ["method"]),
        ({"method": stepping(lambda k: k + 1)}, {"method": stepping(lambda k: k + 2)}, ["method"]),
        ({"method": aid()}, {"method": bl.ITD(bl.GradientDescent(0.1, 3))}, ["method"]),
        ({"outer_step": 0.1}, {"outer_step": 0.2}, ["outer step"]),
        ({"outer_step": 0.1}, {"outer_step": optax.sgd(0.1)}, ["outer step"]),
        ({"outer_step": optax.adam(0.01)}, {"outer_step": optax.adam(0.02)}, ["outer step"]),
        ({"outer_step": optax.adam(0.1)}, {"outer_step": optax.adam(0.1, b1=0.8)}, ["outer step"]),
        ({}, {"x": ZERO + 1e-9}, ["start"]),
        ({}, {"y": ZERO + 1e-9}, ["start"]),
        ({}, {"v": ZERO + 1e-9}, ["start"]),
        ({}, {"x": ZERO + 1, "method": aid(steps=4)}, ["method", "start"]),
        ({}, {"method": aid(step_size=0.2), "outer_step": 0.2}, ["method", "outer step"]),
    ],
)  # fmt: skip
def test_what_differs_is_named(one, other, words):
    assert identity(**one) == identity(**one)
    assert differences(identity(**one), identity(**other)) == words


def test_a_new_optimizer_of_the_same_kind_is_the_same():
    assert identity(outer_step=optax.adam(0.01)) == identity(outer_step=optax.adam(0.01))


def test_names_comments_and_prints_do_not_matter():
    def renamed(first, second):
        jax.debug.print("looking at {}", second)
        return jnp.sum((second - first) ** 2)

    assert identity(bl.Problem(renamed, outer)) == identity()
    assert identity(bl.Problem(jax.jit(renamed), outer)) == identity(
        bl.Problem(jax.jit(inner), outer)
    )


def shown():
    """The fingerprints of many runs, as JSON."""
    outer_step = optax.chain(optax.clip(1.0), optax.adam(optax.exponential_decay(0.1, 10, 0.5)))
    problems = [bl.Problem(inner, place(2.0)) for place in PLACES]
    noise = bl.Problem(
        lambda x, y: inner(x, y) + jnp.vdot(y, jax.random.normal(jax.random.key(0), y.shape)),
        lambda x, y: jax.nn.relu(outer(x, y)) + jax.nn.logsumexp(y),
    )
    auto = bl.AID(bl.NewtonCG(), bl.CG(5, tolerance=1e-3))
    runs = [{"problem": problem, "outer_step": outer_step} for problem in problems]
    runs += [{"problem": noise, "method": method} for method in (auto, bl.Exact())]
    return json.dumps([identity(**run) for run in runs])


def test_another_process_finds_the_same():
    """With other addresses and another order of sets."""
    program = "import tests.conftest, tests.test_fingerprint as t; print(t.shown())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "123"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == json.loads(shown())
