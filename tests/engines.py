"""What `solve` compiles, before it runs: the state of a run, and the engine that moves it on.

What the tests need of the inside of a run to begin one by hand, they have from here.
"""

from biloop.outer import as_outer_step
from biloop.run.engine import Engine
from biloop.run.goal import Goal
from biloop.run.step import Settings, first_state


def begun(problem, method, outer, x, y, v=None):
    """The settings of a run and its first state."""
    settings = Settings(problem, method, as_outer_step(outer))
    return settings, first_state(settings, x, y, v)


def engine_of(settings, state, steps=10):
    return Engine(settings, state, Goal(steps))
