"""How hard XLA tries: little for few numbers and for what runs once, and with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from biloop.compilation import compiled, effort
from biloop.compilation.products import Target

CPU = Target("cpu", 1)
FEW = np.zeros(effort.FEW)


def spiral(x):
    return jax.lax.fori_loop(0, 50, lambda _, x: x - 0.1 * jnp.tanh(x) + 0.01 * jnp.sum(x * x), x)


@pytest.mark.parametrize("once", [False, True])
def test_it_goes_by_how_many_numbers_there_are(once):
    most = effort.FEW_ONCE if once else effort.FEW
    assert effort.options(CPU, [np.zeros(most)], once=once)
    assert effort.options(CPU, [np.zeros(most), np.zeros(1)], once=once) == ()


def test_on_a_gpu_only_what_runs_once_is_compiled_quickly(monkeypatch):
    monkeypatch.setattr(effort, "_known", lambda wanted: wanted)
    assert effort.options(Target("gpu", 1), [FEW], once=False) == ()
    assert effort.options(Target("gpu", 1), [np.zeros(effort.FEW_ONCE + 1)], once=True)
    assert effort.options(Target("tpu", 1), [FEW], once=True) == ()


def test_the_switch_asks_for_full_effort(monkeypatch):
    assert effort.options(CPU, [FEW], once=False)
    monkeypatch.setenv(effort.SWITCH, "0")
    assert effort.options(CPU, [FEW], once=False) == ()


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
    inside = jax.jit(lambda x: 2 * compiled(once=True)(spiral)(x))(x)
    np.testing.assert_allclose(inside, 2 * spiral(x), rtol=1e-13)
