"""How runs of a comparison end, where hills of a search are, and with which steps it begins."""

import jax.numpy as jnp
import pytest

import biloop as bl
from biloop.comparison.loop_steps import first_steps
from biloop.comparison.measuring import WORST, Score
from biloop.comparison.starts import Point
from biloop.comparison.tuning import tops

from .comparing import AIM, made_up


@pytest.mark.parametrize(
    ("halfway", "ending"),
    [(0.3, "floored"), (0.36, "budget spent")],  # 0.28 is more than four fifths of 0.3
)
def test_a_floor_is_where_the_second_half_of_the_budget_brings_less_than_a_fifth(halfway, ending):
    run = made_up(10, [1.0, 0.95, 0.9, 0.9, halfway, 0.29, 0.29, 0.29, 0.28])
    assert run.ending(AIM) == ending


def test_neighbours_that_are_as_good_are_both_on_a_hill():
    better, worse = Score(10.0, 0.0, 0.1), Score(20.0, 0.0, 0.1)
    assert sorted(tops({1.0: worse, 2.0: better, 3.0: better, 4.0: worse})) == [2.0, 3.0]
    assert tops({1.0: better, 2.0: worse, 3.0: WORST}) == [1.0]
    assert tops({1.0: WORST, 2.0: WORST}) == []


def test_step_sizes_are_stable_at_the_start_and_where_y_is_going():
    """½y² + y⁴: the curvature 1 + 12y² is 109 at 3, and 1 at y*(0) = 0."""
    problem = bl.Problem(
        lambda x, y: jnp.sum(0.5 * y**2 + y**4) + x * jnp.sum(y), lambda x, y: jnp.sum(y)
    )
    first = Point(jnp.asarray(0.0), jnp.asarray([3.0]))
    steps = first_steps(problem, first, jnp.zeros(1), None, 0.5)
    assert steps[:2] == (pytest.approx(1 / 109, rel=0.01), 0.5)
