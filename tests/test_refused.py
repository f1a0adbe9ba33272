"""Bad input is refused before anything runs, with its value and what is expected."""

from decimal import Decimal
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import optax
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
        ({"method": "AID"}, TypeError, r"another Method, e\.g\. .*schemes\.auto\(\); got 'AID'"),
        ({"problem": "cleaning"}, TypeError, r"biloop.Problem, got str; .* Problem\(inner"),
        ({"v0": jnp.zeros(5)}, ValueError, "v0 does not have the structure of y0"),
        ({"v0": [Y]}, ValueError, "v0 does not have the structure of y0"),
        ({"v0": Y, "method": bl.ITD(INNER)}, TypeError, "an adjoint, which ITD has not"),
        ({"x": METHOD}, TypeError, r"order is \(problem, x0, y0, method\).*but AID was given"),
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


NO_FLAGS = ["yes", 1, np.zeros(2)]


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("checkpoint", [3, b"folder", np.zeros(2)], "checkpoint must be the path of a folder, got"),
        ("callback", ["three", 3, lambda: None], "callback must be a function of a Progress, got"),
        ("watch", ["three", 3, lambda x: 0.0], "watch must be a function of x and y, got"),
        ("progress", NO_FLAGS, "progress must be True or False or None, got"),
        ("throw", [*NO_FLAGS, None], "throw must be True or False, got"),
        ("label", [3, None, b"name"], "label must be a string, got"),
    ],
)
def test_what_a_run_is_accompanied_by(name, bad, words):
    for value in bad:
        with pytest.raises(TypeError, match=words):
            solve(steps=1, **{name: value})


def test_sweeps_and_comparisons_refuse_alike():
    given = QUADRATIC.problem, X, Y
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder, got 3"):
        bl.sweep(*given, METHOD, outer=0.1, steps=1, checkpoint=3)
    with pytest.raises(TypeError, match="progress must be True or False or None, got"):
        bl.sweep(*given, METHOD, outer=0.1, steps=1, progress=np.zeros(2))
    with pytest.raises(TypeError, match="progress must be True or False or None, got 'yes'"):
        bl.compare(*given, progress="yes")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda given: bl.compare(*given, seeds=np.array(3)), "seeds must be a sequence of int"),
        (lambda given: bl.compare(*given, N=2.5), "N must be an integer of at least 1, or a seq"),
        (lambda given: bl.compare(*given, schemes=3), "schemes must be a sequence of names"),
        (lambda given: bl.compare(*given, schemes="hoag"), "schemes must be a sequence of names"),
        (lambda given: bl.compare(*given, schemes=iter(["HOAG"])), "schemes must be a sequence"),
        (lambda given: bl.compare(*given, name=3), "name must be a string"),
        (lambda given: bl.compare(*given, certificates="yes"), "certificates must be True or"),
        (lambda given: bl.sweep(*given, METHOD, seeds=np.array(3), steps=1), "seeds must be a seq"),
        (lambda given: bl.solve(*given, METHOD, epsilon=np.True_), "epsilon must be a number"),
        (lambda given: bl.solve(*given, METHOD, checkpoint=""), "checkpoint must be the path"),
        (lambda _: bl.Problem(*2 * [jnp.sum], is_equilibrium=np.ones(2)), "is_equilibrium must be"),
        (lambda _: bl.argmin(jnp.sum, prox="l1"), "prox must be a function of x, z and a step"),
        (lambda _: bl.implicit(jnp.sum, host="no")(jnp.sum), "host must be True or False"),
        (lambda _: bl.implicit(jnp.sum, is_equilibrium=2)(jnp.sum), "is_equilibrium must be True"),
    ],
)
def test_arguments_that_were_ignored_or_blamed_on_others(call, words):
    with pytest.raises(TypeError, match=words):
        call((QUADRATIC.problem, X, Y))


@pytest.mark.parametrize("estimate", ["constants", "step_sizes", "contraction"])
def test_estimates_of_what_is_no_problem(estimate):
    with pytest.raises(TypeError, match=r"problem must be a biloop\.Problem, got str"):
        getattr(bl.estimate, estimate)("ridge", X, Y)


@pytest.mark.parametrize("bad", ["three", None, 1.5, True, 2**64, jnp.arange(3)])
def test_seeds_of_estimates(bad):
    equilibrium = bl.Problem.fixed_point(lambda x, y: y / 2, lambda x, y: jnp.sum(y))
    for estimate, problem in (
        (bl.estimate.constants, QUADRATIC.problem),
        (bl.estimate.step_sizes, QUADRATIC.problem),
        (bl.estimate.contraction, equilibrium),
    ):
        with pytest.raises((TypeError, ValueError), match="seed must be"):
            estimate(problem, X, Y, seed=bad)


@pytest.mark.parametrize("name", ["L", "mu", "rho", "M"])
def test_known_constants_that_are_no_numbers(name):
    for bad in ("three", 1j, True, [1.0], np.ones(2), np.zeros(0), 10**400, METHOD):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must be"):
            bl.estimate.constants(QUADRATIC.problem, X, Y, **{name: bad})
    with pytest.raises(TypeError, match="joint must be True or False, got 'no'"):
        bl.estimate.constants(QUADRATIC.problem, X, Y, joint="no")


@pytest.mark.parametrize("bad", [(), (1,), (1, 2, 3)])
def test_batches_that_are_no_pair(bad):
    with pytest.raises(ValueError, match=r"batch must be a number of rows, or a pair .*, got \("):
        bl.schemes.soba(batch=bad)


@pytest.mark.parametrize("host", [False, True], ids=["JAX", "host"])
def test_solvers_that_return_something_unlike_y(host):
    # Of the same size but transposed: whoever reshapes it has another y.
    made = bl.implicit(lambda x, y: jnp.sum((y - x) ** 2), host=host)
    words = r"solver must return something like y0, f.*\[3,2\]; it returned"
    for found in (np.zeros(5), np.zeros((2, 3)), [np.zeros((3, 2))]):
        with pytest.raises(Exception, match=words):
            made(lambda x, y0, found=found: found)(1.0, jnp.zeros((3, 2)))
    flat = made(lambda x, y0: np.ones(6))
    np.testing.assert_array_equal(flat(1.0, jnp.zeros((3, 2))), np.ones((3, 2)))


def test_right_hand_sides_that_are_none():
    B, double = jnp.ones((2, 3)), lambda v: 2 * v
    for bad, words in (
        ("x", "B is a str"),
        (1.5, "leading axis"),
        (jnp.ones(3, int), "B has dtype"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            bl.block_cg(double, bad, bad, steps=3)
    with pytest.raises(ValueError, match=r"V0 must have the shapes of B, \(2, 3\)"):
        bl.block_cg(double, B, B[0], steps=3)
    for bad in (3, None):
        with pytest.raises(TypeError, match=f"matvec must be a function of one vector, got {bad}"):
            bl.block_cg(bad, B, B, steps=3)
    for bad in ("x", [1.0], -1.0, float("nan"), 10**400):
        with pytest.raises((TypeError, ValueError), match="tolerance must be"):
            bl.block_cg(double, B, B, steps=3, tolerance=bad)


def test_a_limit_is_any_kind_of_number():
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum((y - 1) ** 2))
    limits = {"epsilon": Fraction(1, 10**6), "steps": 50, "outer": 0.2}
    method = bl.schemes.n_q_loop(5, 5, inner_step=0.4, linear_step=0.4)
    run = bl.solve(problem, jnp.ones(1), jnp.ones(1), method, seconds=Decimal(60), **limits)
    (swept,) = bl.sweep(problem, jnp.ones(1), jnp.ones(1), method, **limits).runs
    assert run.status is swept.status is bl.Status.CONVERGED


@pytest.mark.parametrize("wanting", [optax.lbfgs, optax.polyak_sgd])
def test_an_inner_optimizer_that_evaluates_g_itself(wanting):
    method = bl.AID(bl.Optax(wanting(), steps=5), bl.CG(3))
    with pytest.raises(TypeError, match=r"cannot be the inner method.*use bl.NewtonCG\(\)"):
        solve(method=method)
