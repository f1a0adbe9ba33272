"""The floor: what this machine needs at least for the work that no contender can avoid.

On a CPU it is measured with floor.c, compiled by the system's compiler at that moment; on a GPU it
is the time to read the data twice, for X W and for Xᵀ R, at the bandwidth of a copy.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers.contenders.base import Unavailable
from benchmarks.peers.reference import PENALTY
from benchmarks.peers.works import Instance, Work, make

SOURCE = Path(__file__).with_name("floor.c")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]


def unit(work: Work, device: str) -> tuple[float, str]:
    """Seconds for one gradient or product of a work, and what was measured."""
    if device == "gpu":
        X = make(work).inner.get("X")
        if X is None:
            raise Unavailable("no floor for this work on a GPU")
        return 2 * X.nbytes / copy_bandwidth(), "two passes over X at the bandwidth of a copy"
    if work.problem == "cleaning":
        return best(Kernel(make(work)).gradient), "fused gradient in C, X read once"
    c = library()
    if work.problem == "quadratic":
        _, q = work.sizes
        return matvec(c, q, q), f"one {q}×{q} product with a vector in C"
    n, d, r = work.sizes
    seconds = 2 * (matvec(c, n, d) + matvec(c, d, r))
    return seconds, f"products of vectors with X, H, Xᵀ and Hᵀ in C ({n}×{d} and {d}×{r})"


def rates(work: Work, device: str) -> dict[str, str]:
    """Bandwidth and the rate of matrix products on the shapes of a cleaning work, as text."""
    if device == "gpu":
        return {"bandwidth of a copy": f"{copy_bandwidth() / 1e9:.0f} GB/s"}
    instance = make(work)
    X, W = instance.inner["X"], instance.start.y
    R = X @ W
    flops = 2 * X.size * W.shape[1]
    found = {}
    for name, product in {"X @ W": lambda: X @ W, "X.T @ R": lambda: X.T @ R}.items():
        seconds = best(product)
        found[f"NumPy's {name}"] = f"{1e3 * seconds:.1f} ms, {flops / seconds / 1e9:.0f} GFLOP/s"
    try:
        c = library()
    except Unavailable as why:
        return found | {"C": str(why)}
    seconds = best(lambda: c.read_all(ctypes.c_long(X.size), pointer(X)))
    text = f"{1e3 * seconds:.2f} ms, {X.nbytes / seconds / 1e9:.0f} GB/s"
    return {f"reading X once ({X.nbytes / 1e6:.0f} MB)": text} | found


class Kernel:
    """The fused passes of floor.c over the data of a cleaning work; weights are 10 × d there."""

    def __init__(self, instance: Instance):
        self.c = library()
        self.X = np.ascontiguousarray(instance.inner["X"])
        self.labels = instance.inner["Y"].argmax(axis=1).astype(np.int32)
        self.w = (1 / (1 + np.exp(-instance.start.x))).astype(np.float32)
        self.W = np.ascontiguousarray(instance.start.y.T)
        self.P = np.zeros(instance.inner["Y"].shape, np.float32)
        self.out = np.zeros_like(self.W)
        self.gradient()  # the product needs P

    def gradient(self) -> np.ndarray:
        """∇_y g at the start, as d × 10."""
        return self._call(self.c.gradient, self.X, self.labels, self.w, self.P, self.W)

    def product(self) -> np.ndarray:
        """∇²_y g times the y of the start, as d × 10."""
        return self._call(self.c.product, self.X, self.w, self.P, self.W)

    def _call(self, function: Callable[..., int], *arrays: np.ndarray) -> np.ndarray:
        pointers = map(pointer, arrays)
        penalty = ctypes.c_float(2 * PENALTY)
        if function(*self.X.shape, *pointers, penalty, pointer(self.out)):
            raise MemoryError("floor.c could not allocate")
        return self.out.T


def library() -> ctypes.CDLL:
    """The functions of floor.c."""
    command = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if command is None:
        raise Unavailable("no compiler")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "floor.so")
        done = subprocess.run(
            [command, *FLAGS, "-o", target, SOURCE, "-lm"], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Unavailable(f"{command} failed: {done.stderr.strip().splitlines()[-1]}")
        return ctypes.CDLL(str(target))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """For a C function; the array must be contiguous and outlive the call."""
    assert array.flags.c_contiguous
    return array.ctypes.data_as(ctypes.c_void_p)


def matvec(c: ctypes.CDLL, rows: int, columns: int, repeats: int = 2000) -> float:
    """Seconds for one product of a matrix in the cache with a vector, on one core."""
    A = np.ones((rows, columns), np.float32)
    x, y = np.ones(columns, np.float32), np.zeros(rows, np.float32)
    arguments = repeats, rows, columns, pointer(A), pointer(x), pointer(y)
    return best(lambda: c.matvec(*arguments)) / repeats


def copy_bandwidth(megabytes: int = 1024) -> float:
    """Bytes read and written per second by an elementwise kernel on JAX's default device."""
    import jax
    import jax.numpy as jnp

    a = jnp.zeros(megabytes * 2**18, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 2 * a.nbytes / best(lambda: copy(a).block_until_ready())


def best(action: Callable[[], object], turns: int = 20) -> float:
    """The shortest of several times, after one that does not count."""
    action()
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
