"""K(ε), Gc(ε), MV(ε): what each scheme costs until its certificate reaches ε (Definitions 1, 2).

A scheme's own N and Q bring the floor of its bound to ε/2, and K brings the rest to ε/2. Counts
are floats: they pass 2^53, and ∞ says that ε is out of reach.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from biloop.theory.aid_warm_start import corollary1, corollary2
from biloop.theory.aid_zero_start import corollary3, corollary4
from biloop.theory.certificate import Certificate
from biloop.theory.checks import positive
from biloop.theory.constants import Constants, Start
from biloop.theory.itd import corollary5, corollary6


@dataclass(frozen=True)
class Complexity:
    """What a scheme costs to certify (1/K) Σ ‖∇Φ(x_k)‖² ≤ ε.

    N and Q are None where they change with k or do not exist. `certificate` is None for results
    quoted from earlier work, of which the paper gives the order alone: their counts have all
    hidden constants set to one.
    """

    scheme: str
    K: float
    gradients: float
    products: float
    N: int | None
    Q: int | None
    certificate: Certificate | None = None


def aid_complexity(scheme: str, certificate: Certificate, eps: float) -> Complexity:
    """Cost of AID under its certificate.

    Gc = K(N+2),  MV = K(Q+1)

    Proofs of Corollaries 1-4.
    """
    if certificate.Q is None:
        raise ValueError(f"{certificate.statement} has no Q: it is not a statement on AID")
    K, N, Q = certificate.outer_steps(eps), certificate.N, certificate.Q
    return Complexity(scheme, K, K * (N + 2), K * (Q + 1), N, Q, certificate)


def itd_complexity(scheme: str, certificate: Certificate, eps: float) -> Complexity:
    """Cost of ITD under its certificate.

    Gc = K(N+2),  MV = 2KN

    Proof of Corollary 5. The products actually needed are 2N−1 a step: the last Hessian meets no
    vector.
    """
    K, N = certificate.outer_steps(eps), certificate.N
    return Complexity(scheme, K, K * (N + 2), 2.0 * K * N, N, None, certificate)


def n_q_loop(constants: Constants, start: Start, eps: float) -> Complexity:
    """N-Q-loop AID. Corollary 3: K = κ³/ε, Gc = κ⁴/ε, MV = κ⁴/ε."""
    return aid_complexity("N-Q-loop AID", corollary3(constants, start, eps), eps)


def n_loop(constants: Constants, start: Start, eps: float) -> Complexity:
    """N-loop AID, Q = 1. Corollary 1: K = κ⁴/ε, Gc = κ⁵/ε, MV = κ⁴/ε."""
    return aid_complexity("N-loop AID", corollary1(constants, start), eps)


def q_loop(constants: Constants, start: Start, eps: float) -> Complexity:
    """Q-loop AID, N = 1. Corollary 4: K = κ⁵/ε, Gc = κ⁵/ε, MV = κ⁶/ε."""
    return aid_complexity("Q-loop AID", corollary4(constants, start, eps), eps)


def no_loop(constants: Constants, start: Start, eps: float) -> Complexity:
    """No-loop AID, N = Q = 1. Corollary 2: K = κ⁶/ε, Gc = κ⁶/ε, MV = κ⁶/ε."""
    return aid_complexity("No-loop AID", corollary2(constants, start), eps)


def n_n_loop_itd(constants: Constants, start: Start, eps: float) -> Complexity:
    """N-N-loop ITD. Corollary 5: K = κ³/ε, Gc = κ⁴/ε, MV = κ⁴/ε."""
    return itd_complexity("N-N-loop ITD", corollary5(constants, start, eps), eps)


def no_loop_itd(constants: Constants, start: Start, eps: float) -> Complexity:
    """No-loop ITD, N = 1. Corollary 6: ε is out of reach below its floor of order κ³."""
    return itd_complexity("No-loop ITD", corollary6(constants, start), eps)


def ba(constants: Constants, start: Start, eps: float) -> Complexity:
    """BA of Ghadimi and Wang, as quoted in Table 1: MV = κ⁵/ε, Gc = κ⁵/ε^1.25.

    K = κ⁴/ε,  N_k = ⌈(k+1)^¼/2⌉,  Q = κ ln κ,  Gc = Σ_{k<K} (N_k + 2),  MV = K(Q+1)

    Table 1. K is not printed; it is what MV = K(Q+1) and Gc ~ K^{5/4} both imply.
    """
    K = math.ceil(constants.kappa**4 / positive("eps", eps))
    Q = _k_ln_k(constants.kappa)
    return Complexity("BA", float(K), float(ba_inner_steps(K) + 2 * K), float(K * (Q + 1)), None, Q)


def ba_inner_steps(K: int) -> int:
    """Exact number of inner steps of BA in K outer steps.

    Σ_{k=0}^{K−1} ⌈(k+1)^¼/2⌉ = Σ_{n=1}^{n_max} (K − (2(n−1))⁴) = n_max K − 16 Σ_{m<n_max} m⁴

    Table 1: N_k ≥ n exactly for the k with k + 1 > (2(n−1))⁴.
    """
    # ⌈K^¼/2⌉ in integers: the floating-point root is off by one near fourth powers
    n = max(1, math.isqrt(math.isqrt(K - 1)) // 2 + 1) if K > 1 else 1
    m = n - 1
    fourth_powers = m * (m + 1) * (2 * m + 1) * (3 * m * m + 3 * m - 1) // 30
    return n * K - 16 * fourth_powers


def aid_bio(constants: Constants, start: Start, eps: float) -> Complexity:
    """AID-BiO of Ji, Yang and Liang, as quoted in Table 1: N = Q = κ ln κ, MV = Gc = κ⁴/ε.

    K = κ³/ε,  Gc = K(N+2),  MV = K(Q+1)
    """
    K, N = _cubic(constants, eps), _k_ln_k(constants.kappa)
    return Complexity("AID-BiO", K, K * (N + 2), K * (N + 1), N, N)


def itd_bio(constants: Constants, start: Start, eps: float) -> Complexity:
    """ITD-BiO of Ji, Yang and Liang, as quoted in Table 2: N = κ ln κ, MV = Gc = κ⁴/ε.

    K = κ³/ε,  Gc = K(N+2),  MV = 2KN
    """
    K, N = _cubic(constants, eps), _k_ln_k(constants.kappa)
    return Complexity("ITD-BiO", K, K * (N + 2), 2.0 * K * N, N, None)


def _cubic(constants: Constants, eps: float) -> float:
    return float(math.ceil(constants.kappa**3 / positive("eps", eps)))


def _k_ln_k(kappa: float) -> int:
    return max(1, math.ceil(kappa * math.log(kappa)))


SCHEMES: Mapping[str, Callable[[Constants, Start, float], Complexity]] = MappingProxyType(
    {
        "BA": ba,
        "AID-BiO": aid_bio,
        "N-Q-loop AID": n_q_loop,
        "Q-loop AID": q_loop,
        "N-loop AID": n_loop,
        "No-loop AID": no_loop,
        "ITD-BiO": itd_bio,
        "N-N-loop ITD": n_n_loop_itd,
        "No-loop ITD": no_loop_itd,
    }
)
