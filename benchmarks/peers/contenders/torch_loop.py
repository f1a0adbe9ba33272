"""The base loop of the contenders that use PyTorch: a Python loop, as their users write it."""

from abc import abstractmethod

import torch

from benchmarks.peers.contenders.base import Contender
from benchmarks.peers.contenders.torch_losses import losses
from benchmarks.peers.works import Instance


class TorchLoop(Contender):
    """x ← x − β h, with h and the next y and v from `hypergradient`."""

    def __init__(self, instance: Instance, device: str):
        self.work, self.device, self.loss = instance.work, device, losses(instance, device)

    @abstractmethod
    def hypergradient(
        self, x: torch.Tensor, y: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """h, y and v, all without a graph, from x, y and v without one."""

    def hypergradients(self, count):
        return [h.cpu().numpy() for h in self._loop(count, keep=True)]

    def run(self, steps):
        self._loop(steps, keep=False)
        wait(self.device)

    def _loop(self, steps: int, keep: bool) -> list[torch.Tensor]:
        x, y, v = self.loss.x, self.loss.y, torch.zeros_like(self.loss.y)
        kept = []
        for _ in range(steps):
            h, y, v = self.hypergradient(x, y, v)
            x = x - self.work.outer_step_size * h
            if keep:
                kept.append(h)
        return kept


def wait(device: str) -> None:
    """Until a GPU has done what it was told."""
    if device == "gpu":
        torch.cuda.synchronize()


def variable(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as the start of a graph."""
    return tensor.detach().requires_grad_()


def outer_gradients(
    value: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """∇_x f and ∇_y f; zero where f does not depend on x."""
    f_x, f_y = torch.autograd.grad(value, (x, y), allow_unused=True)
    return torch.zeros_like(x) if f_x is None else f_x, f_y
