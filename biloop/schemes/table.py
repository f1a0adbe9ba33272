"""The one table of schemes: comparisons, the command line and reports read it.

A new scheme is a function and a row.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from biloop.methods import Method
from biloop.oracles import Cost
from biloop.schemes.first_order import bome, darts, f2sa, f2sa_2, f3sa, hozog, pzobo, t1_t2
from biloop.schemes.loops import (
    aid_bio,
    auto,
    ba,
    hoag,
    itd_bio,
    itd_no_loop,
    n_loop,
    n_n_loop,
    n_q_loop,
    no_loop,
    q_loop,
)
from biloop.schemes.sampled import (
    alset,
    amigo,
    batch_n_loop,
    batch_no_loop,
    batch_q_loop,
    bsa,
    fsla,
    ma_soba,
    mrbo,
    saba,
    soba,
    spaba,
    srba,
    stocbio,
    sustain,
    ttsa,
    vrbo,
)


class Scheme(NamedTuple):
    """A row of the table: how a scheme is made, which loops it has, and what an outer step costs.

    `arguments` are the lengths and step sizes that its function takes, by name, and `loops` those
    of the lengths that are more than one step, so that they are to be chosen. `N` and `Q` are the
    lengths that nobody chooses: a number, or a word where they change; None: there is no such loop.
    Schemes of one `family` differ in their loops alone. `cost` is that of an outer step with N and
    Q, None where it changes with k. `outer` is the outer step of a scheme that has one of its own.
    By default those that are `compared` are, or, with a batch, those that are `raced` as well.
    A scheme that draws rows is `sampled`: then `cost` is in evaluations on a batch, and `schedules`
    are the published powers of k (or of K, for all k alike) for the steps of y and v, and of x.
    """

    name: str
    function: Callable[..., Method]
    citation: str
    family: str
    arguments: tuple[str, ...]
    loops: tuple[str, ...]
    N: int | str = 1
    Q: int | str | None = 1
    cost: Callable[[int, int], Cost] | None = None
    outer: str | None = None
    compared: bool = True
    sampled: bool = False
    raced: bool = False
    schedules: tuple[float, float] = (0.0, 0.0)
    complexity: str = ""

    @property
    def key(self) -> str:
        """Its name on the command line."""
        return self.function.__name__.replace("_", "-")

    def make(self, **numbers: Any) -> Method:
        """The method, from batch, N, Q, inner_step and linear_step; others are left."""
        return self.function(**self._used(numbers))

    def code(self, **numbers: Any) -> str:
        """The same as a line of code."""
        written = [f"{name}={value:g}" for name, value in self._used(numbers).items()]
        return f"bl.schemes.{self.function.__name__}({', '.join(written)})"

    def make_shared(self, longest: int, **numbers: Any) -> Method:
        """The same with all lengths as arrays: then a family shares one compiled program."""
        given = numbers | {"max_steps": longest}
        given |= {loop: jnp.asarray(numbers[loop]) for loop in ("N", "Q") if loop in self.arguments}
        return self.function(**{name: given[name] for name in self.arguments})

    def _used(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """The numbers that the function takes, without lengths that are one step by definition."""
        always = ("batch", "inner_step", "linear_step")
        used = [name for name in self.arguments if name in (*self.loops, *always)]
        return {name: numbers[name] for name in used if name in numbers}


def _aid_cost(N: int, Q: int) -> Cost:
    return Cost(N + 2, Q + 1)


def _itd_cost(N: int, Q: int) -> Cost:
    return Cost(N + 2, 2 * N)


_JI = "Ji, Yang and Liang (2021)"
_STEPS = ("inner_step", "linear_step")
_PAIR = ("N", "Q", *_STEPS)
_UNROLLED = ("N", "inner_step", "max_steps")
# fmt: off
TABLE: tuple[Scheme, ...] = (  # the order of tables
    Scheme("No-loop AID", no_loop, "Corollary 2", "AID", _PAIR, (), cost=_aid_cost),
    Scheme("N-loop AID", n_loop, "Corollary 1", "AID", _PAIR, ("N",), cost=_aid_cost),
    Scheme("Q-loop AID", q_loop, "Corollary 4", "AID", _PAIR, ("Q",), cost=_aid_cost),
    Scheme("N-Q-loop AID", n_q_loop, "Corollary 3", "AID", _PAIR, ("N", "Q"), cost=_aid_cost),
    Scheme("No-loop ITD", itd_no_loop, "Corollary 6", "ITD", _UNROLLED, (), Q=None, cost=_itd_cost),
    Scheme("N-N-loop ITD", n_n_loop, "Corollary 5", "ITD", _UNROLLED, ("N",), Q=None,
           cost=_itd_cost),
    Scheme("BA", ba, "Ghadimi and Wang (2018)", "BA", ("Q", *_STEPS), ("Q",), N="grows"),
    Scheme("AID-BiO", aid_bio, _JI, "BiO", ("N", "Q", "inner_step"), ("N", "Q"), compared=False),
    Scheme("ITD-BiO", itd_bio, _JI, "BiO", _UNROLLED, ("N",), Q=None, cost=_itd_cost,
           compared=False),
    Scheme("HOAG", hoag, "Pedregosa (2016)", "HOAG", ("inner_step",), (), N="tolerance",
           Q="tolerance", compared=False),
    Scheme("Adaptive", auto, "no length and no step size is given", "Adaptive", (), (), N="auto",
           Q="auto", outer="auto"),
)
# fmt: on

_BATCH = ("batch", *_STEPS)
_LOOPS = ("batch", "N", "Q", *_STEPS)


def _drawn(
    name: str,
    function: Callable[..., Method],
    citation: str,
    cost: Callable[[int, int], Cost] | None,
    schedules: tuple[float, float],
    complexity: str,
    arguments: tuple[str, ...] = _BATCH,
    loops: tuple[str, ...] = (),
    family: str | None = None,
    raced: bool = False,
) -> Scheme:
    """A row for a scheme that draws rows."""
    return Scheme(
        name, function, citation, family or name, arguments, loops, cost=cost, compared=False,
        sampled=True, raced=raced, schedules=schedules, complexity=complexity,
    )  # fmt: skip


def _once(gradients: int, products: int) -> Callable[[int, int], Cost]:
    return lambda N, Q: Cost(gradients, products)


BATCHES = "AID on batches"
REDUCED = ("SABA", "SRBA", "SPABA")  # whose variance goes to zero
_ARBEL = "Arbel and Mairal (2022)"
_DAGREOU = "Dagréou, Ablin, Vaiter and Moreau (2022)"
_YANG = "Yang, Ji and Liang (2021)"
_KWON = "Kwon, Kwon, Wright and Nowak (2023)"
_THIRDS, _CONSTANT = (-1 / 3, -1 / 3), (0.0, 0.0)
_N_STEP = ("batch", "N", "inner_step")
# fmt: off
TABLE += (  # costs in evaluations on a batch, or on average
    _drawn("SOBA", soba, _DAGREOU, _once(3, 2), (-0.4, -0.6), "ε⁻²", raced=True),
    _drawn("MA-SOBA", ma_soba, "Chen, Xiao and Balasubramanian (2023)", _once(3, 2), (-0.5, -0.5),
           "ε⁻²", raced=True),
    _drawn("SABA", saba, _DAGREOU, _once(3, 2), _CONSTANT, "(n + m)^⅔ ε⁻¹", raced=True),
    _drawn("SRBA", srba, "Dagréou, Moreau, Vaiter and Ablin (2023)", _once(6, 4), _CONSTANT,
           "(n + m)^½ ε⁻¹", raced=True),
    _drawn("SPABA", spaba, "Chu, Xu, Yao and Zhang (2024)", _once(6, 4), _CONSTANT,
           "(n + m)^½ ε⁻¹"),
    _drawn("FSLA", fsla, "Li, Gu and Huang (2022)", _once(4, 3), (-0.5, -0.5), "ε⁻²"),
    _drawn("No-loop AID on batches", batch_no_loop, _ARBEL, _aid_cost, _CONSTANT, "ε⁻²",
           family=BATCHES, raced=True),
    _drawn("N-loop AID on batches", batch_n_loop, _ARBEL, _aid_cost, _CONSTANT, "ε⁻²",
           arguments=("batch", "N", *_STEPS), loops=("N",), family=BATCHES, raced=True),
    _drawn("Q-loop AID on batches", batch_q_loop, _ARBEL, _aid_cost, _CONSTANT, "ε⁻²",
           arguments=("batch", "Q", *_STEPS), loops=("Q",), family=BATCHES, raced=True),
    _drawn("AmIGO", amigo, _ARBEL, _aid_cost, _CONSTANT, "ε⁻²",
           arguments=_LOOPS, loops=("N", "Q"), family=BATCHES, raced=True),
    _drawn("stocBiO", stocbio, _JI, _aid_cost, _CONSTANT, "ε⁻²", arguments=_LOOPS,
           loops=("N", "Q"), raced=True),
    _drawn("BSA", bsa, "Ghadimi and Wang (2018)", None, (-0.5, -0.5), "ε⁻³"),
    _drawn("TTSA", ttsa, "Hong, Wai, Wang and Yang (2020)", None, (-0.4, -0.6), "ε^(−5/2)"),
    _drawn("ALSET", alset, "Chen, Sun and Yin (2021)", None, (-0.5, -0.5), "ε⁻²"),
    _drawn("SUSTAIN", sustain, "Khanduri et al. (2021)", None, _THIRDS, "ε^(−3/2)"),
    _drawn("MRBO", mrbo, _YANG, lambda N, Q: Cost(6, 2 * Q + 2), _THIRDS, "ε^(−3/2)",
           arguments=("batch", "Q", *_STEPS), loops=("Q",)),
    _drawn("VRBO", vrbo, _YANG, lambda N, Q: Cost(6 * (N + 1), (N + 1) * (2 * Q + 2)), _CONSTANT,
           "ε^(−3/2)", arguments=_LOOPS, loops=("N", "Q")),
    _drawn("F2SA", f2sa, _KWON, _once(6, 0), (-4 / 7, -5 / 7), "ε^(−7/2)",
           arguments=("batch", "inner_step"), raced=True),
    _drawn("F3SA", f3sa, _KWON, _once(12, 0), (-0.4, -0.6), "ε^(−5/2)",
           arguments=("batch", "inner_step")),
    _drawn("F2SA-2", f2sa_2, "Chen, Li, Chayti and Zhang (2025)", _once(8, 0), (-4 / 7, -5 / 7),
           "ε^(−5/2)", arguments=("batch", "inner_step")),
    _drawn("PZOBO", pzobo, "Sow, Ji and Liang (2022)", lambda N, Q: Cost(2 * N + 2, 0), _CONSTANT,
           "p ε⁻¹", arguments=_N_STEP, loops=("N",)),
    _drawn("HOZOG", hozog, "Gu et al. (2021)", lambda N, Q: Cost(2 * N, 0), _CONSTANT, "",
           arguments=_N_STEP, loops=("N",)),
    Scheme("Adaptive on batches", auto, "no length and no step size is given", "Adaptive",
           ("batch",), (), N="auto", Q="auto", outer="auto", compared=False, raced=True),
    Scheme("BOME", bome, "Ye et al. (2022)", "BOME", ("N", "inner_step"), ("N",), Q=None,
           cost=lambda N, Q: Cost(N + 5, 0), compared=False),
    Scheme("T1–T2", t1_t2, "Luketina et al. (2016)", "T1–T2", ("N", *_STEPS), ("N",), Q=None,
           cost=lambda N, Q: Cost(N + 2, 1), compared=False),
    Scheme("DARTS", darts, "Liu, Simonyan and Yang (2019)", "DARTS", ("inner_step",), (), Q=None,
           cost=_once(5, 0), compared=False),
)
# fmt: on
BY_NAME: dict[str, Scheme] = {scheme.name: scheme for scheme in TABLE}
