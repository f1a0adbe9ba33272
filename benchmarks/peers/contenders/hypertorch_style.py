"""The loops of hypertorch (Grazzi et al., ICML 2020), which is not on PyPI, written here.

Both differentiate a map w ↦ Φ(w, λ) whose fixed point is the inner solution, here a gradient step:

    fixed point   v ← (∂_w Φ)ᵀ v + ∇_w f,  K times from 0;   h = ∇_λ f + (∂_λ Φ)ᵀ v
    reverse       the same with the maps at w^{N−1}, …, w^0 instead of one: ITD, step by step
"""

import torch

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.torch_loop import TorchLoop, outer_gradients, variable
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work as a fixed-point map."""
    kinds = {"AID": FixedPoint, "ITD": Reverse}
    if instance.work.method not in kinds:
        raise Unsupported
    return kinds[instance.work.method](instance, device)


class _Map(TorchLoop):
    """The gradient step as a map of which the solution is a fixed point."""

    def step(self, x: torch.Tensor, y: torch.Tensor, create_graph: bool) -> torch.Tensor:
        """Φ(y, x) = y − α ∇_y g(x, y)."""
        gradient = torch.autograd.grad(self.loss.inner(x, y), y, create_graph=create_graph)[0]
        return y - self.work.step_size * gradient


class FixedPoint(_Map):
    """AID with v from 0: Q + 1 products with the transposed map, one of them for x."""

    def hypergradient(self, x, y, v):
        for _ in range(self.work.N):
            y = self.step(x, variable(y), create_graph=False)
        x, y = variable(x), variable(y)
        f_x, f_y = outer_gradients(self.loss.outer(x, y), x, y)
        mapped = self.step(x, y, create_graph=True)
        v = torch.zeros_like(f_y)
        for _ in range(self.work.Q):
            v = torch.autograd.grad(mapped, y, v, retain_graph=True)[0] + f_y
        return f_x + torch.autograd.grad(mapped, x, v)[0], y.detach(), v


class Reverse(_Map):
    """ITD that keeps the iterates and builds the graph of one step at a time."""

    def hypergradient(self, x, y, v):
        path = [y]
        for _ in range(self.work.N):
            path.append(self.step(x, variable(path[-1]), create_graph=False).detach())
        x, end = variable(x), variable(path[-1])
        h, v = outer_gradients(self.loss.outer(x, end), x, end)
        for before in reversed(path[:-1]):
            y = variable(before)
            mapped = self.step(x, y, create_graph=True)
            v, contribution = torch.autograd.grad(mapped, (y, x), v)
            h = h + contribution
        return h, path[-1], v
