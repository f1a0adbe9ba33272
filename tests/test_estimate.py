"""Estimates against matrices of known spectrum and problems of known constants."""

import functools
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits

import biloop as bl
from biloop import estimate, problems, theory
from biloop.estimate.sampling import hessian_change
from biloop.oracles import inner_gradient, outer_gradients
from biloop.vectors import norm

from .helpers import logistic_problem, random_quadratic, tree_problem
from .test_cost import TICKS, counting_problem, tick

DOCS = Path(__file__).parent.parent / "docs" / "estimate.md"

SPECTRA = {
    "uniform": lambda n, kappa: np.linspace(1, kappa, n),
    "geometric": lambda n, kappa: np.geomspace(1, kappa, n),
    "clustered": lambda n, kappa: np.where(np.arange(n) < n // 2, 1.0, kappa),
    "outlier above": lambda n, kappa: np.append(np.linspace(1, 1 + kappa / 100, n - 1), kappa),
    "outlier below": lambda n, kappa: np.append(1.0, np.linspace(kappa / 2 + 0.5, kappa, n - 1)),
}
KAPPAS = (1.0, 10.0, 1e3, 1e6)


@functools.cache
def orthogonal(n, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def matrix(spectrum, dtype=np.float64):
    U = orthogonal(len(spectrum))
    A = (U * spectrum) @ U.T
    return ((A + A.T) / 2).astype(dtype)


@functools.partial(jax.jit, static_argnames=("products", "failure"))
def extremes(A, key, products=60, failure=1e-6):
    return estimate.extremes(lambda v: A @ v, A[0], products=products, failure=failure, key=key)


def brackets(A, seed=0, **options):
    """Both brackets, in double precision."""
    found = extremes(jnp.asarray(A), jax.random.key(seed), **options)
    return (estimate.Bracket(*(float(number) for number in end)) for end in found[:2])


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(n, np.float64) for n in (1, 2, 5, 50, 300)] + [(n, np.float32) for n in (5, 50, 300)],
)
def test_brackets_contain_the_extreme_eigenvalues(n, dtype):
    eps = float(np.finfo(dtype).eps)
    for name, spectrum in SPECTRA.items():
        for kappa in KAPPAS:
            eigenvalues = spectrum(n, kappa)[:n]
            A = matrix(eigenvalues, dtype)
            room = 1000 * eps * kappa
            if n <= 50:
                eigenvalues = np.linalg.eigvalsh(A.astype(np.float64))
            mu, L = eigenvalues.min(), eigenvalues.max()
            low, high = brackets(A)
            assert low.lower <= mu <= low.upper, (name, kappa)
            assert high.lower <= L <= high.upper, (name, kappa)
            if n <= 60:
                # The Krylov space is the whole space.
                assert max(low.upper - low.lower, high.upper - high.lower) <= room
                assert abs(low.ritz - mu) <= room
            else:
                # A step size of 1/upper loses little, whatever the spectrum.
                assert high.upper <= 1.02 * L + room
                assert high.lower >= 0.99 * L - room


def test_small_end_is_open_where_sixty_products_cannot_tell():
    """At κ = 10⁶ a smooth spectrum hides its small end, an isolated eigenvalue shows."""
    hidden, _ = brackets(matrix(SPECTRA["geometric"](300, 1e6)))
    assert hidden.upper > 10
    assert hidden.lower < 0
    seen, _ = brackets(matrix(SPECTRA["outlier below"](300, 1e6)))
    assert seen.upper - seen.lower < 1e-6


def test_residual_encloses_an_eigenvalue():
    eigenvalues = SPECTRA["geometric"](300, 1e3)
    for end in brackets(matrix(eigenvalues)):
        assert np.min(np.abs(eigenvalues - end.ritz)) <= end.residual + 1e-10


def test_far_side_fails_no_more_often_than_it_says():
    """An eigenvector that a poor start hides: the fraction of failures over many starts."""
    n, failure, starts = 40, 0.2, 2000
    spectrum = jnp.asarray(np.append(np.linspace(0.9, 1, n - 1), 3.0))

    @jax.jit
    @jax.vmap
    def upper(key):
        found = estimate.extremes(
            lambda v: spectrum * v, spectrum, products=2, failure=failure, key=key
        )
        return found.largest.upper

    failures = np.mean(np.asarray(upper(jax.random.split(jax.random.key(1), starts))) < 3.0)
    assert failures <= failure
    # And it is no idle statement: with a tenth of the room it would be violated.
    assert failures > failure / 100


def test_restarts_in_invariant_subspaces_find_what_the_first_start_missed():
    """Two eigenvalues only: three steps exhaust a start, and float32 leaves noise in its place."""
    for dtype in (np.float32, np.float64):
        spectrum = np.append(np.ones(299), 5.0)
        for end, true in zip(brackets(matrix(spectrum, dtype)), (1, 5), strict=True):
            assert abs(end.ritz - true) < 1e-5
            assert end.upper - end.lower < 5e-3


@given(
    arrays(np.float64, 24, elements=st.floats(-1e3, 1e3, allow_subnormal=False)),
    st.integers(0, 5),
)
def test_brackets_of_any_spectrum(spectrum, seed):
    """Indefinite, repeated, zero: the bracket holds, and does not depend on the basis."""
    low, high = brackets(matrix(spectrum), seed, products=9)
    assert low.lower <= spectrum.min() <= low.upper
    assert high.lower <= spectrum.max() <= high.upper


def test_products_are_counted():
    for n, budget in ((100, 60), (5, 60)):
        spectrum = jnp.linspace(1.0, 2.0, n)
        TICKS.clear()
        found = jax.jit(
            lambda s, budget=budget: estimate.extremes(
                lambda v: tick("product", s * v), s, products=budget
            )
        )(spectrum)
        jax.block_until_ready(found)
        assert TICKS["product"] == int(found.products) == min(n, budget)


def test_step_sizes_cost_sixty_products_and_ten_gradients():
    quadratic = random_quadratic(q=50, p=3)
    problem = counting_problem(quadratic, "reverse")
    TICKS.clear()
    estimate.step_sizes(problem, *quadratic.start())
    jax.effects_barrier()
    assert TICKS["Hessian product"] == 60
    # Each of the two linearisations evaluates the gradient where it is made, unless removed.
    assert 10 <= TICKS["inner gradient"] <= 12


def test_program_does_not_grow_with_the_products():
    s = jnp.linspace(1.0, 2.0, 100)

    def length(products):
        program = jax.make_jaxpr(
            lambda s: estimate.extremes(lambda v: s * v, s, products=products)[:2]
        )(s)
        return len(str(program))

    assert length(60) < 1.05 * length(10)


def test_pytrees():
    problem, x, y = tree_problem()
    found = estimate.step_sizes(problem, x, y)
    flat, unravel = jax.flatten_util.ravel_pytree(y)
    H = jax.jit(jax.hessian(lambda v: problem.inner(x, unravel(v), *problem.inner_data)))(flat)
    eigenvalues = np.linalg.eigvalsh(H)
    assert pytest.approx(eigenvalues[-1], rel=1e-9) == found.L
    assert found.mu == pytest.approx(eigenvalues[0], rel=1e-9)


def million(dtype):
    """Ridge regression of a million parameters on ten samples, and its extreme eigenvalues."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 10**6)).astype(dtype) / 1000
    gram = np.linalg.eigvalsh(X.astype(np.float64) @ X.astype(np.float64).T)

    def inner(x, y, X):
        return 0.5 * jnp.sum((X @ y["w"]) ** 2) + 0.5 * x * jnp.sum(y["w"] ** 2)

    problem = bl.Problem(inner, inner, (X,), (X,))
    x, y = jnp.asarray(0.1, dtype), {"w": jnp.zeros(10**6, dtype)}
    return problem, x, y, 0.1, gram[-1] + 0.1


def test_a_million_parameters():
    problem, x, y, mu, L = million(np.float32)
    found = estimate.step_sizes(problem, x, y, products=15)
    assert L * (1 - 1e-3) <= found.L <= 1.1 * L
    assert found.mu == pytest.approx(mu, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_million_parameters_with_all_products(dtype):
    problem, x, y, mu, L = million(dtype)
    found = estimate.step_sizes(problem, x, y, products=60)
    assert L * (1 - 1e-3) <= found.L <= 1.001 * L
    assert found.mu == pytest.approx(mu, rel=1e-2)


# Step sizes


@functools.cache
def digits_cleaning(dtype=np.float32):
    """Weights σ(x_i) of 300 training digits, three in ten mislabelled, and 200 clean ones."""
    X, labels = load_digits(return_X_y=True)
    X, rng = (X / 16).astype(dtype), np.random.default_rng(0)
    onehot = np.eye(10, dtype=dtype)
    noisy = np.where(rng.uniform(size=300) < 0.3, rng.integers(0, 10, 300), labels[:300])

    def cross_entropy(W, X, T):
        return -jnp.sum(T * jax.nn.log_softmax(X @ W), axis=1)

    def inner(x, W, X, T):
        weighted = jnp.mean(jax.nn.sigmoid(x) * cross_entropy(W, X, T))
        return weighted + 0.005 * jnp.sum(W**2)

    def outer(x, W, X, T):
        return jnp.mean(cross_entropy(W, X, T))

    problem = bl.Problem(
        inner, outer, (X[:300], onehot[noisy]), (X[300:500], onehot[labels[300:500]])
    )
    # A wide start: the softmax is saturated, and its curvature there says nothing of what follows.
    W = rng.normal(size=(64, 10)).astype(dtype)
    return problem, jnp.zeros(300, dtype), jnp.asarray(W)


def quadratic_start(kappa):
    instance = problems.quadratic(kappa)
    return instance.problem, instance.x0, instance.y0


STARTS = {
    "quadratic, κ = 2": (lambda: quadratic_start(2.0), 0.1, 300),
    "quadratic, κ = 30": (lambda: quadratic_start(30.0), 0.01, 300),
    "logistic regression": (logistic_problem, 2.0, 300),
    "digits cleaning": (digits_cleaning, 30.0, 100),
}


@pytest.mark.parametrize("name", STARTS)
def test_step_sizes_lead_to_a_converging_run(name):
    start, outer, steps = STARTS[name]
    problem, x, y = start()
    sizes = estimate.step_sizes(problem, x, y)
    assert all(isinstance(size, float) for size in sizes)
    assert 0 < sizes.mu <= sizes.L
    assert sizes.inner == sizes.linear == pytest.approx(1 / sizes.L, rel=1e-6)
    method = bl.schemes.n_q_loop(20, 20, inner_step=sizes.inner, linear_step=sizes.linear)
    run = bl.solve(problem, x, y, method, outer=outer, steps=steps)
    assert run.status is bl.Status.COMPLETED, run.message
    _, _, f_y = outer_gradients(problem, x, y)
    for column, first in (
        ("inner_residual", norm(inner_gradient(problem, x, y))),
        ("linear_residual", norm(f_y)),
        ("hypergradient_norm", run.trace["hypergradient_norm"][0]),
    ):
        assert run.trace[column][-1] < 0.2 * float(first), column
    assert run.trace["value"][-1] < run.trace["value"][0]


@given(st.floats(1.1, 1e5), st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_step_sizes_are_stable(kappa, L, seed):
    instance = problems.quadratic(kappa, L=L, seed=seed)
    sizes = estimate.step_sizes(instance.problem, instance.x0, instance.y0)
    top = np.linalg.eigvalsh(instance.A)[-1]
    assert 1 / (1.01 * top) <= sizes.inner <= 1 / (top * (1 - 1e-12))


def test_step_sizes_look_beyond_a_flat_start():
    problem, x, W = digits_cleaning()
    L = estimate.step_sizes(problem, x, W).L
    saturated = estimate.step_sizes(problem, x, 100 * W).L
    assert saturated > 1e-2
    assert L > 0.3


# Constants

INSTANCES = {
    "quadratic": problems.quadratic(10.0, L=3.0),
    "log cosh": problems.log_cosh(5.0, rho=0.3, M=2.0),
    "log cosh, strongly bent": problems.log_cosh(50.0, L=7.0, rho=20.0, M=0.5, seed=3),
    "worst case": problems.worst_case(),
}
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("name", INSTANCES)
def test_labels_are_truthful(name):
    """Each value is on the side of the true constant that its label says."""
    instance = INSTANCES[name]
    found = estimate.constants(instance.problem, instance.x0, instance.y0)
    for letter, value in found.values._asdict().items():
        true = getattr(instance.constants, letter)
        assert value.value == getattr(found, letter)
        assert value.lower <= true * ROUNDING, letter
        assert value.upper >= true / ROUNDING, letter
        if value.label in ("exact", "upper bound"):
            assert value.value >= true / ROUNDING, letter
        if value.label in ("exact", "lower bound"):
            assert value.value <= true * ROUNDING, letter
    # Nor are they idle.
    assert pytest.approx(instance.constants.L, rel=0.3) == found.L
    assert found.mu == pytest.approx(instance.constants.mu, rel=0.3)
    assert found.M <= instance.constants.M * ROUNDING
    assert found.rho >= 0.2 * instance.constants.rho
    if instance.constants.rho == 0:
        assert found.rho == 0


def test_quadratics_and_the_worst_case_are_exact():
    instance = INSTANCES["worst case"]
    found = estimate.constants(instance.problem, instance.x0, instance.y0)
    np.testing.assert_allclose(
        [found.L, found.mu, found.rho, found.M],
        [instance.constants.L, instance.constants.mu, 0, instance.constants.M],
        rtol=1e-9,
    )
    quadratic = INSTANCES["quadratic"]
    found = estimate.constants(
        quadratic.problem, quadratic.x0, quadratic.y0, joint=False, rho=0, samples=0
    )
    assert (found.values.L.label, found.values.mu.label) == ("exact", "exact")
    eigenvalues = np.linalg.eigvalsh(quadratic.A)
    assert pytest.approx(eigenvalues[-1], rel=1e-12) == found.L
    assert found.mu == pytest.approx(eigenvalues[0], rel=1e-12)
    y = quadratic.minimiser(np.asarray(quadratic.x0))
    assert pytest.approx(np.linalg.norm(quadratic.D @ (y - quadratic.t)), rel=1e-6) == found.M


def test_constant_hessian_of_many_dimensions_is_bounded_not_exact():
    instance = problems.quadratic(100.0, q=80)
    found = estimate.constants(
        instance.problem, instance.x0, instance.y0, joint=False, rho=0, samples=0, products=20
    )
    L, mu = found.values.L, found.values.mu
    eigenvalues = np.linalg.eigvalsh(instance.A)
    assert (L.label, mu.label) == ("upper bound", "upper bound")
    assert L.lower <= eigenvalues[-1] <= L.upper == L.value
    assert mu.lower <= eigenvalues[0] <= mu.upper == mu.value


def test_what_is_given_is_used_and_checked():
    instance = INSTANCES["log cosh"]
    constants = functools.partial(
        estimate.constants, instance.problem, instance.x0, instance.y0, samples=1
    )
    c = instance.constants
    found = constants(L=c.L, mu=c.mu, rho=c.rho, M=c.M)
    assert found.constants == c
    assert [value.label for value in found.values] == [
        "upper bound",
        "lower bound",
        "upper bound",
        "upper bound",
    ]
    with pytest.raises(ValueError, match=r"mu must be .* at most 0\.2.*, got 0\.5"):
        constants(mu=0.5)
    with pytest.raises(ValueError, match=r"L must be .* got 0\.1"):
        constants(L=0.1)
    with pytest.raises(ValueError, match=r"rho must be .* got 0\.001"):
        constants(rho=0.001)


def test_estimates_are_constants():
    """An estimate goes wherever constants go, and prints as a table."""
    instance = INSTANCES["log cosh"]
    found = estimate.constants(instance.problem, instance.x0, instance.y0)
    assert isinstance(found, theory.Constants)
    assert found.kappa == found.L / found.mu == found.constants.kappa
    start = theory.Start(1.0, 1.0)
    assert theory.corollary1(found, start).bound(10) == theory.corollary1(
        found.constants, start
    ).bound(10)
    lines = repr(found).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["L", "mu", "rho", "M", "kappa"]
    assert all(len(line) < 120 for line in lines)
    for value, line in zip(found.values, lines[1:5], strict=True):
        assert f"{value.value:.4g}" in line
        assert value.label in line
        assert value.source in line


def test_change_of_the_hessian_finds_the_steepest_direction():
    """g = Σ_i c_i log cosh y_i has ρ = (4/√27) max c_i; the direction is one of many."""
    c = jnp.asarray(np.append(np.full(99, 0.1), 1.0))
    problem = bl.Problem(
        lambda x, y, c: jnp.sum(c[0] * jnp.log(jnp.cosh(y))) + x**2, lambda x, y: x, ((c,),)
    )
    y = jnp.full(100, float(np.arctanh(1 / np.sqrt(3))))
    found = hessian_change(problem, jnp.asarray(0.0), y, jnp.asarray(1.0), jax.random.key(0))
    assert 0.9 < float(found) / (4 / np.sqrt(27)) <= 1


def test_float32():
    single, double = (problems.log_cosh(5.0, rho=0.3, dtype=d) for d in ("float32", "float64"))
    found, exact = (
        estimate.constants(i.problem, i.x0, i.y0, joint=False, samples=0) for i in (single, double)
    )
    np.testing.assert_allclose(
        [found.L, found.mu, found.M], [exact.L, exact.mu, exact.M], rtol=1e-3
    )
    assert found.rho <= single.constants.rho


# Failure


def diagonal(*eigenvalues):
    """g(x, y) = ½ Σ x_i y_i², with these eigenvalues of ∇²_y g."""
    return DIAGONAL, jnp.asarray(eigenvalues), jnp.zeros(3)


DIAGONAL = bl.Problem(lambda x, y: 0.5 * jnp.sum(x * y**2), lambda x, y: jnp.sum(y))
FAILURES = {
    "indefinite": ((2.0, 1.0, -3.0), r"of at most -3: g\(x, ·\) is not convex.*c > 3"),
    "not finite": ((2.0, 1.0, np.nan), r"not finite at these x and y.*nan.*inner_data"),
    "zero": ((0.0, 0.0, 0.0), r"is zero.*linear"),
}


@pytest.mark.parametrize(
    "function",
    [estimate.step_sizes, functools.partial(estimate.constants, products=30)],
    ids=["step sizes", "constants"],
)
@pytest.mark.parametrize("name", FAILURES)
def test_what_no_loop_can_work_with_is_refused(name, function):
    eigenvalues, message = FAILURES[name]
    with pytest.raises(ValueError, match=message):
        function(*diagonal(*eigenvalues))


def test_inside_jit_nothing_is_raised():
    step_sizes = eqx.filter_jit(estimate.step_sizes)
    good = diagonal(2.0, 1.0, 3.0)
    np.testing.assert_allclose(step_sizes(*good), estimate.step_sizes(*good), rtol=1e-12)
    assert np.isnan(step_sizes(*diagonal(2.0, 1.0, np.nan)).inner)


def test_samples_that_leave_the_domain_are_refused():
    problem = bl.Problem(lambda x, y: 0.5 * jnp.exp(800 * x**2) * y**2 - y, lambda x, y: y)
    with pytest.raises(ValueError, match=r"distance of 1 from x.*Give a smaller radius"):
        estimate.constants(problem, 0.0, 0.0, joint=False, samples=1)


def test_singular_hessian_needs_a_given_mu():
    problem, x, y = diagonal(2.0, 1.0, 0.0)
    with pytest.raises(ValueError, match=r"zero to rounding.*Give mu"):
        estimate.constants(problem, x, y, joint=False, samples=0, products=30)
    assert estimate.step_sizes(problem, x, y).mu < 1e-15


@pytest.mark.parametrize(
    "options",
    [{"samples": -1}, {"radius": 0.0}, {"radius": np.nan}, {"steps": 0}, {"products": 0}],
    ids=str,
)
def test_bad_arguments(options):
    (name, value) = next(iter(options.items()))
    instance = INSTANCES["quadratic"]
    with pytest.raises(ValueError, match=f"{name} must be .*, got {value}"):
        estimate.constants(instance.problem, instance.x0, instance.y0, **options)


def test_failure_must_be_a_probability():
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        estimate.extremes(lambda v: v, jnp.ones(3), failure=1.5)


def test_variables_are_checked():
    instance = INSTANCES["quadratic"]
    with pytest.raises(TypeError, match="y has dtype int"):
        estimate.step_sizes(instance.problem, instance.x0, jnp.zeros(6, int))
    with pytest.raises(ValueError, match="cannot be evaluated"):
        estimate.constants(instance.problem, instance.x0, jnp.zeros(5))


def test_documentation_runs_and_prints_what_it_shows(capsys):
    text = DOCS.read_text(encoding="utf-8")
    names = {}
    for example in re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
        exec(compile(example, str(DOCS), "exec"), names)
    shown = re.search(r"^In double precision this prints\n\n```\n(.*?)^```", text, re.M | re.S)

    def rows(table):
        return [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]

    for printed, expected in zip(rows(capsys.readouterr().out), rows(shown[1]), strict=True):
        assert printed[0] == expected[0]
        assert printed[2:3] == expected[2:3]
        if printed[0] in ("L", "mu", "rho", "M", "kappa"):
            assert float(printed[1]) == pytest.approx(float(expected[1]), rel=0.01)


def test_documented_brackets():
    text = DOCS.read_text(encoding="utf-8")
    table = re.findall(r"^\| (\D+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.M)
    assert len(table) == 7
    for name, *numbers in table:
        kappa, *expected = map(float, numbers)
        low, high = brackets(matrix(SPECTRA[name](300, kappa)))
        found = low.lower, low.upper, high.lower / kappa, high.upper / kappa
        assert found == pytest.approx(expected, rel=0.05)
