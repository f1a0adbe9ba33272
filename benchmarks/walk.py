"""How far one walks through the package to follow a call: its files, and the hops between them.

Ridge regression of ten weights with one penalty, AID with fixed loops. A hop is a call from one
file of the package into another one, tracing included; a second call, for which everything is
compiled, shows what the host does for a run.

    python benchmarks/walk.py
    python benchmarks/walk.py --pairs 15    # and which two files call each other most
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import biloop as bl

HOME = str(Path(bl.__file__).parent) + "/"


def inner(x, y, X, t):
    """½ mean (Xy − t)² + ½ eˣ ‖y‖²."""
    return jnp.mean((X @ y - t) ** 2) / 2 + jnp.exp(x) * jnp.sum(y**2) / 2


def outer(x, y, V, s):
    """½ mean (Vy − s)²."""
    return jnp.mean((V @ y - s) ** 2) / 2


def walked(call: Callable[[], object]) -> tuple[set[str], Counter]:
    """The files of the package that a call passes through, and the hops from one to another."""
    files: set[str] = set()
    hops: Counter = Counter()
    path: list[str] = []  # of the calls that are open, those of other packages left out

    def notice(frame, event, _):
        name = frame.f_code.co_filename
        if not name.startswith(HOME):
            return
        if event == "call":
            file = name.removeprefix(HOME)
            files.add(file)
            if path and path[-1] != file:
                hops[path[-1], file] += 1
            path.append(file)
        elif event == "return" and path:
            path.pop()

    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files, hops


def calls() -> dict[str, Callable[[], object]]:
    """What is followed, by name."""
    rng = np.random.default_rng(0)
    X, V = jnp.asarray(rng.normal(size=(2, 30, 10)), jnp.float32)
    t, s = jnp.asarray(rng.normal(size=(2, 30)), jnp.float32)
    x, y = jnp.zeros((), jnp.float32), jnp.zeros(10, jnp.float32)
    problem = bl.Problem(inner, outer, (X, t), (V, s))
    method = bl.AID(bl.GradientDescent(0.1, 10), bl.Richardson(0.1, 10))
    over = {"inner.step_size": [0.05, 0.1]}
    return {
        "solve": lambda: bl.solve(problem, x, y, method, outer=0.1, steps=100),
        "sweep": lambda: bl.sweep(problem, x, y, method, outer=0.1, over=over, steps=100),
    }


def main() -> None:
    """Print files and hops of a first and of a second call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{'':24}{'files':>8}{'hops':>8}")
    for name, call in calls().items():
        for which in ("first", "second"):
            files, hops = walked(call)
            print(f"{name + ', ' + which + ' call':24}{len(files):8}{sum(hops.values()):8}")
            for (caller, callee), times in hops.most_common(arguments.pairs):
                print(f"{times:12}  {caller} → {callee}")


if __name__ == "__main__":
    main()
