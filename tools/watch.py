"""A pytest plugin for trials: files in the order in which they are named, and the time of each.

MUTANTS_CORE=3 MUTANTS_SECONDS=90 MUTANTS_REPORT=a.json pytest -p watch tests/test_b.py
"""

import json
import os
import resource
from collections import Counter
from pathlib import Path

import pytest

if "MUTANTS_CORE" in os.environ and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(os.environ["MUTANTS_CORE"])})  # before XLA counts its threads
if "MUTANTS_SECONDS" in os.environ:  # of its processor
    resource.setrlimit(resource.RLIMIT_CPU, (int(os.environ["MUTANTS_SECONDS"]),) * 2)

SECONDS: Counter[str] = Counter()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items) -> None:
    """As they are named: the most telling files come first."""
    files = [word.partition("::")[0] for word in config.args]
    rank = {file: place for place, file in reversed(list(enumerate(files)))}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], 0))


def pytest_runtest_logreport(report) -> None:
    """Add up what setting up, running and tidying up took."""
    SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish() -> None:
    """Write the report."""
    Path(os.environ["MUTANTS_REPORT"]).write_text(json.dumps(SECONDS), "utf-8")
