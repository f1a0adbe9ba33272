"""The theory's promises kept by the library's own runs: every corollary at κ = 2, 5, 10.

The instances have constants known by construction, ρ > 0 and a bounded ∇_y f. A run takes the
corollary's own N, Q, α, η and β; ∇Φ is measured exactly at every iterate. `pytest -rA` prints how
loose each bound is, and whether the check is vacuous because β is so small that x hardly moves.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import biloop as bl
from biloop.problems import log_cosh
from biloop.theory import (
    Start,
    corollary1,
    corollary2,
    corollary3,
    corollary4,
    corollary5,
    corollary6,
)

from .helpers import stepped

EPS = 1e-2
K = 300


# Loop sizes as arrays: one compiled program for all corollaries of a theorem.
def inner(certificate):
    return bl.GradientDescent(step_size=certificate.alpha, steps=jnp.asarray(certificate.N))


def aid(certificate, warm_start_v):
    linear = bl.Richardson(step_size=certificate.eta, steps=jnp.asarray(certificate.Q))
    return bl.AID(inner(certificate), linear, warm_start_v=warm_start_v)


def itd(certificate):
    assert certificate.N <= 512
    return bl.ITD(inner(certificate), max_steps=512)


CASES = {
    "Corollary 1, N-loop": (lambda c, s: corollary1(c, s), lambda p: aid(p, True)),
    "Corollary 2, No-loop": (lambda c, s: corollary2(c, s), lambda p: aid(p, True)),
    "Corollary 3, N-Q-loop": (lambda c, s: corollary3(c, s, EPS), lambda p: aid(p, False)),
    "Corollary 4, Q-loop": (lambda c, s: corollary4(c, s, EPS), lambda p: aid(p, False)),
    "Corollary 5, N-N-loop ITD": (lambda c, s: corollary5(c, s, EPS), itd),
    "Corollary 6, No-loop ITD": (lambda c, s: corollary6(c, s), itd),
}
# Where β is so small that ‖∇Φ‖² changes by less than 5 %: the bound is compared with hardly more
# than the first gradient there.
VACUOUS = {
    ("Corollary 1, N-loop", 10.0),
    ("Corollary 2, No-loop", 2.0),
    ("Corollary 2, No-loop", 5.0),
    ("Corollary 2, No-loop", 10.0),
    ("Corollary 4, Q-loop", 10.0),
    ("Corollary 6, No-loop ITD", 10.0),
}


@eqx.filter_jit
def run_and_measure(problem, method, beta, x, y):
    """‖∇Φ(x_k)‖² for k < K along the run of `method`."""
    exact = bl.Exact()

    def outer_step(carry, k):
        x, warm, reference = carry
        gradient, reference, measured = exact(problem, x, reference, k)
        h, warm, info = method(problem, x, warm, k)
        codes = jnp.maximum(measured.result, info.result)
        return (x - beta * h, warm, reference), (jnp.sum(gradient**2), codes)

    start = (x, method.init(problem, x, y), exact.init(problem, x, y))
    _, (squares, codes) = jax.lax.scan(outer_step, start, jnp.arange(K))
    return squares, jnp.max(codes)


@pytest.mark.parametrize(
    "kappa", [2.0, *(pytest.param(kappa, marks=pytest.mark.slow) for kappa in (5.0, 10.0))]
)
# The longest loops run with the slow tests.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name.startswith(("Corollary 5", "Corollary 1", "Corollary 2"))
        else name
        for name in CASES
    ],
)
def test_bound_holds_along_a_run(name, kappa):
    certify, make = CASES[name]
    instance = log_cosh(kappa, seed=1)
    problem, x, y = instance.problem, instance.x0, instance.y0
    exact = bl.Exact()
    _, solved, info = stepped(exact, problem, x, y)
    # Φ ≥ 0, so Φ(x_0) is an upper bound of Φ(x_0) − min Φ.
    start = Start(gap=float(info.value), y_distance=float(jnp.linalg.norm(y - solved.y)))
    certificate = certify(instance.constants, start)
    assert certificate.holds, certificate.broken

    beta = jnp.asarray(certificate.beta)
    squares, worst = run_and_measure(problem, make(certificate), beta, x, y)
    assert int(worst) == 0
    squares = np.asarray(squares)
    lengths = np.arange(1, K + 1)
    means = np.cumsum(squares) / lengths
    bounds = np.array([certificate.bound(int(n)) for n in lengths])
    assert np.all(means <= bounds)

    change = abs(squares[-1] / squares[0] - 1)
    print(
        f"{name}, κ = {kappa:g}: β = {certificate.beta:.1e}, bound / mean ≥ "
        f"{np.min(bounds / means):.3g}, ‖∇Φ‖² changes by {change:.1%}"
        + (": vacuous" if change < 0.05 else "")
    )
    assert (change < 0.05) == ((name, kappa) in VACUOUS)
