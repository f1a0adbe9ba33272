"""A part of the tests once more as users compile: at XLA's default level of optimisation.

The flag holds for a process, so that they have one of their own. There, programs are fused and
round differently: a predicate that is evaluated twice may come out true once and false once.
"""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        pytest.param("test_protocol.py", "vmap", marks=pytest.mark.slow),
        pytest.param("test_solve.py", "minimiser", marks=pytest.mark.slow),
    ],
)
def test_at_the_default_level(request, file, chosen):
    """The table of methods side by side, and runs that end at a known minimiser."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"tests/{file}",
            "-k",
            chosen,
        ],
        cwd=request.config.rootpath,
        env={k: v for k, v in os.environ.items() if "PYTEST" not in k} | {"XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
