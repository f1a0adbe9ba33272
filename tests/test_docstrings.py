"""What users call says what it takes, and shows it: the examples of docstrings are run."""

import contextlib
import doctest
import inspect
import re

import jax
import pytest

import biloop as bl
import biloop.sklearn

from .documents import ROOT, blocks, difference

ROOMS = {
    "bl": bl,
    "schemes": bl.schemes,
    "estimate": bl.estimate,
    "problems": bl.problems,
    "schedules": bl.schedules,
    "prox": bl.prox,
    "data": bl.data,
    "sklearn": biloop.sklearn,
}

# What a user is given, or writes a class of, but does not call.
GIVEN = {
    "bl": "Cost SampleCount SolutionMap LoopInfo Info Residuals Response Run Best Progress Trace "
    "Status RunFailed Sweep Comparison",
    "schemes": "Scheme",
    "estimate": "Estimate Value Values StepSizes Extremes Bracket",
    "problems": "Entry Loaded WorstCase Quadratic RobustQuadratic LogCosh Ridge Logistic "
    "SoftmaxRidge DataCleaning Mixture Distillation HyperRepresentation HyperNetwork KFold",
    "schedules": "Count step_count number_at is_first as_number as_weight as_steps as_tolerance "
    "as_count number positive is_concrete",  # of the loops, not of users
    "data": "Samples Split Speech TorchNormal SowDraws",
}
FROM_FILES = {"data.mnist", "data.fashion_mnist", "data.ijcnn1", "data.speeches"}
HIDDEN = {"bl.Problem": {"is_equilibrium", "windows"}}  # set by `fixed_point` and by streams
ITEM = re.compile(r"^(\w[\w, *]*?)(?: :|$)", re.MULTILINE)


def called():
    for room, module in ROOMS.items():
        for name in module.__all__:
            thing = getattr(module, name)
            is_given = name in GIVEN.get(room, "").split() or inspect.isabstract(thing)
            if callable(thing) and not is_given:
                yield f"{room}.{name}", thing


CALLED = dict(called())


def section(thing, title):
    """What stands below a title, up to the next."""
    text = inspect.getdoc(thing) or ""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def undocumented(name, thing):
    """Parameters that the docstring does not name, and the example if there is none."""
    items = ITEM.findall(section(thing, "Parameters"))
    named = {word for item in items for word in item.split(", ")}
    wanted = set(inspect.signature(thing).parameters) - HIDDEN.get(name, set())
    missing = sorted(wanted - {word.lstrip("*") for word in named})
    return missing + ["an example"] * (">>>" not in section(thing, "Examples"))


@pytest.mark.parametrize("name", CALLED)
def test_parameters_and_an_example(name):
    missing = undocumented(name, CALLED[name])
    assert missing == (["an example"] if name in FROM_FILES else [])


def test_what_is_given_is_there():
    """No name above is of something that has gone."""
    for room, names in GIVEN.items():
        assert set(names.split()) <= set(ROOMS[room].__all__)


# --- examples -----------------------------------------------------------------------------------

(BEFORE,) = blocks((ROOT / "docs/reference/api.md").read_text(encoding="utf-8"))
EXAMPLES = doctest.DocTestParser()


class Checker(doctest.OutputChecker):
    """As in documents: the last digit of a number may differ by one, … is anything."""

    def check_output(self, want, got, optionflags):
        return not difference(want, got)


@pytest.fixture(scope="module")
def before():
    with as_users_have_it():
        names = {}
        exec(BEFORE.code, names)
        return names


def as_users_have_it():
    """JAX without the strictness of these tests."""
    stack = contextlib.ExitStack()
    stack.enter_context(jax.enable_x64(False))
    stack.enter_context(jax.numpy_rank_promotion("allow"))
    stack.enter_context(jax.numpy_dtype_promotion("standard"))
    return stack


LONG = {"bl.compare", "bl.Stream", "bl.SampledAID", "estimate.constants", "problems.k_fold"}


def is_long(name):
    return name in LONG or name.startswith("sklearn.") or is_drawn(name)


def is_drawn(name):
    """The runs of sampled schemes take a second or two to compile, each."""
    takes = inspect.signature(CALLED[name]).parameters
    return name.startswith("schemes.") and "batch" in takes and name != "schemes.auto"


def examples(name):
    return EXAMPLES.get_examples(inspect.getdoc(CALLED[name]) or "")


def run(name, shown, names):
    test = doctest.DocTest(shown, dict(names), name, None, None, None)
    told = []
    with as_users_have_it():
        doctest.DocTestRunner(Checker(), verbose=False).run(test, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if is_long(name) else [])
        for name in CALLED
        if name not in FROM_FILES
    ],
)
def test_examples_run(name, before):
    run(name, examples(name), before)


@pytest.mark.parametrize("name", [name for name in CALLED if is_drawn(name)])
def test_sampled_schemes_are_made_as_shown(name, before):
    """The first line of the examples that are run among the slow tests."""
    run(name, examples(name)[:1], before)


def test_what_is_missing_is_seen(before):
    """The checks above can fail: on a parameter without a word, and on a wrong number."""

    def half(x, y):
        """Half.

        Parameters
        ----------
        x : number

        Examples
        --------
        >>> 1 / 2
        0.7
        """

    assert undocumented("half", half) == ["y"]
    assert undocumented("half", lambda z: z) == ["z", "an example"]
    with pytest.raises(AssertionError, match=r"0\.7"):
        run("half", EXAMPLES.get_examples(inspect.getdoc(half)), before)
