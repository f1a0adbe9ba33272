"""Extreme eigenvalues from products, against matrices of known spectrum."""

import functools
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from biloop import estimate

from ..test_cost import TICKS, tick

DOCS = Path(__file__).parents[2] / "docs" / "estimate.md"

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


def test_program_does_not_grow_with_the_products():
    s = jnp.linspace(1.0, 2.0, 100)

    def length(products):
        program = jax.make_jaxpr(
            lambda s: estimate.extremes(lambda v: s * v, s, products=products)[:2]
        )(s)
        return len(str(program))

    assert length(60) < 1.05 * length(10)


def test_failure_must_be_a_probability():
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        estimate.extremes(lambda v: v, jnp.ones(3), failure=1.5)


def test_every_random_start_widens_the_bound():
    """All eigenvalues are 1, so that each of ten steps exhausts its start and makes a new one.

    Then all β are the rounding unit, and p(1 + s) = (s/β)¹⁰ reaches 1/r at s = β r^(−1/10), where
    r is what the product of ten components of unit vectors exceeds: c¹⁰ r = e^(−t) for the quantile
    t of a sum of ten exponential variables.
    """
    n, m, failure = 100, 10, 1e-6
    found = estimate.extremes(lambda v: v, jnp.zeros(n), products=m, failure=failure)
    unit = np.finfo(np.float64).eps
    log_c = math.log(2 / math.sqrt(math.pi)) + math.lgamma(n / 2) - math.lgamma((n - 1) / 2)
    beyond = math.exp(log_c + stats.gamma.isf(failure, m) / m)
    rounding = 4 * m + math.sqrt(n)
    assert (float(found.largest.upper) - 1) / unit == pytest.approx(beyond + rounding, rel=0.05)
    assert (1 - float(found.smallest.lower)) / unit == pytest.approx(beyond + rounding, rel=0.05)


def test_documented_brackets():
    text = DOCS.read_text(encoding="utf-8")
    table = re.findall(r"^\| (\D+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.M)
    assert len(table) == 7
    for name, *numbers in table:
        kappa, *expected = map(float, numbers)
        low, high = brackets(matrix(SPECTRA[name](300, kappa)))
        found = low.lower, low.upper, high.lower / kappa, high.upper / kappa
        assert found == pytest.approx(expected, rel=0.05)


def test_the_residual_is_that_of_the_ritz_vector():
    """Of an eigenvalue that lies alone it vanishes long before that of one in a crowd."""
    A = jnp.asarray(matrix(SPECTRA["outlier above"](300, 1e3)))
    found = estimate.extremes(lambda v: A @ v, jnp.zeros(300), products=20)
    assert float(found.largest.residual) < 1e-6
    assert float(found.smallest.residual) > 1e-3
