"""The contracts of pyproject.toml: which module may import which."""

import os
import re
import subprocess
import sys
from pathlib import Path

# A line that names an import at fault: "-   biloop.theory.rates -> biloop.problem (l.3)".
EDGE = re.compile(r"^- +(biloop[\w.]*) +-> +(biloop[\w.]*)", re.MULTILINE)

NO_PLACE = re.compile(r"^- +(biloop[\w.]*)$", re.MULTILINE)


def broken_contracts(root: Path) -> list[str]:
    """What import-linter objects to in the tree at root: "importer -> imported", each once.

    A program of its own: in this one, biloop has been imported from elsewhere.
    """
    program = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path]), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = [f"{a} -> {b}" for a, b in EDGE.findall(done.stdout)]
    found += [f"{name} has no place in the flow" for name in NO_PLACE.findall(done.stdout)]
    if done.returncode == 0 or not found:
        assert done.returncode == 0, done.stdout + done.stderr  # a mistake in the contracts
        assert " 0 broken" in done.stdout, done.stdout
    return sorted(set(found))
