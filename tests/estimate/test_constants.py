"""Constants of Assumptions 1-4, against problems of known constants; what is refused; the page."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop import estimate, problems, theory
from biloop.estimate.sampling import hessian_change

DOCS = Path(__file__).parents[2] / "docs" / "estimate.md"

INSTANCES = {
    "quadratic": problems.quadratic(10.0, L=3.0),
    "log cosh": problems.log_cosh(5.0, rho=0.3, M=2.0),
    "log cosh, strongly bent": problems.log_cosh(50.0, L=7.0, rho=20.0, M=0.5, seed=3),
    "worst case": problems.worst_case(),
}
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize(
    "name",
    [n if n == "worst case" else pytest.param(n, marks=pytest.mark.slow) for n in INSTANCES],
)
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_change_of_the_hessian_counts_that_of_the_cross_derivative():
    """∇²_y g = 1 everywhere, and ∇_x∇_y g = −cos x changes by sin x."""
    problem = bl.Problem(lambda x, y: 0.5 * y**2 - jnp.sin(x) * y, lambda x, y: y)
    x, y = jnp.asarray(np.pi / 2), jnp.asarray(0.5)
    found = hessian_change(problem, x, y, jnp.asarray(1.0), jax.random.key(0))
    assert 0.9 < float(found) <= 1


@pytest.mark.slow
def test_float32():
    single, double = (problems.log_cosh(5.0, rho=0.3, dtype=d) for d in ("float32", "float64"))
    found, exact = (
        estimate.constants(i.problem, i.x0, i.y0, joint=False, samples=0) for i in (single, double)
    )
    np.testing.assert_allclose(
        [found.L, found.mu, found.M], [exact.L, exact.mu, exact.M], rtol=1e-3
    )
    assert found.rho <= single.constants.rho


# L is that of both functions, at all points, on both sides of zero


def _parabola(x, y, c):
    return 0.5 * (c[0] * x**2 + c[1] * y**2)


def parabolas(a, b, c, d):
    """g = ½(a x² + b y²) and f = ½(c x² + d y²): L is the largest of |a|, b, |c|, |d|."""
    numbers = [[jnp.asarray(float(n)) for n in pair] for pair in ((a, b), (c, d))]
    return bl.Problem(_parabola, _parabola, (numbers[0],), (numbers[1],))


@pytest.mark.parametrize(
    "numbers", [(7, 1, 0, 0), (0, 7, 1, 1), (0, 1, 7, 0), (0, 1, 0, 7), (-7, 1, 0, 3),
                (0, 1, -7, 3), (2, 1, 0, -7)],
)  # fmt: skip
def test_the_largest_curvature_counts_wherever_it_is(numbers):
    found = estimate.constants(parabolas(*numbers), 0.5, 0.5, samples=1)
    assert pytest.approx(7, rel=1e-9) == found.L
    assert found.values.L.lower == pytest.approx(7, rel=1e-9)
    with pytest.raises(ValueError, match=r"L must be finite and at least 7.*got 6"):
        estimate.constants(parabolas(*numbers), 0.5, 0.5, samples=1, L=6.0)


def test_the_largest_of_many_points_counts():
    """g″ = 2 + tanh x grows with x: among random x′ at distance 3 it is larger than at x."""
    problem = bl.Problem(lambda x, y: 0.5 * (2 + jnp.tanh(x)) * y**2, lambda x, y: y)
    here, around = (
        estimate.constants(problem, 0.0, 0.1, joint=False, samples=n, radius=3.0) for n in (0, 6)
    )
    assert pytest.approx(2, rel=1e-6) == here.L == here.mu
    assert pytest.approx(2 + np.tanh(3), rel=1e-6) == around.L
    assert around.mu == pytest.approx(2 - np.tanh(3), rel=1e-6)


def test_rounding_is_no_change_of_the_hessian():
    """∇²g is the identity, but computed from sines and cosines that cancel: ρ is 0, not 10⁻⁸."""

    def inner(x, y):
        return 0.5 * jnp.sum(y**2 * (jnp.sin(y) ** 2 + jnp.cos(y) ** 2))

    problem = bl.Problem(inner, lambda x, y: jnp.sum(y))
    y = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, 40))
    H = jax.jit(jax.hessian(lambda y: inner(0.0, y)))
    assert 0 < float(jnp.max(jnp.abs(H(y) - jnp.eye(40)))) < 1e-14
    for seed in range(3):
        found = hessian_change(problem, jnp.zeros(()), y, jnp.ones(()), jax.random.key(seed))
        assert float(found) == 0


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
    [
        {"samples": -1},
        {"radius": 0.0},
        {"radius": np.nan},
        {"radius": "far"},
        {"steps": 0},
        {"steps": 1e39},
        {"products": 0},
        {"products": None},
    ],
    ids=str,
)
def test_bad_arguments(options):
    (name, value) = next(iter(options.items()))
    instance = INSTANCES["quadratic"]
    with pytest.raises((ValueError, TypeError), match=f"^{name} must be .*, got") as error:
        estimate.constants(instance.problem, instance.x0, instance.y0, **options)
    assert str(value) in str(error.value)


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
