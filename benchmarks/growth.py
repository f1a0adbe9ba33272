"""How time grows with N, Q and the number of samples, and compile time with N, Q and K.

Data cleaning on random numbers of 50 features and 10 classes, AID and ITD. What is fitted is the
exponent p in seconds per outer step ~ size^p over two decades, from the minimum of alternating
turns. Compile time is what the first call takes beyond the second.

    python benchmarks/growth.py [--turns 5]
"""

import argparse
import time
from collections.abc import Sequence

import jax
import numpy as np

import biloop as bl
from biloop.data import Samples

FEATURES, CLASSES = 50, 10
LOOPS = (10, 30, 100, 300, 1000)
SAMPLES = (2_000, 6_000, 20_000, 60_000, 200_000)
LIMITS = (0.9, 1.05)


def cleaning(samples: int) -> bl.problems.DataCleaning:
    """Random inputs; the labels are those of a random W."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples + 1000, FEATURES)).astype(np.float32)
    labels = np.argmax(X @ rng.normal(size=(FEATURES, CLASSES)), axis=1)
    return bl.problems.data_cleaning(
        Samples(X[1000:], labels[1000:]), Samples(X[:1000], labels[:1000])
    )


def aid(N: int, Q: int) -> bl.AID:
    """AID with steps that are stable here."""
    return bl.schemes.n_q_loop(N, Q, inner_step=0.1, linear_step=0.1)


def seconds(instance: bl.problems.DataCleaning, method: bl.Method, steps: int) -> float:
    """The time of one outer step of `solve`; the first call also compiles."""
    begin = time.perf_counter()
    run = bl.solve(
        instance.problem,
        instance.x0,
        instance.y0,
        method,
        outer=1.0,
        steps=steps,
        progress=False,
        throw=True,
    )
    jax.block_until_ready(run.x)
    return (time.perf_counter() - begin) / steps


def fastest(cases: Sequence[tuple[bl.problems.DataCleaning, bl.Method]], turns: int):
    """The fastest step of each case; a turn is as many steps as take about half a second."""
    counts = []
    for instance, method in cases:
        seconds(instance, method, 1)
        counts.append(max(1, min(200, int(0.5 / seconds(instance, method, 1)))))
    return np.min(
        [[seconds(*case, n) for case, n in zip(cases, counts, strict=True)] for _ in range(turns)],
        axis=0,
    )


def show(name: str, sizes: Sequence[int], times: np.ndarray) -> None:
    """Print the times of one series and the exponent fitted to them."""
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    inside = "" if LIMITS[0] <= exponent <= LIMITS[1] else f"   not in {LIMITS}"
    row = "  ".join(f"{size}: {1e3 * t:.3g} ms" for size, t in zip(sizes, times, strict=True))
    print(f"{name:<24} exponent {exponent:.2f}{inside}   {row}", flush=True)


def compile_times(name: str, cases: Sequence[tuple[str, bl.Method, int]]) -> None:
    """Print how much longer the first run is than the second."""
    instance, row = cleaning(2_000), []
    for label, method, steps in cases:
        jax.clear_caches()
        first = seconds(instance, method, steps) - seconds(instance, method, steps)
        row.append(f"{label}: {steps * first:.2f} s")
    print(f"{name:<24} {'  '.join(row)}", flush=True)


def main() -> None:
    """Print the exponents, then the compile times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    few = cleaning(2_000)
    print("seconds per outer step")
    show("AID, N (Q = 1)", LOOPS, fastest([(few, aid(N, 1)) for N in LOOPS], turns))
    show("AID, Q (N = 1)", LOOPS, fastest([(few, aid(1, Q)) for Q in LOOPS], turns))
    itd = [(few, bl.schemes.n_n_loop(N, inner_step=0.1)) for N in LOOPS]
    show("ITD, N", LOOPS, fastest(itd, turns))
    sized = [(cleaning(n), aid(10, 10)) for n in SAMPLES]
    show("AID, samples", SAMPLES, fastest(sized, turns))

    print("\nseconds to compile")
    compile_times("AID, N = Q", [(str(n), aid(n, n), 2) for n in (10, 100, 1000)])
    compile_times(
        "ITD, N", [(str(n), bl.schemes.n_n_loop(n, inner_step=0.1), 2) for n in (10, 100, 1000)]
    )
    compile_times("AID, K", [(str(k), aid(1, 1), k) for k in (10, 100, 1000)])


if __name__ == "__main__":
    main()
