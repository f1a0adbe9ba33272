"""What the theorems promise, beside what was measured.

The constants are estimates from a neighbourhood of the start, and the theorems speak of their own
step sizes, which are far smaller than tuned ones: the bound is no statement on the measured run.
"""

from collections.abc import Iterator, Mapping, Sequence

import jax
import numpy as np

from biloop.comparison.measuring import MeasuredRun
from biloop.comparison.payload import CertificatePayload
from biloop.comparison.race import least_of_schemes
from biloop.comparison.terms import PRODUCTS, Point, host_norm
from biloop.comparison.tuning import Tuned
from biloop.estimate import constants
from biloop.methods.reference import Truth
from biloop.problem import Problem
from biloop.theory import SCHEMES, Certificate, Constants, Start

_POINTS = 40


def certificates_of(
    problem: Problem,
    first: Point,
    truth: Truth,
    ranked: Sequence[Tuned],
    runs: Mapping[str, MeasuredRun],
    target: float,
) -> tuple[CertificatePayload, ...]:
    """The bounds of the theory, if its constants can be estimated at all.

    `truth` is what was measured at the first start, `ranked` has all runs from there.
    """
    try:
        found = constants(problem, *first, samples=1, products=PRODUCTS)
    except ValueError:
        return ()
    lowest = min(least_of_schemes(ranked, lambda run: run.value))
    gap = max(float(truth.value[0]) - lowest, 0.0)
    distance = host_norm(jax.tree.map(lambda a, b: a[0] - np.asarray(b), truth.y, first.y))
    return tuple(certify(runs, found.constants, Start(gap, distance), target))


def certify(
    runs: Mapping[str, MeasuredRun], constants: Constants, start: Start, target: float
) -> Iterator[CertificatePayload]:
    """A certificate for each scheme that has a corollary with conditions that can be met.

    `runs` are those of the first seed, by the name of the scheme.
    """
    for name, run in runs.items():
        if name not in SCHEMES:
            continue
        certificate = SCHEMES[name](constants, start, target).certificate
        if certificate is None or not certificate.holds:
            continue
        K, measured = _running_mean(run)
        bound = np.array([certificate.bound(int(n)) for n in K])
        if np.isfinite(bound).all() and np.isfinite(measured).all():
            yield CertificatePayload(
                scheme=name,
                statement=_statement(certificate),
                K=K.tolist(),
                bound=bound.tolist(),
                measured=measured.tolist(),
            )


def _running_mean(run: MeasuredRun) -> tuple[np.ndarray, np.ndarray]:
    """(1/K) Σ_{k<K} ‖∇Φ(x_k)‖² for some K, from the x_k that were measured.

    Between them ‖∇Φ‖² is taken to change geometrically.
    """
    known = np.isfinite(run.norm2) & (run.norm2 > 0)
    k = np.arange(run.steps[-1])
    squares = np.exp(np.interp(k, run.steps[known], np.log(run.norm2[known])))
    means = np.cumsum(squares) / (k + 1)
    K = np.unique(np.geomspace(1, len(k), _POINTS).round().astype(int)) if len(k) else k
    return K, means[K - 1]


def _statement(certificate: Certificate) -> str:
    loops = f"N = {certificate.N}" + ("" if certificate.Q is None else f", Q = {certificate.Q}")
    return (
        f"{certificate.statement} with {loops}, β = {certificate.beta:.2g}; "
        f"L, μ, ρ and M are estimated"
    )
