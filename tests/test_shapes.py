"""The check of shapes that make test-all switches on finds wrong shapes and dtypes."""

import os
import subprocess
import sys

PLANTED = '''"""Planted."""
from jaxtyping import Array, Float
import jax.numpy as jnp

def total(x: Float[Array, " n"], names: int) -> Float[Array, ""]:
    return jnp.sum(x) if names != "wrong" else x
'''
PROGRAM = """
import sys
sys.path.insert(0, ".")
from jaxtyping import TypeCheckError, install_import_hook
import tests.shapes
install_import_hook("planted", "tests.shapes.checked")
import jax.numpy as jnp, planted
print(planted.total(jnp.ones(3), "a word where an int is expected is not its business"))
for arguments in [(jnp.ones((3, 3)), 1), (jnp.arange(3), 1), (jnp.ones(3), "wrong")]:
    try:
        planted.total(*arguments)
    except TypeCheckError:
        print("caught")
"""


def test_wrong_shapes_and_dtypes_are_caught(tmp_path, request):
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(request.config.rootpath), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["3.0", "caught", "caught", "caught"], done.stderr
