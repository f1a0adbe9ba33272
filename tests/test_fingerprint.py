"""Fingerprints: what computes the same has the same, after a restart too, and nothing else has."""

import json
import logging
import os
import subprocess
import sys
import threading
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import biloop as bl
from biloop.run.fingerprint import differences, fingerprint, parts_of_run

from .engines import begun
from .hiding import ON_THE_HOST, PLACES, Dynamic, on_the_host

ZERO = jnp.zeros(2)


def inner(x, y):
    return jnp.sum((y - x) ** 2)


def outer(x, y):
    return jnp.sum((y - 1.0) ** 2)


def aid(steps=3, step_size=0.1, **options):
    loops = bl.GradientDescent(step_size, steps=steps), bl.Richardson(0.1, steps=2)
    return bl.AID(*loops, **options)


def identity(problem=None, method=None, outer_step=0.1, x=ZERO, y=ZERO, v=None):
    problem = bl.Problem(inner, outer) if problem is None else problem
    method = aid() if method is None else method
    return fingerprint(lambda: parts_of_run(*begun(problem, method, outer_step, x, y, v)))


@pytest.mark.parametrize(
    ("which", "place"),
    [("inner", place) for place in PLACES] + [("outer", place) for place in PLACES + ON_THE_HOST],
)
def test_a_constant_is_seen_wherever_it_hides(place, which):
    def found(value):
        functions = {"inner": inner, "outer": outer} | {which: place(value)}
        return identity(bl.Problem(**functions))

    assert found(1.0) == found(1.0)
    assert differences(found(1.0), found(2.0)) == [f"problem ({which} function)"]


A, B = jnp.arange(4.0).reshape(2, 2), jnp.eye(2)


def test_constants_that_have_changed_places_are_another_function():
    def closing(C, D):
        return bl.Problem(lambda x, y: jnp.sum((C @ y - D @ x) ** 2), outer)

    found = differences(identity(closing(A, B)), identity(closing(B, A)))
    assert found == ["problem (inner function)"]


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
    problems = [bl.Problem(inner, place(2.0)) for place in PLACES + ON_THE_HOST]
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


def test_what_a_host_function_counts_is_no_other_problem():
    """Nor does it matter where Python put a library's objects, or what refers to itself."""
    calls, sizes = 0, []
    known = types.SimpleNamespace(lock=threading.Lock(), log=logging.getLogger("biloop.tests"))
    known.itself = known

    def counted(s):
        nonlocal calls
        with known.lock:
            calls += 1
        sizes.append(s)
        return np.sqrt(s**2)

    problem = bl.Problem(inner, on_the_host(counted))
    before = identity(problem)
    calls, known.lock, sizes[:] = 5, threading.Lock(), [1.0, 2.0]
    assert identity(problem) == before
