"""How hard XLA tries: little for few numbers and for what runs once, and with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.compilation import compiled, effort, programs
from biloop.compilation.products import Target

CPU = Target("cpu", 1)
FEW = np.zeros(effort.FEW["long"])


def spiral(x):
    return jax.lax.fori_loop(0, 50, lambda _, x: x - 0.1 * jnp.tanh(x) + 0.01 * jnp.sum(x * x), x)


@pytest.mark.parametrize("often", effort.FEW)
def test_it_goes_by_how_many_numbers_there_are(often):
    most = effort.FEW[often]
    assert effort.options(CPU, [np.zeros(most)], often)
    assert effort.options(CPU, [np.zeros(most), np.zeros(1)], often) == ()


@pytest.mark.parametrize(("outer", "quick"), [("auto", True), (0.1, False)])
def test_few_outer_steps_are_compiled_quickly_on_more_numbers(outer, quick, monkeypatch):
    X, asked, options = np.ones((2000, 2)), [], effort.options
    problem = bl.Problem(
        lambda x, y, X: jnp.mean((X @ y - 1) ** 2) + x**2 * jnp.sum(y**2),
        lambda x, y, X: jnp.mean((X @ y - 1) ** 2) + x**2,
        (X,),
        (X,),
    )

    def noted(target, arrays, often):
        found = options(target, arrays, often)
        asked.append((often, bool(found)))
        return found

    monkeypatch.setattr(programs, "options", noted)
    method = bl.AID(bl.GradientDescent(0.1, 2), bl.CG(2))
    bl.solve(problem, jnp.asarray(1.0), jnp.zeros(2), method, outer=outer, steps=2)
    assert ("briefly" if quick else "long", quick) in asked


def test_on_a_gpu_only_what_runs_once_is_compiled_quickly(monkeypatch):
    monkeypatch.setattr(effort, "_known", lambda wanted: wanted)
    assert effort.options(Target("gpu", 1), [FEW], "long") == ()
    assert effort.options(Target("gpu", 1), [np.zeros(effort.FEW["once"] + 1)], "once")
    assert effort.options(Target("tpu", 1), [FEW], "once") == ()


def test_the_switch_asks_for_full_effort(monkeypatch):
    assert effort.options(CPU, [FEW], "long")
    monkeypatch.setenv(effort.SWITCH, "0")
    assert effort.options(CPU, [FEW], "long") == ()


def test_what_this_xla_does_not_know_is_left_out():
    level = ("xla_backend_optimization_level", 0)
    assert effort._known((level, ("xla_cpu_no_such_option", 1))) == (level,)


def test_quick_programs_compute_the_same(monkeypatch):
    x = jnp.linspace(-1, 1, 20)
    quick = compiled(spiral)(x)
    monkeypatch.setenv(effort.SWITCH, "0")
    np.testing.assert_allclose(quick, compiled(spiral)(x), rtol=1e-13)


def test_inside_another_program_it_is_compiled_with_that():
    x = jnp.linspace(-1, 1, 20)
    inside = jax.jit(lambda x: 2 * compiled(often="once")(spiral)(x))(x)
    np.testing.assert_allclose(inside, 2 * spiral(x), rtol=1e-13)
