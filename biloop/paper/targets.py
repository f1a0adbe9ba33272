"""The tables and figures that can be run again, in the order of the paper; then those of others."""

from typing import Any

from biloop.paper import figure1, lower_bound, sampled, table1, table2, table3
from biloop.paper.reports import figure1 as figure1_report
from biloop.paper.reports import lower_bound as lower_bound_report
from biloop.paper.reports import sampled as sampled_report
from biloop.paper.reports import table1 as table1_report
from biloop.paper.reports import table2 as table2_report
from biloop.paper.reports import table3 as table3_report
from biloop.paper.target import Target

_ALL: tuple[Target[Any], ...] = (
    Target(
        "table1",
        "Table 1: complexity of AID",
        minutes=3.0,
        quick_minutes=0.5,
        run=table1.run,
        report=table1_report.report,
    ),
    Target(
        "table2",
        "Table 2: complexity of ITD",
        minutes=2.0,
        quick_minutes=0.5,
        run=table2.run,
        report=table2_report.report,
    ),
    Target(
        "lower-bound",
        "Theorem 4: the lower bound for ITD",
        minutes=0.3,
        quick_minutes=0.3,
        run=lower_bound.run,
        report=lower_bound_report.report,
    ),
    Target(
        "table3",
        "Table 3: ITD for hyper-representation",
        minutes=1.0,
        quick_minutes=0.4,
        run=table3.run,
        report=table3_report.report,
    ),
    Target(
        "figure1",
        "Figure 1: AID on MNIST",
        minutes=15.0,
        quick_minutes=0.8,
        run=figure1.run,
        report=figure1_report.report,
        prepare=figure1.prepare,
    ),
    Target(
        "sampled",
        "Sampled methods: their published rates",
        minutes=2.0,
        quick_minutes=0.8,
        run=sampled.run,
        report=sampled_report.report,
    ),
)
TARGETS: dict[str, Target[Any]] = {target.name: target for target in _ALL}
