"""What a run computes, as digests: its programs as JAX traces them, and the bits of its arrays.

    inner, outer function   what g and f compute, with the constants that they hide
    data                    the arrays of the problem
    method, outer           the arrays of the method and of the outer step
    outer step              what x ← step(x, h) computes: optax keeps its step sizes in closures
    step                    what a whole outer step computes, so whatever a method is made of
    start, state            x and y, and all that the first outer step is given
    shapes                  of x, y and the data: with others all programs are others

The digests are equal in all processes, after a restart of Python, and however arrays are split.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jaxtyping import PyTree

from biloop.outer import OuterStep
from biloop.problem.variables import thawed
from biloop.run.canonical import Digester
from biloop.run.checksum import bits, is_here
from biloop.run.processes import ALONE, Processes
from biloop.run.step import Settings, State, outer_step

_FUNCTIONS = ("inner function", "outer function")
_SETTINGS = ("data", "method", "outer", "outer step")
# The word for a part that differs. What stands behind it differs with it and is not blamed then.
_WORDS = {
    "inner function": ("problem", ("shapes",)),
    "outer function": ("problem", ("shapes",)),
    "data": ("problem", ()),
    "method": ("method", ()),
    "step": ("method", ("shapes", *_FUNCTIONS, "method", "outer", "outer step")),
    "outer": ("outer step", ()),
    "outer step": ("outer step", ("shapes",)),
    "start": ("start", ()),
    "state": ("start", ("shapes", *_FUNCTIONS, *_SETTINGS, "step", "start")),
}


def parts_of_run(settings: Settings, state: State) -> dict[str, Any]:
    """What makes a run, to be digested by `fingerprint`. Traces its programs; `state` its start."""
    problem, method, outer = settings
    x, y = state.x, state.method.y
    return {
        "shapes": _signature((x, y, (problem.inner_data, problem.outer_data))),
        "inner function": program(_call, problem.inner, x, y, *problem.inner_data),
        "outer function": program(_call, problem.outer, x, y, *problem.outer_data),
        "data": contents(problem),
        "method": contents(method),
        "outer": contents(outer),
        "outer step": program(_move, outer, x, state.outer),
        "step": program(_step, settings, state),
        "start": contents((x, y)),
        "state": contents(state),
    }


def _step(settings: Settings, state: State) -> PyTree:
    """One outer step."""
    return outer_step(settings, state, jnp.zeros(()), jnp.zeros((), bool))


def _move(outer: OuterStep, x: PyTree, state: PyTree) -> PyTree:
    """x ← step(x, h) alone, with any h."""
    return outer.step(x, x, jnp.zeros(()), state)


def program(function: Callable[..., PyTree], *arguments: PyTree) -> ClosedJaxpr:
    """What the function computes from arrays of these shapes, wherever they lie."""
    shapes = jax.tree.map(_shape, arguments)
    return eqx.filter_make_jaxpr(function)(*shapes)[0]


def _call(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """The arrays of a function that has some are arguments of its program, not constants in it."""
    x, y, *data = arguments
    return function(thawed(x), thawed(y), *data)


def contents(tree: PyTree) -> list[tuple[str, jax.Array]]:
    """The arrays of a tree, and where they stand in it. Everything else is part of a program."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves if eqx.is_array(leaf)]


def fingerprint(
    make_parts: Callable[[], Mapping[str, Any]], processes: Processes = ALONE
) -> dict[str, str]:
    """A digest of each part, by its name; refused where several processes differ in one.

    Nothing has been compiled by then for the mesh: processes with other programs would wait for
    each other forever.
    """
    parts: dict[str, Any] = {}
    processes.together(lambda: parts.update(make_parts()))
    if processes.several:
        # Sums over arrays of several processes are programs of all of them: this goes first.
        _require_equal(_digests(parts, _bits_of_what_is_here), processes)
    digests = _digests(parts, bits)
    _require_equal(digests, processes)
    return digests


def differences(mine: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The parts in which two fingerprints differ, in words: `problem (data)`, `method`, …"""
    return in_words([name for name in mine if mine[name] != other.get(name)])


def in_words(differing: Sequence[str]) -> list[str]:
    """The parts to blame, as a user calls them."""
    words: dict[str, list[str]] = {}
    for name in differing:
        word, causes = _WORDS.get(name, (name, ()))
        if name != "shapes" and not set(causes) & set(differing):
            words.setdefault(word, []).append(name)
    return [
        f"{word} ({', '.join(names)})" if word == "problem" else word
        for word, names in words.items()
    ]


def _digests(parts: Mapping[str, Any], bits: Callable[[Any], bytes]) -> dict[str, str]:
    digest = Digester(bits)
    return {name: digest(part).hex() for name, part in parts.items()}


def _require_equal(digests: Mapping[str, str], processes: Processes) -> None:
    processes.require_equal(
        [repr(list(digests)).encode()],
        f"The processes differ in what their runs are made of; this one has {', '.join(digests)}.",
    )
    contents = {name: [digest.encode()] for name, digest in digests.items()}
    if words := in_words(processes.differing(contents)):
        differ = "differs" if len(words) == 1 else "differ"
        raise ValueError(
            f"The {' and the '.join(words)} of this run {differ} between the processes. All of "
            f"them must run the same script with the same settings, seeds and files; only data "
            f"given with local=True may differ."
        )


def _bits_of_what_is_here(array: Any) -> bytes:
    return bits(array) if is_here(array) else _signature(array).encode()


def _shape(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=jax.typeof(leaf).weak_type)


def _signature(tree: PyTree) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree))
