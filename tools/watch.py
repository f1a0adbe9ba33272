"""A pytest plugin: stay on one core, and write which functions of a folder were entered.

    MUTANTS_CORE=3 MUTANTS_WATCH=biloop MUTANTS_REPORT=file.json pytest -p watch …

The report is {file: [names of functions, with dots]}, of what this process calls and not those
that it starts.
"""

import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType

if "MUTANTS_CORE" in os.environ and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(os.environ["MUTANTS_CORE"])})  # before XLA counts its threads

ENTERED: set[CodeType] = set()


def watch() -> None:
    """Note the code of each function at its first call, as cheaply as Python allows."""
    if sys.version_info >= (3, 12):
        monitoring, event = sys.monitoring, sys.monitoring.events.PY_START

        def entered(code: CodeType, offset: int) -> object:
            ENTERED.add(code)
            return monitoring.DISABLE  # once is enough

        monitoring.use_tool_id(monitoring.COVERAGE_ID, "watch")
        monitoring.register_callback(monitoring.COVERAGE_ID, event, entered)
        monitoring.set_events(monitoring.COVERAGE_ID, event)
    else:

        def called(frame, event, argument) -> None:
            ENTERED.add(frame.f_code)

        threading.settrace(called)
        sys.settrace(called)


def pytest_sessionfinish() -> None:
    """Write the report."""
    if "MUTANTS_REPORT" in os.environ:
        sys.settrace(None)
        root, functions = Path.cwd(), {}
        for code in list(ENTERED):
            file = Path(code.co_filename)
            if file.is_relative_to(root / os.environ["MUTANTS_WATCH"]):
                name = code.co_qualname.replace(".<locals>", "")
                functions.setdefault(file.relative_to(root).as_posix(), set()).add(name)
        report = {file: sorted(names) for file, names in functions.items()}
        Path(os.environ["MUTANTS_REPORT"]).write_text(json.dumps(report), "utf-8")


if "MUTANTS_REPORT" in os.environ:
    watch()
