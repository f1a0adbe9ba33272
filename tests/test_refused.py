"""Bad input is refused before anything runs, with its value and what is expected."""

import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl

from .helpers import quadratic_inner, quadratic_outer, random_quadratic

QUADRATIC = random_quadratic()
X, Y = QUADRATIC.start()
INNER = bl.GradientDescent(step_size=0.1, steps=5)
METHOD = bl.AID(INNER, bl.Richardson(step_size=0.1, steps=5))


def solve(problem=QUADRATIC.problem, method=METHOD, x=X, y=Y, outer=0.05, steps=200, **more):
    return bl.solve(problem, x, y, method, outer=outer, steps=steps, **more)


@pytest.mark.parametrize("which", ["inner", "outer"])
@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        (lambda x, y: y**2, ValueError, r"must return a scalar, got shape \(6,\)"),
        (lambda x, y: jnp.sum(y)[None], ValueError, r"got shape \(1,\)"),
        (lambda x, y: (jnp.sum(y), 1.0), TypeError, "must return a scalar array"),
        (lambda x, y: jnp.argmax(y), TypeError, "floating scalar, got dtype int"),
        (lambda x, y: x @ y, ValueError, "cannot be evaluated at these x and y"),
        (lambda x, y: y["w"], ValueError, "cannot be evaluated at these x and y"),
        (lambda x: jnp.sum(x), ValueError, "cannot be evaluated at these x and y"),
    ],
    ids=["vector", "one element", "pair", "integer", "shapes", "structure", "arguments"],
)
def test_functions_that_are_no_losses(which, loss, error, words):
    good = {"inner": lambda x, y: jnp.sum(y**2), "outer": lambda x, y: jnp.sum(y**2)}
    problem = bl.Problem(**(good | {which: loss}))
    with pytest.raises(error, match=f"{which}.*{words}"):
        METHOD.init(problem, X, Y)
    with pytest.raises(error, match=words):
        solve(problem)


@pytest.mark.parametrize(
    ("variable", "error", "words"),
    [
        (np.arange(6), TypeError, "dtype int64, but only floating"),
        ({"w": np.zeros(3), "n": np.arange(2)}, TypeError, r"\['n'\] has dtype int64"),
        (np.zeros(6, bool), TypeError, "dtype bool"),
        (np.zeros(6, complex), TypeError, "dtype complex128"),
        ([np.zeros(0)], ValueError, r"\[0\] is empty"),
        ({}, ValueError, "no leaves"),
        ({"f": jnp.tanh}, TypeError, r"\['f'\] is a .*Keep it inside of an eqx.Module"),
        ("text", TypeError, "is a str"),
    ],
)
@pytest.mark.parametrize("which", ["x", "y"])
def test_variables_that_cannot_be_optimised(variable, error, words, which):
    with pytest.raises(error, match=f"^{which}0?.*{words}"):
        solve(**{which: variable})


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (
            (np.zeros((10, 3)), np.zeros(9)),
            ValueError,
            r"different leading axes.*\(10, 3\), \(9,\)",
        ),
        ((np.zeros((0, 3)),), ValueError, r"inner_data\[0\] is empty.*\(0, 3\)"),
        (({"a": [np.zeros((2, 0))]},), ValueError, r"inner_data\[0\]\['a'\]\[0\] is empty"),
        (np.zeros(3), TypeError, r"must be a tuple.*inner_data=\(array,\)"),
        (("a.csv",), TypeError, r"inner_data\[0\] must be an array, got str"),
        ((jnp.sin,), TypeError, r"inner_data\[0\] must be an array"),
    ],
)
def test_data_that_do_not_fit(data, error, words):
    with pytest.raises(error, match=words):
        bl.Problem(quadratic_inner, quadratic_outer, inner_data=data)


def test_scalars_and_pytrees_among_the_data_are_fine():
    bl.Problem(
        quadratic_inner,
        quadratic_outer,
        inner_data=(np.zeros((4, 2)), np.zeros(4), 0.5, {"A": np.zeros((3, 3)), "b": np.ones(7)}),
    )


def test_functions_must_be_functions():
    with pytest.raises(TypeError, match=r"must be functions, got 3\.0"):
        bl.Problem(3.0, quadratic_outer)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be an integer of at least 1.*, got 0"),
        ({"steps": 2.5}, ValueError, "got 2.5"),
        ({"outer": -0.1}, ValueError, "outer step size must be .* greater than 0, got -0.1"),
        ({"outer": float("nan")}, ValueError, "got nan"),
        ({"outer": "fast"}, TypeError, "an optax transformation or an OuterStep, got 'fast'"),
        ({"epsilon": -1.0}, ValueError, "epsilon"),
        ({"epsilon": float("nan")}, ValueError, "epsilon"),
        ({"seconds": 0.0}, ValueError, "seconds"),
        ({"x": X.at[1].set(jnp.nan)}, ValueError, "x0 has entries that are NaN"),
        ({"y": Y.at[1].set(jnp.inf)}, ValueError, "y0 has entries that are NaN or infinite"),
        ({"budget": 0}, ValueError, "budget must be an integer of at least 1.*, got 0"),
        ({"budget": float("nan")}, ValueError, "budget must be .* got nan"),
        ({"budget": bl.Cost(10, -1)}, ValueError, r"budget\.products must be .* got -1"),
        ({"method": "AID"}, TypeError, "AID, ITD or another Method, got 'AID'"),
        ({"problem": "cleaning"}, TypeError, "must be a biloop.Problem, got str"),
        ({"v0": jnp.zeros(5)}, ValueError, "v0 does not have the structure of y0"),
        ({"v0": [Y]}, ValueError, "v0 does not have the structure of y0"),
        ({"v0": Y, "method": bl.ITD(INNER)}, TypeError, "an adjoint, which ITD has not"),
        ({"x": METHOD}, TypeError, r"order is \(problem, x0, y0, method\).* a AID was given"),
        ({"outer": bl.Projected(0.1, bl.Box({"a": 0.0}, {"a": 1.0}))}, ValueError, "structure"),
    ],
)
def test_bad_arguments_of_solve(changes, error, words):
    with pytest.raises(error, match=words):
        solve(**changes)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: bl.AID(0.1, bl.CG(steps=1)), TypeError, "inner solver"),
        (lambda: bl.AID(INNER, 0.1), TypeError, "linear solver"),
        (lambda: bl.ITD(bl.CG(steps=3)), TypeError, "steps of a descent.*got CG"),
        (lambda: bl.ITD(bl.NewtonCG()), TypeError, "got NewtonCG.*go with AID"),
        (lambda: bl.ITD(INNER, memory="lots"), ValueError, "'lots'"),
        (
            lambda: bl.ITD(INNER, truncate=0),
            ValueError,
            "truncate must be an integer of at least 1.*, got 0",
        ),
        (lambda: bl.ITD(INNER, truncate=2, memory="sqrt"), ValueError, "truncate=2"),
        (
            lambda: bl.ITD(INNER, max_steps=0),
            ValueError,
            "max_steps must be an integer of at least 1",
        ),
        (
            lambda: bl.ITD(bl.GradientDescent(step_size=0.1, steps=lambda k: k)),
            ValueError,
            "give max_steps",
        ),
        (lambda: bl.Lineax("cg"), TypeError, "lineax solver"),
        (lambda: bl.Exact(limit=3).init(QUADRATIC.problem, X, Y), ValueError, "6 × 6"),
    ],
)
def test_methods_that_make_no_sense(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("bad", ["0.1", True])
def test_step_sizes_that_are_no_numbers(bad):
    with pytest.raises(TypeError, match="must be a number"):
        bl.GradientDescent(step_size=bad, steps=1)


def test_a_step_size_that_is_zero_in_the_precision_of_y():
    small = bl.AID(bl.GradientDescent(1e-9, steps=1), bl.CG(steps=1))
    half = jnp.zeros(6, jnp.float16)
    problem = bl.Problem(lambda x, y: jnp.sum(y**2), lambda x, y: jnp.sum(y))
    with pytest.raises(ValueError, match="step size 1e-09 is 0 in float16"):
        solve(problem, small, y=half)
