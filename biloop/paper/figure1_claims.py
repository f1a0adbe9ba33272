"""Figure 1 in words: what the numbers say of the observations of section 6."""

from collections.abc import Mapping

import numpy as np

from biloop.paper.claims import Claim, by_parts
from biloop.paper.figure1_found import NAMES, Found, Loops, influence
from biloop.paper.figure1_runs import FIXED_COST, FIXED_K, LOOPS
from biloop.schedules.arguments import short

MATTERS = 0.01  # a change of the loss by less is none
COMPARABLE = 0.1  # losses that differ by less, relative to the smaller
BETTER = 1.1  # how many times larger a loss is that is clearly worse


def claims(found: Found) -> tuple[Claim, ...]:
    """The four observations of section 6, and the formulation of the text."""
    return (_n_matters(found), _why(found), _q_matters(found), _moving_claim(found), _ridge(found))


def _losses(found: Found, key: tuple[str, str], where: str, value: float) -> dict[Loops, float]:
    """Test losses, means over the seeds that stayed finite; infinite if none did."""
    losses = {loops: found.at(*key, loops, "test_loss", where, value) for loops in LOOPS}
    return {loops: loss if np.isfinite(loss) else np.inf for loops, loss in losses.items()}


def n_wins(losses: Mapping[Loops, float]) -> bool:
    """Whether N = 20 has the smaller loss than N = 1, for both Q."""
    return losses[20, 20] < losses[1, 20] and losses[20, 1] < losses[1, 1]


def _order(losses: Mapping[Loops, float]) -> str:
    finite = sorted((each for each in losses if np.isfinite(losses[each])), key=losses.__getitem__)
    failed = [f"({N}, {Q}) failed" for N, Q in losses if (N, Q) not in finite]
    return ", ".join([" < ".join(f"({N}, {Q})" for N, Q in finite), *failed])


def _measures(found: Found, key: tuple[str, str]) -> dict[str, dict[Loops, float]]:
    """Test losses at equal k, cost and, where it was measured, time."""
    measures = {
        "k": _losses(found, key, "k", FIXED_K),
        "cost": _losses(found, key, "cost", FIXED_COST),
    }
    if key[0] == "cleaning":
        measures["seconds"] = _losses(found, key, "seconds", found.common_seconds(key[1]))
    return measures


def _n_matters(found: Found) -> Claim:
    measures = _measures(found, ("cleaning", "printed"))
    held = {name: n_wins(losses) for name, losses in measures.items()}
    k, work = measures["k"], measures["cost"]
    return Claim(
        "section 6, Figure 1",
        "Learning curves with N = 20 are significantly better than those with N = 1.",
        by_parts([*held.values()]),
        f"Data cleaning, printed grid, test loss at k = {FIXED_K}: {short(k[20, 20])} and "
        f"{short(k[20, 1])} with N = 20, {short(k[1, 20])} and {short(k[1, 1])} with N = 1; at "
        f"Gc + MV = {FIXED_COST} the order is {_order(work)} with "
        f"{', '.join(short(value) for value in sorted(work.values()))}.",
    )


def _same_inner_steps(found: Found) -> tuple[tuple[int, float], tuple[int, float]]:
    """Inner steps and test loss of N = 20 and of N = 1, Q = 1, where they took about as many.

    N = 1 at the end of its run, N = 20 at the last point with no more inner steps than that.
    """
    key = ("cleaning", "printed")
    single = found.means(*key, (1, 1))
    end = int(single["outer iterations"][-1])
    many = found.means(*key, (20, 1))
    at = max(0, int(np.searchsorted(20 * many["outer iterations"], end, side="right")) - 1)
    steps = 20 * int(many["outer iterations"][at])
    return (steps, float(many["test_loss"][at])), (end, float(single["test_loss"][-1]))


def _why(found: Found) -> Claim:
    """A hypergradient acts through x: does x matter, and is N = 20 better beyond its steps?"""
    keys = [("cleaning", "printed", loops) for loops in LOOPS]
    most = max(influence(found, key) for key in keys)
    moved = max(found.last(*key, "moved") for key in keys)
    (steps, many), (single_steps, single) = _same_inner_steps(found)
    matters, faster = most >= MATTERS, single >= BETTER * many
    reading = {
        (False, False): " The curves show gradient descent on W with weights that stay equal: "
        "N = 20 wins because it takes more inner steps for each outer one.",
        (True, True): " More inner steps alone do not explain the curves.",
    }
    return Claim(
        "section 6",
        "The reason is a more accurate hypergradient, which accelerates the convergence.",
        by_parts([matters, faster]),
        "A hypergradient acts through x. On the printed grid x moves by "
        f"|x_i − x_0| ≤ {short(moved, 2)}, and between the largest and the smallest β the "
        f"validation loss changes by at most {100 * most:.2g} %. At about equal numbers of inner "
        f"steps, {steps} and {single_steps}, the test loss is {short(many)} with N = 20 and "
        f"{short(single)} with N = 1.{reading.get((matters, faster), '')}",
    )


def _q_matters(found: Found) -> Claim:
    measures = _measures(found, ("cleaning", "printed"))
    apart = {
        name: max(_apart(losses[N, 20], losses[N, 1]) for N in (20, 1))
        for name, losses in measures.items()
    }
    return Claim(
        "section 6, Figure 1",
        "Q = 20 and Q = 1 are comparable, for N = 20 and for N = 1.",
        by_parts([each < COMPARABLE for each in apart.values()]),
        f"At equal k the test losses differ by at most {100 * apart['k']:.2g} %, at equal cost "
        f"(Gc + MV = {FIXED_COST}) by up to {100 * apart['cost']:.0f} %, and at equal time, the "
        f"axis of the figure, by {100 * apart['seconds']:.0f} %.",
    )


def _apart(one: float, other: float) -> float:
    """How much two losses differ, relative to the smaller."""
    return max(one, other) / min(one, other) - 1


def _moving_claim(found: Found) -> Claim:
    key = ("cleaning", "large")
    end = {loops: found.last(*key, loops, "test_loss") for loops in LOOPS}
    work = _losses(found, key, "cost", FIXED_COST)
    uniform, oracle = (found.references[n]["test_loss"] for n in ("uniform ½", "oracle 0, 1"))
    best = min(end, key=lambda each: end[each])
    gap = end[1, 1] / min(end[20, 1], end[20, 20]) - 1
    wrong, right = (found.last(*key, best, f"{word}_weight") for word in ("wrong", "right"))
    ratio = wrong / right
    wins = n_wins(end) and n_wins(work)
    verdict = (
        "not reproduced" if gap <= 0 else "only in part" if not wins or gap < 0.1 else "reproduced"
    )
    return Claim(
        "section 6",
        "Running multiple inner steps (N > 1) is crucial for fast convergence.",
        verdict,
        "Asked with outer step sizes that move x, so that the upper problem is solved: the test "
        f"loss at Gc + MV = {found.budgets.final} is lowest for {NAMES[best]}, "
        f"{short(end[best])} (uniform weights {short(uniform)}, oracle {short(oracle)}), and "
        f"{short(end[1, 1])} for the No-loop. The order is {_order(end)} there and {_order(work)} "
        f"at Gc + MV = {FIXED_COST}. Wrong labels end with {ratio:.2f} of the "
        f"weight of right ones ({NAMES[best]}).",
    )


def _ridge(found: Found) -> Claim:
    measures = _measures(found, ("ridge", "printed"))
    held = all(n_wins(losses) for losses in measures.values())
    k = measures["k"]
    failed = {loops: found.failures("ridge", "printed", loops) for loops in LOOPS}
    most = [f"{count} with {NAMES[loops]}" for loops, count in failed.items() if count]
    end = [
        found.last("ridge", "printed", loops, "right_weight")
        for loops in LOOPS
        if failed[loops] < len(found.seeds)
    ]
    return Claim(
        "section 6, the text's formulation",
        "The same observations hold for one penalty λ.",
        "reproduced" if held and not most else "only in part" if n_wins(k) else "not reproduced",
        f"At k = {FIXED_K} the test loss is {short(k[20, 20])} and {short(k[20, 1])} with N = 20, "
        f"{short(k[1, 20])} and {short(k[1, 1])} with N = 1; order at Gc + MV = {FIXED_COST}: "
        f"{_order(measures['cost'])}. λ ends between {short(min(end), 2)} and {short(max(end), 2)} "
        f"(from 0.01). Of {len(found.seeds)} runs each, {', '.join(most) or 'none'} did not stay "
        "finite.",
    )
