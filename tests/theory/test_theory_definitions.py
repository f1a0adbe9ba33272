"""Every definition against the printed formula in 500 digits, up to κ = 2^16 and ημ = 1e-12."""

import math
from decimal import Decimal, localcontext
from itertools import product

import pytest

from biloop.theory import (
    C_Q,
    Constants,
    Start,
    delta0_theorem1,
    delta0_theorem2,
    delta0_theorem3,
    floor_theorem2,
    floor_theorem3,
    inner_weight,
    lambda_N,
    one_minus_tau_theorem2,
    r,
    tau_theorem2,
    tau_theorem3,
    w_N,
    w_theorem1,
    w_theorem2,
    w_theorem3,
    w_tilde_theorem1,
)
from biloop.theory.powers import (
    decay,
    log1p_minus,
    steps_to_decay,
    weighted_geometric_sum,
)

D = Decimal
ONE = Decimal(1)


class Exact:
    """The printed formulas, written down once more from the paper, in decimal arithmetic."""

    def __init__(self, c: Constants) -> None:
        self.L, self.mu, self.rho, self.M = (D(each) for each in (c.L, c.mu, c.rho, c.M))

    def C_Q(self, eta: D, Q: int) -> D:
        mu, rho, M, x = self.mu, self.rho, self.M, ONE - eta * self.mu
        return (
            Q * x ** (Q - 1) * rho * M * eta / mu
            + (ONE - x**Q * (1 + eta * Q * mu)) / mu**2 * rho * M
            + (ONE - x**Q) * self.L / mu
        )

    def r(self, eta: D, Q: int) -> D:
        return self.C_Q(eta, Q) ** 2 / (self.rho * self.M / self.mu + self.L) ** 2

    def bend(self) -> D:
        return 1 + self.rho**2 * self.M**2 / (self.L**2 * self.mu**2)

    def w1(self, N: int, Q: int, alpha: D, eta: D, lam: D) -> D:
        L, mu = self.L, self.mu
        a, e = ONE - alpha * mu, ONE - eta * mu
        return (1 + 1 / lam) * a**N * self.bend() * L**2 / mu**2 + 4 * (1 + 1 / (eta * mu)) * (
            L**4 / mu**2
        ) * self.bend() * (4 * e ** (2 * Q) / mu**2 + self.r(eta, Q) * a**N * (1 + 1 / lam))

    def w_tilde(self, Q: int, eta: D, lam: D) -> D:
        L, mu, rho, M = self.L, self.mu, self.rho, self.M
        e = ONE - eta * mu
        return (
            e * eta * mu / (3 * lam * self.r(eta, Q) * L**2) * self.bend() * L**2 / mu**2
            + (1 + 1 / (eta * mu))
            * (L**2 + rho**2 * M**2 / mu**2)
            * (16 * e ** (2 * Q) / mu**2 + 4 * e * eta * mu / (3 * lam * L**2))
            * L**2
            / mu**2
        )

    def sensitivity(self, eta: D, Q: int) -> D:
        L, mu, rho, M = self.L, self.mu, self.rho, self.M
        return L**2 + rho**2 * M**2 / mu**2 + 2 * L**2 * self.C_Q(eta, Q) ** 2

    def tau2(self, N: int, Q: int, alpha: D, eta: D, lam: D, beta: D) -> D:
        L, mu = self.L, self.mu
        return (ONE - alpha * mu) ** N * (
            1 + lam + 6 * (1 + 1 / lam) * self.sensitivity(eta, Q) * L**2 * beta**2 / mu**2
        )

    def w2(self, N: int, Q: int, alpha: D, eta: D, lam: D) -> D:
        L, mu = self.L, self.mu
        a = (ONE - alpha * mu) ** N
        return 6 * a * self.sensitivity(eta, Q) * (1 + 1 / lam) * L**2 / mu**2

    def w_N(self, N: int, alpha: D) -> D:
        root = (ONE - alpha * self.mu).sqrt()
        S = (1 - root**N) / (1 - root)
        return alpha * (self.rho + alpha * self.rho * self.L * S) * root ** (N - 2) * S

    def lambda_N(self, N: int, alpha: D) -> D:
        L, mu, M, t = self.L, self.mu, self.M, alpha * self.mu
        top = 4 * M**2 * self.w_N(N, alpha) ** 2 + 4 * (1 - t / 4) * L**2 * (1 + alpha * L * N) ** 2
        return top / (1 - t / 4 - (ONE - alpha * mu) ** N * (1 + t / 2))

    def w3(self, N: int, alpha: D) -> D:
        L, mu, M, t = self.L, self.mu, self.M, alpha * self.mu
        return (1 + 2 / t) * L**2 / mu**2 * (1 - t) ** N * self.lambda_N(
            N, alpha
        ) + 4 * M**2 * self.w_N(N, alpha) ** 2 * L**2 / mu**2


KAPPAS = (1.5, 2.0**6, 2.0**16)
LENGTHS = (1, 2, 3, 17, 1000, 200_000)
# η and α as fractions of 1/L; with κ = 2^16 the smallest product with μ is 1.5e-12
FRACTIONS = (1.0, 0.37, 1e-7)
GRID = list(product(KAPPAS, LENGTHS, FRACTIONS))


def close(value: float, exact: Decimal, rel: float = 1e-11) -> bool:
    return math.isfinite(value) and abs(D(value) - exact) <= D(rel) * abs(exact) + D("1e-300")


def make(kappa: float) -> Constants:
    return Constants(0.983, 0.983 / kappa, 0.7, 1.3)


@pytest.mark.parametrize(("kappa", "n", "fraction"), GRID)
def test_aid_definitions(kappa: float, n: int, fraction: float) -> None:
    c, N, Q, alpha, lam, beta = make(kappa), 3 * n, n, 1.0 / 0.983, 0.3, 1e-3
    eta = fraction / c.L
    with localcontext(prec=500):
        exact = Exact(c)
        A, E, LAM = D(alpha), D(eta), D(lam)
        assert close(C_Q(c, eta, Q), exact.C_Q(E, Q))
        assert close(r(c, eta, Q), exact.r(E, Q))
        assert close(w_theorem1(c, N, Q, alpha, eta, lam), exact.w1(N, Q, A, E, LAM))
        assert close(w_tilde_theorem1(c, Q, eta, lam), exact.w_tilde(Q, E, LAM))
        assert close(w_theorem2(c, N, Q, alpha, eta, lam), exact.w2(N, Q, A, E, LAM))
        tau = exact.tau2(N, Q, A, E, LAM, D(beta))
        assert close(tau_theorem2(c, N, Q, alpha, eta, lam, beta), tau)
        # at β = 0 it is 1 − (1−αμ)^N (1+λ), which with λ = αμ/2 cancels when written as such
        small = alpha * c.mu / 2.0
        contracted = 1 - exact.tau2(N, Q, A, E, D(small), D(0))
        assert close(one_minus_tau_theorem2(c, N, Q, alpha, eta, small, 0.0), contracted)
        floor = 27 * (D(c.L) * D(c.M) / D(c.mu)) ** 2 * (1 - E * D(c.mu)) ** (2 * Q)
        assert close(floor_theorem2(c, Q, eta), floor)
        start = Start(1.0, 0.7)
        delta2 = 3 * exact.sensitivity(E, Q) * (1 - A * D(c.mu)) ** N * D(0.7) ** 2
        assert close(delta0_theorem2(c, N, Q, alpha, eta, start), delta2)
        delta1 = exact.bend() * D(0.7) ** 2 + (3 * D(c.M) + 2 * D(c.L) * D(0.7)) ** 2 / D(c.mu) ** 2
        assert close(delta0_theorem1(c, start), delta1)


@pytest.mark.parametrize(("kappa", "N", "fraction"), GRID)
def test_itd_definitions(kappa: float, N: int, fraction: float) -> None:
    c = make(kappa)
    alpha = fraction / (2.0 * c.L)
    with localcontext(prec=500):
        exact, A = Exact(c), D(alpha)
        shrink = (1 - A * D(c.mu)) ** N
        assert close(w_N(c, N, alpha), exact.w_N(N, A))
        assert close(lambda_N(c, N, alpha), exact.lambda_N(N, A))
        difference = exact.lambda_N(N, A) - 4 * D(c.L) ** 2 * (1 + A * D(c.L) * N) ** 2
        assert close(inner_weight(c, N, alpha), difference)
        assert close(w_theorem3(c, N, alpha), exact.w3(N, A))
        tau = N**2 * shrink + exact.w_N(N, A) ** 2 + exact.lambda_N(N, A) * shrink
        assert close(tau_theorem3(c, N, alpha), tau)
        L, mu, M = D(c.L), D(c.mu), D(c.M)
        floor = 48 * M**2 * L**2 * shrink**2 / (A * mu**3)
        assert close(floor_theorem3(c, N, alpha), floor)
        inner = (exact.lambda_N(N, A) - L**2 * (1 + A * L * N) ** 2) * shrink
        memory = 3 * M**2 * exact.w_N(N, A) ** 2
        delta = (inner + memory) * D(0.7) ** 2 + 3 * (M * L / mu * shrink) ** 2
        assert close(delta0_theorem3(c, N, alpha, Start(1.0, 0.7)), delta)


def test_the_naive_second_term_of_C_Q_vanishes_where_ours_does_not() -> None:
    t, Q = 1e-9, 1
    assert 1.0 - (1.0 - t) ** Q * (1.0 + t * Q) == 0.0
    assert math.isclose(weighted_geometric_sum(t, Q), t * t, rel_tol=1e-14)


def test_C_Q_sum_ends_one_term_earlier_than_printed() -> None:
    # t² Σ_{q=1}^{n} q(1−t)^{q−1} is the printed bracket for n = Q; the proof needs n = Q−1
    t, Q = 0.3, 5
    for n in (Q, Q - 1):
        total = t * t * sum(q * (1 - t) ** (q - 1) for q in range(1, n + 1))
        assert math.isclose(weighted_geometric_sum(t, n), total, rel_tol=1e-14)
    x = 1 - t
    proof = 1 - x**Q - Q * x ** (Q - 1) + Q * x**Q
    assert math.isclose(weighted_geometric_sum(t, Q - 1), proof, rel_tol=1e-13)


@pytest.mark.parametrize(
    "u", [-0.999, -0.5, -0.3, -1e-5, -1e-13, 1e-13, 1e-5, 0.3, 0.999, 1.0, 50.0]
)
def test_log1p_minus(u: float) -> None:
    with localcontext(prec=80):
        exact = (1 + D(u)).ln() - D(u)
        assert close(log1p_minus(u), exact, rel=1e-14)


def test_steps_beyond_the_integers_of_a_float_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 2\\^53 steps"):
        steps_to_decay(1e-150, 0.5)


@pytest.mark.parametrize("t", [1e-12, 1e-3, 0.5, 0.999])
@pytest.mark.parametrize("factor", [0.9, 0.5, 1e-8])
def test_steps_to_decay_is_the_smallest(t: float, factor: float) -> None:
    n = steps_to_decay(t, factor)
    assert decay(t, n) <= factor
    assert n == 1 or decay(t, n - 1) > factor


@pytest.mark.parametrize("t", [0.01, 0.1, 0.5])
def test_steps_to_decay_where_a_power_is_met_exactly(t: float) -> None:
    """Of some of these the quotient of logarithms is rounded beyond the integer that it is."""
    quotients = [math.log(decay(t, n)) / math.log1p(-t) for n in range(1, 60)]
    assert any(math.ceil(q) > n for n, q in enumerate(quotients, start=1))
    assert [steps_to_decay(t, decay(t, n)) for n in range(1, 60)] == [*range(1, 60)]


def test_well_conditioned_limit() -> None:
    # κ = 1 and η = α = 1/L: one step solves both problems
    c = Constants(3.0, 3.0, 0.2, 1.0)
    assert math.isclose(C_Q(c, 1.0 / 3.0, 4), 0.2 / 9.0 + 1.0)
    assert floor_theorem2(c, 1, 1.0 / 3.0) == 0.0
