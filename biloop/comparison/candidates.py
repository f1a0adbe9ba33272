"""What is compared: the named schemes with loops from a grid, and methods of one's own."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from biloop.comparison.terms import Steps, rounded
from biloop.methods import Method
from biloop.outer import OuterStep, as_outer_step
from biloop.problem import Problem
from biloop.schedules.arguments import as_text, listed, nearest, shown
from biloop.schemes import BY_NAME, TABLE, Scheme
from biloop.sweeps.cells import full_path
from biloop.sweeps.paths import all_paths, replaced, value_at

OUTER = "outer"
_SHARES = (0.5, 0.1)  # of the stable step size on all rows: noise asks for shorter steps


@dataclass(frozen=True)
class Candidate:
    """A method of one's own in a comparison, with its outer step and the numbers to be tuned.

    Parameters
    ----------
    method : Method
        What is compared with the named schemes.
    outer : number, "auto", optax transformation or OuterStep, optional
        Its outer step. A number, or nothing, is the step size of gradient descent, and is tuned.
    tune : dictionary from paths to values, optional
        What is to be tuned, by paths as in `sweep`: "outer", "outer.step_size",
        "inner.step_size". A list of values means that each of them is tried. A number is where a
        search over step sizes begins, three per decade; None lets it begin where the named schemes
        begin. There can be one search, and any number of lists.

    Examples
    --------
    >>> method = bl.schemes.aid_bio(5, 5, inner_step=0.1)
    >>> mine = bl.Candidate(method, outer=optax.adam(0.1), tune={"inner.step_size": [0.1, 0.05]})
    """

    method: Method
    outer: Any = None
    tune: Mapping[str, Any] | None = None


class Loops(NamedTuple):
    """The lengths that are tried."""

    N: tuple[int, ...]
    Q: tuple[int, ...]


class Settings(NamedTuple):
    """A method and its outer step: where paths begin."""

    method: Any
    outer: Any


@dataclass(frozen=True, eq=False)
class Variant:
    """A scheme with loops of certain lengths, or a method of one's own with certain values.

    `search` is the path of the number that is still to be found, None where there is none, and
    `center` where to begin. `code` makes the method, `outer_code` its outer step.
    """

    scheme: str
    settings: Settings
    N: int | str = "–"
    Q: int | str | None = None
    code: str = ""
    outer_code: str = '"auto"'
    search: str | None = OUTER
    center: float | None = None
    chosen: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The scheme and the lengths of its loops, or what was chosen."""
        return ", ".join([self.scheme, *filter(None, [self.loops])])

    @property
    def loops(self) -> str:
        """The lengths of the loops in words, or the values that were chosen."""
        if self.chosen or self.scheme not in BY_NAME:
            return ", ".join(f"{path} = {_shown(value)}" for path, value in self.chosen.items())
        if self.search is None:
            return "loops and step sizes by themselves"
        return f"N = {self.N}" + ("" if self.Q is None else f", Q = {self.Q}")

    @property
    def family(self) -> str:
        """The family of its scheme; a method of one's own has none."""
        return BY_NAME[self.scheme].family if self.scheme in BY_NAME else ""

    def at(self, number: float | None) -> tuple[Method, OuterStep]:
        """Method and outer step with this number in its place."""
        settings = self.settings
        if self.search is not None and number is not None:
            settings = _put(settings, self.search, number)
        return settings.method, as_outer_step(settings.outer)


def named_variants(
    problem: Problem, names: Sequence[str] | None, batch: int | None, loops: Loops, steps: Steps
) -> Iterator[Variant]:
    """The named schemes, in the order of the table; those that draw rows come after the others."""
    compared = [s for s in TABLE if s.compared or s.raced] if names is None else _named(names)
    on_all = [scheme for scheme in compared if "batch" not in scheme.arguments]
    on_batches = [scheme for scheme in compared if "batch" in scheme.arguments]
    for scheme in on_all:
        yield from _of_all_lengths(scheme, loops, steps)
    if batch is None:
        if on_batches and names is not None:
            raise ValueError(f"{on_batches[0].name} draws rows: give their number, e.g. batch=64.")
        return
    for scheme in on_batches:
        if scheme.outer is None:
            yield from _on_batches(scheme, batch, loops, steps)
            continue
        method: Any = scheme.make(batch=batch)  # begins on batches and finds its steps
        if method.takes_batches(problem):
            start, code = Settings(method, scheme.outer), scheme.code(batch=batch)
            yield Variant(scheme.name, start, scheme.N, scheme.Q, code, search=None)
        elif names is not None:
            raise ValueError(f"{scheme.name} would be Adaptive here. {method.why_whole(problem)}")


def _named(names: Sequence[str]) -> list[Scheme]:
    if isinstance(names, Iterator):  # it would be used up by the first round of tuning
        raise TypeError(f"schemes must be a sequence of names, got {shown(names)}.")
    names = listed(names, "schemes", "a sequence of names")
    for name in map(as_text("each of the schemes"), names):
        if name not in BY_NAME:
            raise ValueError(
                f"There is no scheme {name!r}; the nearest is {nearest(name, list(BY_NAME))!r}."
            )
    return [scheme for scheme in TABLE if scheme.name in names]


def _of_all_lengths(scheme: Scheme, loops: Loops, steps: Steps) -> Iterator[Variant]:
    """Its loops of all lengths that are asked for, in one program for all of them."""
    lengths = [
        [n for n in tried if n > 1] if loop in scheme.loops else [1]
        for loop, tried in loops._asdict().items()
    ]
    for q, n in itertools.product(*reversed(lengths)):
        numbers = {"N": n, "Q": q, "inner_step": steps.inner, "linear_step": steps.linear}
        yield Variant(
            scheme.name,
            Settings(scheme.make_shared(max(loops.N), **numbers), scheme.outer),
            n if scheme.N == 1 else scheme.N,
            q if scheme.Q == 1 else scheme.Q,
            scheme.code(**numbers),
            search=OUTER if scheme.outer is None else None,
        )


def _on_batches(scheme: Scheme, batch: int, loops: Loops, steps: Steps) -> Iterator[Variant]:
    """With shorter and shorter steps, and the shortest loops that are more than one step."""
    shortest = {
        loop: min((n for n in tried if n > 1), default=1) for loop, tried in loops._asdict().items()
    }
    lengths = {loop: shortest[loop] for loop in scheme.loops}
    for share in _SHARES:
        inner, linear = rounded(share * steps.inner), rounded(share * steps.linear)
        numbers = {"batch": batch, **lengths, "inner_step": inner, "linear_step": linear}
        yield Variant(
            scheme.name,
            Settings(scheme.make(**numbers), None),
            lengths.get("N", 1),
            lengths.get("Q", 1 if "linear_step" in scheme.arguments else None),
            scheme.code(**numbers),
            chosen={**lengths, "step": inner},
        )


def own_variants(methods: Mapping[str, Any] | None) -> Iterator[Variant]:
    """Methods of one's own: a variant for each combination of the values in their lists."""
    methods = {} if methods is None else methods
    if not isinstance(methods, Mapping):
        raise TypeError(
            f"methods must be a dictionary from names to methods, e.g. "
            f"methods={{'mine': method}}; got {type(methods).__name__}."
        )
    for name, given in methods.items():
        candidate, code, outer_code = _as_candidate(name, given)
        tune = _tuned(name, candidate)
        lists = {path: values for path, values in tune.items() if _is_list(values)}
        search = next((path for path in tune if path not in lists), None)
        for values in itertools.product(*lists.values()):
            chosen = dict(zip(lists, values, strict=True))
            settings = Settings(candidate.method, candidate.outer)
            for path, value in chosen.items():
                settings = _put(settings, path, value)
            note = ", ".join(f"{path} = {_shown(value)}" for path, value in chosen.items())
            yield Variant(
                name,
                settings,
                code=f"{code}  # with {note}" if note else code,
                outer_code=_shown(chosen[OUTER]) if OUTER in chosen else outer_code,
                search=search,
                center=None if search is None else tune[search],
                chosen=chosen,
            )


def _as_candidate(name: str, given: Any) -> tuple[Candidate, str, str]:
    """What was given under a name, and how its method and its outer step are written."""
    if not isinstance(name, str) or name in BY_NAME:
        raise ValueError(f"A method of your own needs a name that no scheme has, got {name!r}.")
    here = f"methods[{name!r}]"
    if isinstance(given, Candidate):
        found = given, f"{here}.method", f"{here}.outer"
    elif isinstance(given, tuple) and len(given) == 2:
        method, outer = given
        found = Candidate(method, outer), f"{here}[0]", f"{here}[1]"
    else:
        method: Any = given
        found = Candidate(method), here, '"auto"'
    if not isinstance(found[0].method, Method):
        raise TypeError(
            f"methods[{name!r}] must be a Method, a pair of a Method and an outer step, or a "
            f"Candidate; got {given!r}."
        )
    return found


def _tuned(name: str, candidate: Candidate) -> dict[str, Any]:
    """The paths with their lists, or with the number where the search begins."""
    plain = candidate.outer is None or _is_number(candidate.outer)
    if candidate.tune is None:
        return {OUTER: candidate.outer} if plain else {}
    tune = dict(candidate.tune)
    if candidate.outer is None and OUTER not in tune:
        tune[OUTER] = None
    searches = [path for path, values in tune.items() if not _is_list(values)]
    if len(searches) > 1:
        raise ValueError(
            f"{name!r} asks for a search over {' and '.join(map(repr, searches))}; there can be "
            f"one: give a list of values for the others."
        )
    for path in searches:
        if tune[path] is not None and not (_is_number(tune[path]) and tune[path] > 0):
            raise ValueError(f"A search begins at a number above 0; {path!r} has {tune[path]!r}.")
        if path == OUTER and not plain:
            raise ValueError(
                f"{name!r} has an outer step that is no number: give a list of outer steps for "
                f"'outer', or the path of a number in it."
            )
    if OUTER in searches and tune[OUTER] is None:
        tune[OUTER] = candidate.outer
    return tune


def _put(settings: Settings, path: str, value: Any) -> Settings:
    if path == OUTER:
        return settings._replace(outer=value)
    inside = full_path(path)
    if settings.outer is not None:
        settings = settings._replace(outer=as_outer_step(settings.outer))
    try:
        value_at(settings, inside)
    except KeyError:
        written = [p.removeprefix(".").removeprefix("method.") for p in all_paths(settings)]
        raise ValueError(
            f"There is no {path!r} to tune; the nearest path is {nearest(path, written)!r}."
        ) from None
    return replaced(settings, inside, value)


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and not _is_outer(values)


def _is_outer(value: Any) -> bool:
    """An optax transformation is a named tuple, and no list of values."""
    return getattr(value, "_fields", None) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else type(value).__name__
