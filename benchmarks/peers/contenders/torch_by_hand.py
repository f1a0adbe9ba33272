"""The loops in plain PyTorch: one graph of ∇_y g, reused for all Q products."""

import torch

from benchmarks.peers.contenders.base import Contender
from benchmarks.peers.contenders.torch_loop import TorchLoop, outer_gradients, variable, wait
from benchmarks.peers.contenders.torch_losses import losses
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with torch.autograd.grad."""
    kinds = {"AID": ImplicitByHand, "ITD": UnrolledByHand}
    return kinds.get(instance.work.method, Unit)(instance, device)


class ImplicitByHand(TorchLoop):
    """AID: N gradients, then Q products through one graph."""

    def hypergradient(self, x, y, v):
        inner, a = self.loss.inner, self.work.step_size
        for _ in range(self.work.N):
            y = variable(y)
            (gradient,) = torch.autograd.grad(inner(x, y), y)
            y = y.detach() - a * gradient

        x, y = variable(x), variable(y)
        f_x, f_y = outer_gradients(self.loss.outer(x, y), x, y)
        (gradient,) = torch.autograd.grad(inner(x, y), y, create_graph=True)
        for _ in range(self.work.Q):
            (product,) = torch.autograd.grad(gradient, y, v, retain_graph=True)
            v = v - a * (product - f_y)
        (cross,) = torch.autograd.grad(gradient, x, v)
        return f_x - cross, y.detach(), v


class UnrolledByHand(TorchLoop):
    """ITD: the graph of all N steps, then one pass back."""

    def hypergradient(self, x, y, v):
        x, y = variable(x), variable(y)
        for _ in range(self.work.N):
            (gradient,) = torch.autograd.grad(self.loss.inner(x, y), y, create_graph=True)
            y = y - self.work.step_size * gradient
        (h,) = torch.autograd.grad(self.loss.outer(x, y), x)
        return h, y.detach(), v


class Unit(Contender):
    """Gradients, or products through one graph."""

    def __init__(self, instance: Instance, device: str):
        self.work, self.device, self.loss = instance.work, device, losses(instance, device)

    def hypergradients(self, count):
        y = variable(self.loss.y)
        return [self._unit(y)(y.detach()).cpu().numpy()]

    def run(self, steps):
        y = variable(self.loss.y)
        unit, v = self._unit(y), y.detach()
        for _ in range(steps):
            v = v - self.work.step_size * unit(v)
        wait(self.device)

    def _unit(self, y: torch.Tensor):
        def gradient(y: torch.Tensor, create_graph: bool = False) -> torch.Tensor:
            y = y if create_graph else variable(y)
            value = self.loss.inner(self.loss.x, y)
            return torch.autograd.grad(value, y, create_graph=create_graph)[0]

        if self.work.method == "gradient":
            return gradient
        graph = gradient(y, create_graph=True)
        return lambda v: torch.autograd.grad(graph, y, v, retain_graph=True)[0]
