"""Runs on batches that are killed at any moment: the same bits, keys and tables included."""

import textwrap

import jax
import pytest

import biloop as bl

from ..killing import killed_until_done
from .common import regression
from .test_sampled_runs import same

S = bl.schemes
METHODS = {
    "saba": S.saba((4, 5), 0.1, 0.1, key=jax.random.key(7)),
    "srba": S.srba((4, 5), 0.1, 0.1, period=16, key=3),
    "storm": S.sustain((4, 5), 0.1, 0.1, key=3),
    "stocbio": S.stocbio(bl.Samples(bl.Uniform(4), bl.Uniform(5), 5), 0.1, 0.1, N=3, Q=2),
    "zero sarah": bl.SingleLoop(
        S.soba((4, 5), key=2).samples,
        0.1,
        0.1,
        {"y": bl.Saga(), "v": bl.ZeroSarah(0.3), "x": bl.Recursive(probability=0.2)},
    ),
}


def solve(name, steps, folder=None, every=7):
    problem, x, y = regression()
    return bl.solve(
        problem, x, y, METHODS[name], outer=(0.1, -0.2), steps=steps, checkpoint=folder, every=every
    )


KILLED = textwrap.dedent(
    """
    import sys
    import tests.conftest
    from tests.sampled.test_killed import solve
    print("started", flush=True)
    solve(sys.argv[2], int(sys.argv[3]), sys.argv[1])
    print("finished", flush=True)
    """
)


@pytest.mark.parametrize(
    "name", ["saba", *(pytest.param(n, marks=pytest.mark.slow) for n in list(METHODS)[1:])]
)
def test_sigkill_at_any_moment(name, tmp_path):
    steps = 1500
    killed_until_done(KILLED, tmp_path / "checkpoint.npz", tmp_path, name, steps, kills=2)
    same(solve(name, steps), solve(name, steps, tmp_path))


@pytest.mark.parametrize("name", ["saba", pytest.param("srba", marks=pytest.mark.slow)])
def test_resumed_at_every_step(name, tmp_path):
    """A draw belongs to its number, not to the chunk in which it was compiled."""
    last = 19 if name == "srba" else 9  # the period of SRBA, and beyond
    for steps in range(1, last + 1):
        resumed = solve(name, steps, tmp_path, every=1)
    same(solve(name, last), resumed)
