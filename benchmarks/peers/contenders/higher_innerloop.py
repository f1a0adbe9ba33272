"""higher: N steps of its differentiable SGD inside `innerloop_ctx`. It has no implicit method."""

import higher
import torch

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.torch_loop import TorchLoop, variable
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with higher, where it is ITD."""
    if instance.work.method != "ITD":
        raise Unsupported
    return InnerLoop(instance, device)


class Model(torch.nn.Module):
    """y as the only parameter of a module, whose call is a loss of (x, y)."""

    def __init__(self, y: torch.Tensor):
        torch.nn.Module.__init__(self)
        self.y = torch.nn.Parameter(y.clone())

    def forward(self, loss, x):
        return loss(x, self.y)


class InnerLoop(TorchLoop):
    """ITD; y is copied back into the module after each outer step."""

    def hypergradient(self, x, y, v):
        x, model = variable(x), Model(y)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.work.step_size)
        with higher.innerloop_ctx(model, optimizer) as (functional, differentiable):
            for _ in range(self.work.N):
                differentiable.step(functional(self.loss.inner, x))
            (h,) = torch.autograd.grad(functional(self.loss.outer, x), x)
            (y,) = functional.parameters()
        return h, y.detach(), v
