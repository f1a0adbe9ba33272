"""TorchOpt: `custom_root` with a Neumann series for AID, its functional SGD for ITD."""

import torch
import torchopt

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.torch_loop import TorchLoop, variable
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with TorchOpt."""
    kinds = {"AID": Implicit, "ITD": Unrolled}
    if instance.work.method not in kinds:
        raise Unsupported
    return kinds[instance.work.method](instance, device)


class Implicit(TorchLoop):
    """AID: `maxiter` products give maxiter + 1 terms, the v of as many steps from 0."""

    def __init__(self, instance: Instance, device: str):
        TorchLoop.__init__(self, instance, device)
        work, inner = self.work, self.loss.inner
        optimality = torch.func.grad(lambda y, x: inner(x, y))
        series = torchopt.linear_solve.solve_inv(ns=True, maxiter=work.Q - 1, alpha=work.step_size)

        @torchopt.diff.implicit.custom_root(optimality, argnums=1, solve=series)
        def solve(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                for _ in range(work.N):
                    y = variable(y)
                    (gradient,) = torch.autograd.grad(inner(x.detach(), y), y)
                    y = y.detach() - work.step_size * gradient
            return y

        self.solve = solve

    def hypergradient(self, x, y, v):
        x = variable(x)
        y = self.solve(y, x)
        (h,) = torch.autograd.grad(self.loss.outer(x, y), x)
        return h, y.detach(), v


class Unrolled(TorchLoop):
    """ITD through N differentiable updates."""

    def hypergradient(self, x, y, v):
        x, y = variable(x), variable(y)
        optimizer = torchopt.sgd(self.work.step_size)
        state = optimizer.init(y)
        for _ in range(self.work.N):
            (gradient,) = torch.autograd.grad(self.loss.inner(x, y), y, create_graph=True)
            updates, state = optimizer.update(gradient, state, params=y, inplace=False)
            y = torchopt.apply_updates(y, updates, inplace=False)
        (h,) = torch.autograd.grad(self.loss.outer(x, y), x)
        return h, y.detach(), v
