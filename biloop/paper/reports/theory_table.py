"""The certificates of all schemes as a table in the terminal."""

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from biloop.paper.theory_costs import TheoryCosts, remarks
from biloop.schedules.arguments import count, short
from biloop.theory import Complexity

WIDTH = 100
COLUMNS = ("N", "Q", "α", "η", "λ", "β", "K(ε)", "Gc(ε)", "MV(ε)", "floor")
LAST_OF_SECTION = ("N-Q-loop AID", "N-N-loop ITD")
NONE = "–"


def print_theory(costs: TheoryCosts, conditions: bool = False) -> None:
    """Print constants, table, what is broken or out of reach, every condition if asked, remarks."""
    console = Console(highlight=False, markup=False)
    # A pipe has no width; a line longer than the table is hard to read.
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    for line in _given(costs):
        console.print(line)
    console.print()
    console.print(_fitting(console, costs))
    console.print()
    for line in _notes(costs):
        console.print(line)
    if conditions:
        console.print()
        console.print(_conditions(costs))
    console.print()
    for sentence in remarks(costs):
        console.print(sentence)


def _given(costs: TheoryCosts) -> tuple[str, str]:
    c, start = costs.constants, costs.start
    return (
        f"L = {short(c.L)}, μ = {short(c.mu)}, ρ = {short(c.rho)}, M = {short(c.M)}, hence "
        f"κ = {short(c.kappa)}, L_Φ = {short(c.L_Phi, 4)}; "
        f"Φ(x_0) − min Φ = {short(start.gap)}, ‖y_0 − y*(x_0)‖ = {short(start.y_distance)}",
        f"Certified: after K(ε) outer steps the mean of ‖∇Φ(x_k)‖² is at most ε = "
        f"{short(costs.eps)}",
    )


def _fitting(console: Console, costs: TheoryCosts) -> Table:
    """The table with as many digits, of three, as the terminal is wide enough for.

    Where even one is too many, lines run over: a number cut short would be another number.
    """
    for digits in (3, 2, 1):
        table = _table(costs, digits)
        unlimited = console.options.update(max_width=10 * WIDTH)
        needed = Measurement.get(console, unlimited, table).maximum
        if needed <= console.width:
            return table
    console.width = needed
    return table


def _table(costs: TheoryCosts, digits: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("scheme", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    for row in costs.proved:
        table.add_row(*_cells(row, digits), end_section=row.scheme in LAST_OF_SECTION)
    for row in costs.quoted:
        table.add_row(*_cells(row, digits), style="dim")
    return table


def _cells(row: Complexity, digits: int) -> list[str]:
    def number(value: float | None) -> str:
        return NONE if value is None else short(value, digits)

    def steps(value: int | None, otherwise: str) -> str:
        return otherwise if value is None else count(value, digits)

    c = row.certificate
    cost = [count(value, digits) for value in (row.K, row.gradients, row.products)]
    loops = [steps(row.N, "grows"), steps(row.Q, NONE)]
    if c is None:
        return [row.scheme, "quoted", *loops, *[NONE] * 4, *cost, NONE, NONE]
    return [
        row.scheme,
        c.statement.replace("Corollary", "Cor."),
        *loops,
        *map(number, (c.alpha, c.eta, c.lam, c.beta)),
        *cost,
        number(c.floor),
        "yes" if c.holds else "no",
    ]


def _notes(costs: TheoryCosts) -> list[str]:
    """One line for each broken condition and each ε out of reach, and what "quoted" means."""
    lines = [
        f"N/A: {scheme} breaks {condition.name}: {short(condition.left, 4)} "
        f"{'≥' if condition.strict else '>'} {short(condition.right, 4)}"
        for scheme, condition in costs.broken
    ]
    lines += [
        f"N/A: {scheme} is certified no further than its floor {short(certificate.floor)} ≥ ε"
        for scheme, certificate in costs.floored
    ]
    return [*lines, "quoted: the order from earlier work, hidden constants set to one; not proved"]


def _conditions(costs: TheoryCosts) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    table.add_column("scheme", no_wrap=True)
    table.add_column("condition")
    table.add_column("left", justify="right", no_wrap=True)
    table.add_column("right", justify="right", no_wrap=True)
    table.add_column("holds", no_wrap=True)
    for scheme, certificate in costs.certificates:
        for condition in certificate.conditions:
            table.add_row(
                scheme,
                condition.name,
                short(condition.left, 6),
                short(condition.right, 6),
                "yes" if condition.holds else "no",
                end_section=condition is certificate.conditions[-1],
            )
    return table
