"""Table 3 in words: what the numbers say of the experiment with ITD."""

from biloop.paper.claims import Claim, by_parts
from biloop.paper.table3 import COLUMNS, LOOKED_AT, NAMES, PRINTED, SETTINGS, Found
from biloop.schedules.arguments import short

LARGER = 2.0  # a loss that is this many times another one is much larger
SEPARATED = 10.0  # so are two ‖∇Φ‖² of which only one is said to vanish


def claims(found: Found) -> tuple[Claim, ...]:
    """The losses of the table, and what section 6 reads in them."""
    return (_early(found), _n_n_loop(found), _no_loop(found), _consistent(found))


def agrees(printed: str, value: float) -> bool:
    """Whether a value is the printed one: to half a unit of its last digit, or to one percent."""
    unit = 10.0 ** -len(printed.partition(".")[2])
    return abs(value - float(printed)) <= max(0.5 * unit, 0.01 * float(printed))


def _early(found: Found) -> Claim:
    same = [
        agrees(PRINTED[N][i], float(found.curves["restart", N].at("value", k)[0]))
        for N in NAMES
        for i, k in enumerate(COLUMNS[:3])
    ]
    return Claim(
        "Table 3",
        "Losses at k = 10, 50, 100 of both loops.",
        by_parts(same),
        f"{sum(same)} of {len(same)} agree to the printed digits, seed {found.seeds[0]}, with the "
        "inner loop restarted at w_0 in every outer step. That is not Algorithm 2.",
    )


def _n_n_loop(found: Found) -> Claim:
    value = found.mean("restart", 20, "value", 500)
    near = max(value / 0.004, 0.004 / value) < LARGER
    return Claim(
        "section 6, Table 3",
        "N = 20 achieves a small loss of 0.004 after 500 iterations.",
        by_parts([agrees("0.004", value), near]),
        f"It reaches {short(value)} (mean over the seeds); inf Φ is "
        f"{short(float(found.infimum.mean()))}.",
    )


def _plateau(found: Found) -> bool:
    """Whether f stays much larger with N = 1."""
    values = {N: found.mean("restart", N, "value", 500) for N in NAMES}
    return values[1] > LARGER * values[20]


def _no_loop(found: Found) -> Claim:
    value = {N: found.mean("restart", N, "value", 500) for N in NAMES}
    late = [i for i, k in enumerate(LOOKED_AT) if k > 500]
    highest = float(found.curves["restart", 1].value[:, late].max())
    larger = _plateau(found)
    spikes = (
        f" Later Adam's spikes throw single iterates up to {short(highest, 2)}, and the column "
        "k = 1000 is one of chance."
        if highest > LARGER * value[1]
        else ""
    )
    remark = (
        ""
        if larger
        else " It need not stop at 0.04: with a fixed start, ITD is the exact gradient of "
        "H ↦ f(H, w^N(H; w_0)), which can interpolate for any N."
    )
    return Claim(
        "section 6, Table 3",
        "No-loop ITD (N = 1) converges to a much larger loss of 0.04.",
        by_parts([larger, agrees("0.04", value[1])]),
        f"It has {short(value[1])} at k = 500, where N = 20 has {short(value[20])} (means over the "
        f"seeds).{spikes}{remark}",
    )


def _consistent(found: Found) -> Claim:
    ratios = {
        name: found.mean(name, 1, "gradient", 1000) / found.mean(name, 20, "gradient", 1000)
        for name in SETTINGS
    }
    phi = {N: found.mean("warm", N, "phi", 1000) for N in NAMES}
    shown = {"f(H_k, w_k^N)": _plateau(found), "‖∇Φ(H_k)‖²": ratios["warm"] >= SEPARATED}
    words = [f"{name} {'shows it' if each else 'does not show it'}" for name, each in shown.items()]
    return Claim(
        "section 6",
        "This is in consistence with the theory, where N = 1 can cause a non-vanishing error.",
        by_parts([*shown.values()]),
        f"{', '.join(words)}: at k = 1000 the latter is {short(ratios['warm'], 2)} times larger "
        "for N = 1 than for N = 20 under the warm start of Algorithm 2 "
        f"({short(ratios['warm, GD'], 2)} times with gradient descent), and Φ is {short(phi[1])} "
        f"against {short(phi[20])}. As printed, with the restart, the factor is "
        f"{short(ratios['restart'], 2)}.",
    )
