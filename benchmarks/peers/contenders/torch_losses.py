"""The losses of the works in PyTorch, as one writes them: shared by all that use PyTorch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from benchmarks.peers.reference import PENALTY, RIDGE
from benchmarks.peers.works import Arrays, Instance


class Losses(NamedTuple):
    """inner(x, y) and outer(x, y) with their data on the device, and the start."""

    inner: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    outer: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    x: torch.Tensor
    y: torch.Tensor


def losses(instance: Instance, device: str) -> Losses:
    """The losses of an instance; `device` is cpu or gpu."""
    where = "cuda" if device == "gpu" else "cpu"

    def tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(a).to(where) for name, a in arrays.items()}

    make = _LOSSES[instance.work.problem, instance.work.written]
    inner, outer = make(tensors(instance.inner), tensors(instance.outer))
    x, y = (torch.from_numpy(a.copy()).to(where) for a in instance.start)
    return Losses(inner, outer, x, y)


def _cleaning(train, validation):
    # Classes as integers: PyTorch's fastest cross entropy.
    labels, clean = train["Y"].argmax(1), validation["U"].argmax(1)

    def inner(x, W):
        losses = F.cross_entropy(train["X"] @ W, labels, reduction="none")
        return (torch.sigmoid(x) * losses).mean() + PENALTY * (W**2).sum()

    def outer(x, W):
        return F.cross_entropy(validation["V"] @ W, clean)

    return inner, outer


def _quadratic(d, e):
    def inner(x, y):
        return 0.5 * y @ (d["A"] @ y) - y @ (d["B"] @ x + d["c"])

    def outer(x, y):
        return 0.5 * ((y - e["t"]) ** 2).sum() + 0.05 * (x**2).sum()

    return inner, outer


def _representation(predict):
    def make(train, validation):
        def inner(H, w):
            residual = predict(train["X"], H, w) - train["t"]
            return 0.5 * (residual**2).mean() + 0.5 * RIDGE * (w**2).sum()

        def outer(H, w):
            return 0.5 * ((predict(validation["V"], H, w) - validation["s"]) ** 2).mean()

        return inner, outer

    return make


_LOSSES = {
    ("cleaning", "X @ W"): _cleaning,
    ("quadratic", "X @ W"): _quadratic,
    ("representation", "X @ (H @ w)"): _representation(lambda X, H, w: X @ (H @ w)),
    ("representation", "(X @ H) @ w"): _representation(lambda X, H, w: (X @ H) @ w),
}
