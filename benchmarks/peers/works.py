"""The works: which problem, at which size, with which loops. Data are made here, in NumPy.

    cleaning        g(x, W) = mean_i σ(x_i) CE_i(W) + 0.001 ‖W‖²,   f(x, W) = mean_j CE_j(W)
    quadratic       g(x, y) = ½ yᵀAy − yᵀ(Bx + c),   f(x, y) = ½ ‖y − t‖² + 0.05 ‖x‖²
    representation  g(H, w) = ‖XHw − t‖²/(2n) + 0.05 ‖w‖²,   f(H, w) = ‖VHw − s‖²/(2m)

The values do not matter for the time, so the data are random, with the shapes of the experiments.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Work:
    """One row of the comparison. The step size is that of both inner loops, α = η.

    `method` AID or ITD is an outer step with loops of N and Q steps; `gradient` and `product` are
    one ∇_y g and one ∇²_y g v, the units that an outer step is made of.
    """

    name: str
    problem: Literal["cleaning", "quadratic", "representation"]
    method: Literal["AID", "ITD", "gradient", "product"]
    sizes: tuple[int, ...]
    N: int = 0
    Q: int = 0
    step_size: float = 0.1
    outer_step_size: float = 0.01
    written: str = "X @ W"

    @property
    def title(self) -> str:
        """The work in words."""
        if self.method in ("gradient", "product"):
            return f"one {self.method} of {_NAMES[self.problem]}, {self._shape}"
        loops = f"N={self.N}, Q={self.Q}" if self.method == "AID" else f"N={self.N}"
        written = f", written {self.written}" if self.problem == "representation" else ""
        return f"{self.method}, {_NAMES[self.problem]} {self._shape}{written}, {loops}"

    @property
    def passes(self) -> int:
        """Gradients and products that an outer step cannot do without: N + Q, or 2N for ITD."""
        return {"AID": self.N + self.Q, "ITD": 2 * self.N}.get(self.method, 1)

    @property
    def _shape(self) -> str:
        return "×".join(map(str, self.sizes))

    def as_json(self) -> dict[str, object]:
        """What `work_from_json` reads."""
        return asdict(self)


_NAMES = {
    "cleaning": "data cleaning",
    "quadratic": "quadratic",
    "representation": "hyper-representation",
}


class Start(NamedTuple):
    """Where the outer loop starts; the adjoint starts at 0."""

    x: np.ndarray
    y: np.ndarray


class Instance(NamedTuple):
    """A work with its numbers, in float32 as the contenders use them."""

    work: Work
    inner: Arrays
    outer: Arrays
    start: Start


def work_from_json(entries: dict) -> Work:
    """The work that `as_json` wrote."""
    return Work(**{**entries, "sizes": tuple(entries["sizes"])})


def make(work: Work) -> Instance:
    """A work with its data, which are the same in every process."""
    return Instance(work, *_arrays(work.problem, work.sizes))


@lru_cache(maxsize=1)  # works on the same data follow each other
def _arrays(problem: str, sizes: tuple[int, ...], seed: int = 0) -> tuple[Arrays, Arrays, Start]:
    inner, outer, start = _MAKERS[problem](np.random.default_rng(seed), *sizes)
    single = {name: a.astype(np.float32) for name, a in (inner | outer).items()}
    return (
        {name: single[name] for name in inner},
        {name: single[name] for name in outer},
        Start(*(a.astype(np.float32) for a in start)),
    )


def _cleaning(rng: np.random.Generator, n: int, d: int, classes: int) -> tuple:
    """n training and n/4 validation samples like MNIST's: a fifth of the pixels lit, a constant."""

    def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
        lit, values = rng.random((2, n, d - 1), dtype=np.float32)
        return np.c_[values * (lit < 0.2), np.ones(n, np.float32)], np.eye(classes)[
            rng.integers(classes, size=n)
        ]

    X, Y = samples(n)
    V, U = samples(max(1, n // 4))
    W = 0.1 * rng.normal(size=(d, classes))
    return {"X": X, "Y": Y}, {"V": V, "U": U}, (rng.normal(size=n), W)


def _quadratic(rng: np.random.Generator, p: int, q: int) -> tuple:
    """Eigenvalues of A between 1 and 10."""
    basis = np.linalg.qr(rng.normal(size=(q, q)))[0]
    A = (basis * np.linspace(1, 10, q)) @ basis.T
    B = rng.normal(size=(q, p)) / p**0.5
    c, t, y = rng.normal(size=(3, q))
    return {"A": A, "B": B, "c": c}, {"t": t}, (rng.normal(size=p), y)


def _representation(rng: np.random.Generator, n: int, d: int, r: int) -> tuple:
    """Linear features of a linear model, scaled so that a step of 0.1 is stable."""
    truth, H = rng.normal(size=(2, d, r)) / d**0.5
    w, w0 = rng.normal(size=(2, r)) / r**0.5
    X, V = rng.normal(size=(2, n, d))
    t, s = (Z @ (truth @ w) + 0.1 * rng.normal(size=n) for Z in (X, V))
    return {"X": X, "t": t}, {"V": V, "s": s}, (H, w0)


_MAKERS = {"cleaning": _cleaning, "quadratic": _quadratic, "representation": _representation}

MNIST = (20_000, 785, 10)
LOOPS = [(20, 20), (1, 1), (1, 20), (20, 1)]

_SMALL = (500, 64, 128)

WORKS = {
    work.name: work
    for work in [
        Work("gradient", "cleaning", "gradient", MNIST),
        Work("product", "cleaning", "product", MNIST),
        *(Work(f"cleaning-{N}-{Q}", "cleaning", "AID", MNIST, N, Q) for N, Q in LOOPS),
        Work("cleaning-itd-20", "cleaning", "ITD", MNIST, 20),
        Work("cleaning-itd-100", "cleaning", "ITD", MNIST, 100),
        Work("quadratic", "quadratic", "AID", (50, 50), 10, 10),
        Work("representation", "representation", "ITD", _SMALL, 20, written="X @ (H @ w)"),
        Work("representation-XH", "representation", "ITD", _SMALL, 20, written="(X @ H) @ w"),
    ]
}

SHORT = ["gradient", "product", "cleaning-20-20", "quadratic", "representation"]
