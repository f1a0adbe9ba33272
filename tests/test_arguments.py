"""Arguments: whatever is given either works or gets a sentence that names the argument."""

import inspect
import math
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import biloop as bl
from biloop import schedules
from biloop.schedules import arguments


class Incomparable:
    """What knows no order, and says so as Python does."""

    def __lt__(self, other):
        raise TypeError("'<' not supported")

    __gt__ = __le__ = __ge__ = __lt__


class Mute:
    """What has no repr and is no array."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __array__(self, *_, **__):
        raise RuntimeError("no array")


def out_of_reach(k):
    raise KeyError(k)


NONSENSE = [
    "three",
    "",
    b"3",
    None,
    True,
    np.bool_(False),
    1j,
    np.complex128(2),
    jnp.asarray(1j),
    float("nan"),
    float("inf"),
    -float("inf"),
    np.float32("nan"),
    jnp.asarray(jnp.nan),
    -1,
    -0.5,
    0,
    1e39,
    1e300,
    2**31,
    2**40,
    2**63,
    2**64 + 3,
    10**400,
    10**5000,
    np.array(2**32 + 3),
    np.uint64(2**64 - 1),
    np.array([1.0, 2.0]),
    np.zeros((0,)),
    np.array("three"),
    np.array([None, 3], dtype=object),
    np.datetime64("2020-01-01"),
    jnp.arange(3),
    jnp.zeros((1, 1)),
    jax.random.key(0),
    [1.0],
    [],
    (3,),
    {},
    {"a": 1},
    {1, 2},
    range(3),
    object(),
    Incomparable(),
    Mute(),
    Fraction(-1, 3),
    Decimal("NaN"),
    print,
    out_of_reach,
    lambda k: "three",
    lambda k: jnp.zeros(3),
    lambda k: k > 3,
    lambda k: None,
    lambda: 3,
    int,
    bl.Adaptive,
    bl.Problem,
    np,
    optax.adam,
    slice(3),
    Ellipsis,
]
ANY = st.sampled_from(NONSENSE) | st.floats() | st.integers() | st.integers(-(2**70), 2**70)

# A constructor, arguments with which it works, and those of them that are replaced by nonsense.
CONSTRUCTORS = {
    bl.GradientDescent: ({"step_size": 0.1, "steps": 3}, ["steps", "tolerance"]),
    bl.Nesterov: ({"step_size": 0.1, "momentum": 0.5, "steps": 3}, ["step_size", "steps"]),
    bl.HeavyBall: ({"step_size": 0.1, "momentum": 0.5, "steps": 3}, ["step_size", "steps"]),
    bl.Optax: ({"transformation": optax.adam(0.1), "steps": 3}, ["steps", "tolerance"]),
    bl.Richardson: ({"step_size": 0.1, "steps": 3}, ["steps", "tolerance"]),
    bl.CG: ({"steps": 3}, ["steps", "tolerance"]),
    bl.Chebyshev: ({"L": 2.0, "mu": 1.0, "steps": 3}, ["L", "mu", "steps", "tolerance"]),
    bl.Neumann: ({"step_size": 0.1, "steps": 3}, ["step_size", "steps", "tolerance"]),
    bl.GradientStep: ({"step_size": 0.1}, ["step_size"]),
    bl.Adaptive: ({}, ["share", "most"]),
    bl.Box: ({"lower": 0.0, "upper": 1.0}, ["lower", "upper"]),
    bl.Ball: ({"radius": 1.0}, ["radius", "center"]),
    schedules.Fixed: ({"value": 3}, ["value"]),
    schedules.Constant: ({"value": 3}, ["value"]),
    schedules.Power: ({"scale": 1.0, "power": 0.5}, ["scale", "power"]),
    schedules.Geometric: ({"scale": 1.0, "ratio": 0.5}, ["scale", "ratio"]),
    schedules.Function: ({"function": lambda k: k}, ["function"]),
}
PLACES = [
    pytest.param(make, arguments, name, id=f"{make.__name__}({name}=…)")
    for make, (arguments, names) in CONSTRUCTORS.items()
    for name in names
]


def outcome(make, given, name, value):
    """What is made; or None if the argument was refused in a sentence that names it."""
    try:
        return make(**{**given, name: value})
    except (TypeError, ValueError) as error:
        sentence = str(error)
        named = name.replace("_", " ") in sentence or name in sentence
        assert named, f"{name} is not named: {sentence}"
        assert "not supported" not in sentence
        assert "\n" not in sentence
        assert len(sentence) < 400
        assert sentence.endswith((".", ")")) or "raises" in sentence
        return None


@pytest.mark.parametrize(("make", "given", "name"), PLACES)
def test_nonsense_works_or_is_refused_by_name(make, given, name):
    for value in NONSENSE:
        outcome(make, given, name, value)


SCHEMES = [make for _, make in inspect.getmembers(bl.schemes, inspect.isfunction)]
GIVEN = {"inner_step": 0.1, "linear_step": 0.1, "mu": 0.5, "N": 3, "Q": 3}
OTHERS = {  # constructors that take no schedule
    bl.prox.L1: {"strength": 0.1},
    bl.prox.Box: {"lower": 0.0, "upper": 1.0},
    bl.Diagonal: {"values": jnp.ones(3)},
    bl.OneStep: {"inner": bl.GradientDescent(0.1, 3), "step_size": 0.1},
    bl.NormalEquations: {"cg": bl.CG(3)},
    bl.Growing: {"method": bl.schemes.auto(), "batch": 3},
}
MOST_NONSENSE = ["three", None, 1j, float("nan"), -1, 10**400, jax.random.key(0), [1.0], Mute()]


@pytest.mark.parametrize("make", [*SCHEMES, *OTHERS], ids=lambda make: make.__name__)
def test_schemes_refuse_by_the_names_that_they_have(make):
    """Not by those of the parts that they are made of, and not in the words of Python."""
    names = list(inspect.signature(make).parameters)
    works = OTHERS.get(make) or {name: GIVEN[name] for name in names if name in GIVEN}
    if make is not bl.schemes.loop_size:
        make(**works)
    for name in names:
        for value in MOST_NONSENSE:
            outcome(make, works, name, value)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (bl.Optax, "carry_state", "three"),
        (bl.OneStep, "derivatives", "three"),
        (bl.schemes.auto, "key", "three"),
        (bl.prox.L1, "strength", 1j),
        (bl.schemes.soba, "key", 10**400),
    ],
)
def test_nothing_is_taken_and_never_looked_at(make, name, value):
    given = {**CONSTRUCTORS.get(make, ({}, []))[0], **OTHERS.get(make, {})}
    with pytest.raises((TypeError, ValueError), match=name):
        make(**{**given, name: value})


@settings(max_examples=300)
@given(place=st.sampled_from(PLACES), value=ANY)
def test_any_number_works_or_is_refused_by_name(place, value):
    make, given, name = place.values
    made = outcome(make, given, name, value)
    if made is not None and isinstance(value, float | int) and not isinstance(value, bool):
        # Accepted is what was given, not what is left of it after a cast.
        for leaf in jax.tree.leaves(made):
            assert not bool(jnp.any(jnp.isnan(leaf)))


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
def test_both_precisions_refuse_alike(single):
    with jax.enable_x64(not single):
        for value in (1j, "a", None, True, float("nan"), -1.0, 10**400, [1.0], Mute()):
            with pytest.raises((TypeError, ValueError), match="radius must be"):
                bl.Ball(value)
        with pytest.raises(ValueError, match=r"steps must be at most 10000000, got 4294967299\."):
            bl.CG(np.array(2**32 + 3))


# The converters


@pytest.mark.parametrize("bad", [-1, 0, jnp.asarray(0), np.int64(-3)])
def test_too_few_steps_are_refused(bad):
    with pytest.raises(ValueError, match="steps must be an integer of at least 1, got"):
        schedules.as_steps(minimum=1)(bad)


@pytest.mark.parametrize("bad", ["three", 1.5, None, True, 1j, [3], np.array([3.0])])
def test_steps_that_are_no_integers_are_refused(bad):
    with pytest.raises(TypeError, match='steps must be an integer, "auto" or a schedule'):
        schedules.as_steps(minimum=1)(bad)


@pytest.mark.parametrize(
    "big", [2**40, 10**7 + 1, np.array(2**32 + 3), np.uint64(2**63), jnp.asarray(2**31 - 1)]
)
def test_steps_that_nothing_could_interrupt_are_refused(big):
    with pytest.raises(
        ValueError, match=f"steps must be at most 10000000, got {int(big)}.*more outer"
    ):
        schedules.as_steps(minimum=1)(big)


def test_the_largest_number_of_steps_is_taken():
    assert schedules.as_steps(minimum=1)(10**7)(0) == 10**7
    assert int(schedules.as_steps(minimum=1)(jnp.asarray(10**7))(0)) == 10**7
    assert schedules.Adaptive(most=10**7)(0) == 10**7


@pytest.mark.parametrize(
    "make",
    [
        lambda n: schedules.Adaptive(most=n),
        lambda n: bl.RandomNeumann(0.1, n),
        lambda n: bl.schemes.vrbo(N=n),
        lambda n: bl.schemes.q_loop(Q=n, inner_step=0.1, linear_step=0.1),
    ],
)
def test_no_loop_of_any_kind_is_endless(make):
    with pytest.raises(ValueError, match="must be at most 10000000, got 1000000000"):
        make(10**9)


def test_steps_and_tolerances_in_compiled_code_cannot_be_looked_at():
    made = jax.jit(lambda n, t: bl.CG(n, t))(jnp.asarray(0), jnp.asarray(-1.0))
    assert int(made.steps(0)) == 0
    assert float(made.tolerance(0)) == -1


@pytest.mark.parametrize("bad", [1j, np.array(1j), "1e-3", True, [1e-3], np.array([0.1])])
def test_tolerances_that_are_no_numbers_are_refused(bad):
    with pytest.raises(TypeError, match="tolerance must be a"):
        schedules.as_tolerance(bad)


@pytest.mark.parametrize("bad", [-1e-3, float("nan"), float("inf"), 10**400])
def test_tolerances_that_mean_nothing_are_refused(bad):
    with pytest.raises(ValueError, match="tolerance must be finite"):
        schedules.as_tolerance(bad)


def test_a_schedule_that_cannot_be_traced_is_refused_where_it_is_given():
    with pytest.raises(TypeError, match=r"steps must be a schedule .* raises KeyError"):
        bl.CG(out_of_reach)
    with pytest.raises(TypeError, match=r"tolerance must be .* one real number .* \(3,\)"):
        bl.CG(3, lambda k: jnp.zeros(3))
    assert float(bl.CG(3, lambda k: 0.5 / (k + 1)).tolerance(jnp.asarray(1))) == 0.25


@pytest.mark.parametrize("name", ["steps", "every", "budget"])
def test_numbers_of_outer_steps_that_nothing_counts_are_refused(name):
    problem = bl.Problem(lambda x, y: jnp.sum((y - x) ** 2), lambda x, y: jnp.sum(y**2))
    method = bl.schemes.no_loop(inner_step=0.1, linear_step=0.1)
    given = {"outer": 0.1, "steps": 2, name: 10**400}
    with pytest.raises(ValueError, match=rf"{name} must be below 2⁶³, got 1000\d*…"):
        bl.solve(problem, jnp.ones(2), jnp.zeros(2), method, **given)


def test_counts():
    convert = arguments.as_count("room", 2, maximum=9)
    assert [convert(value) for value in (2, np.int8(5), 9)] == [2, 5, 9]
    assert all(type(convert(value)) is int for value in (2, np.int8(5)))
    for bad in (1, -5, np.int64(0)):
        with pytest.raises(ValueError, match=f"room must be an integer of at least 2, got .*{bad}"):
            convert(bad)
    with pytest.raises(ValueError, match="room must be at most 9, got 10"):
        convert(10)
    for bad in (None, float("nan"), 1e39, 2.0, np.array(3), jnp.asarray(3), True, "3", Mute()):
        with pytest.raises(TypeError, match="room must be an integer of at least 2, got"):
            convert(bad)
    optional = arguments.as_count("room", optional=True)
    assert optional(None) is None
    with pytest.raises(TypeError, match="room must be an integer of at least 1 or None, got 'a'"):
        optional("a")


def test_flags_and_words():
    assert arguments.as_flag("warm")(np.bool_(True)) is True
    for bad in (1, None, "yes", np.array([True]), jnp.asarray(True)):
        with pytest.raises(TypeError, match="warm must be True or False, got"):
            arguments.as_flag("warm")(bad)
    assert arguments.one_of("kind", ("a", "b"))("b") == "b"
    for bad in ("c", None, np.array("a"), ["a"], 3):
        with pytest.raises(ValueError, match="kind must be one of 'a', 'b'; got"):
            arguments.one_of("kind", ("a", "b"))(bad)


def test_numbers_are_taken_as_they_are():
    for given_, value in ((Fraction(1, 4), 0.25), (Decimal("0.5"), 0.5), (np.float16(2), 2.0)):
        assert float(arguments.positive("radius")(given_)) == value
    assert float(arguments.finite("scale")(2**40)) == 2.0**40
    assert arguments.scalar("value")(4).dtype == jnp.asarray(4).dtype
    with jax.enable_x64(False):  # where JAX would take the low 32 bits
        assert float(arguments.number(np.int64(2**32 + 3), "scale")) == 2.0**32


# Sets


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (2.0, {"a": 1.0}),
        ({"a": 1.0}, 0.5),
        ({"a": jnp.zeros(3), "b": jnp.ones(2)}, {"a": jnp.ones(3), "b": jnp.asarray([2.0, 0.9])}),
        (jnp.asarray([0.0, 2.0]), 1.0),
        (0.5, jnp.asarray([1.0, 0.0])),
        (np.inf, np.inf),
        (-np.inf, -np.inf),
        (np.float32(1.0), np.float64(0.5)),
    ],
)
def test_an_empty_box_is_refused(lower, upper):
    with pytest.raises(ValueError, match="The Box is empty: lower must be"):
        bl.Box(lower, upper)


def test_bounds_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="lower and upper must be alike"):
        bl.Box({"a": 0.0}, {"b": 1.0})
    with pytest.raises(ValueError, match=r"alike, but an array of shape \(3,\) stands for one"):
        bl.Box(jnp.zeros(2), jnp.ones(3))
    with pytest.raises(ValueError, match="lower must be a number or have the structure of x"):
        bl.Box({"a": 0.0}, 1.0).project(jnp.ones(3))
    with pytest.raises(ValueError, match="center must be a number or have the structure of x"):
        bl.Ball(1.0, {"a": 0.0}).project(jnp.ones(3))
    with pytest.raises(ValueError, match="center must be finite"):
        bl.Ball(1.0, jnp.asarray([0.0, jnp.inf]))


def test_boxes_that_are_not_empty():
    x = {"a": jnp.asarray([-5.0, 0.5]), "b": jnp.asarray(7.0)}
    box = bl.Box({"a": jnp.asarray([-1.0, 0.0]), "b": 2}, 2)
    projected = box.project(x)
    np.testing.assert_array_equal(projected["a"], [-1.0, 0.5])
    assert projected["b"] == 2
    assert bl.Box(-np.inf, 3.0).project(jnp.asarray(-1e30)) == -1e30
    assert bl.Box(1.0, 1.0).project(jnp.asarray(4.0)) == 1
    np.testing.assert_allclose(bl.Ball(5.0, 1.0).project(jnp.asarray([7.0, 9.0])), [4.0, 5.0])


def test_every_constructor_is_listed_by_its_own_parameters():
    """A parameter that is renamed must be renamed here."""
    for make, (good, names) in CONSTRUCTORS.items():
        assert {*good, *names} <= set(inspect.signature(make).parameters), make


def test_few_passes_over_samples_are_told_with_their_parts():
    told = [arguments.count(passes) for passes in (0.0, 0.256, 3.0, 9.96, 12.4, 1e6, math.inf)]
    assert told == ["0", "0.26", "3", "10", "12", "1e6", "N/A"]
