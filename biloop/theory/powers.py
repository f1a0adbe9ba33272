"""The powers (1 − t)^n of the theory and their complements, without overflow or cancellation.

t is a step size times μ: it may be 1e-12, and n may be millions, so that `1 - (1 - t)**n` as
written would keep few digits or none.
"""

import math


def log_decay(t: float, n: float) -> float:
    """n ln(1 − t), with −∞ for t = 1."""
    if n == 0:
        return 0.0
    return n * math.log1p(-t) if t < 1.0 else -math.inf


def decay(t: float, n: float) -> float:
    """(1 − t)^n."""
    return math.exp(log_decay(t, n))


def decay_complement(t: float, n: float) -> float:
    """1 − (1 − t)^n."""
    return -math.expm1(log_decay(t, n))


def decay_complement_with_factor(t: float, n: float, growth: float) -> float:
    """1 − (1 − t)^n (1 + growth)."""
    return -math.expm1(log_decay(t, n) + math.log1p(growth))


def one_minus_sqrt_one_minus(t: float) -> float:
    """1 − √(1 − t), written t / (1 + √(1 − t)), which does not cancel."""
    return t / (1.0 + math.sqrt(1.0 - t))


def weighted_geometric_sum(t: float, n: int) -> float:
    """1 − (1 − t)^n (1 + n t) = t² Σ_{q=1}^{n} q (1 − t)^{q−1}.

    ln of the product is n (ln(1 − t) + t) + (ln(1 + n t) − n t): both brackets are negative, so
    that nothing cancels between them, whereas the product itself is 1 − O(n² t²) and loses every
    digit for n t < 1e-8.
    """
    if t >= 1.0:
        return 1.0 if n > 0 else 0.0
    return -math.expm1(n * log1p_minus(-t) + log1p_minus(n * t))


def log1p_minus(u: float) -> float:
    """ln(1 + u) − u, to full relative accuracy.

    With s = u/(2 + u): ln(1 + u) = 2 artanh s, so ln(1 + u) − u = −u s + 2 (s³/3 + s⁵/5 + ...).
    """
    if not -0.5 < u < 1.0:
        return math.log1p(u) - u
    s = u / (2.0 + u)
    # |s| ≤ 1/3, so that 18 terms reach 3^-37 of the first
    tail = math.fsum(s ** (2 * j + 1) / (2 * j + 1) for j in range(1, 19))
    return 2.0 * tail - u * s


def steps_to_decay(t: float, factor: float) -> int:
    """Smallest n ≥ 1 with (1 − t)^n ≤ factor, as evaluated by `decay`."""
    if factor <= 0.0:
        if t < 1.0:
            raise ValueError(f"no power of 1 - t = {1.0 - t!r} is <= {factor!r}")
        return 1
    if t >= 1.0 or factor >= 1.0:
        return 1
    quotient = math.log(factor) / math.log1p(-t)
    if quotient > 2**53:  # n and n − 1 are the same number then
        raise ValueError(f"it takes more than 2^53 steps until (1 - {t!r})^n <= {factor!r}")
    n = max(1, math.ceil(quotient))
    # the quotient is rounded: settle on the n that the inequality itself accepts
    while n > 1 and decay(t, n - 1) <= factor:
        n -= 1
    while decay(t, n) > factor:
        n += 1
    return n
