"""betty: two `ImplicitProblem`s and its `Engine`, with the Neumann series for AID."""

import logging

import torch
from betty.configs import Config, EngineConfig
from betty.engine import Engine
from betty.problems import ImplicitProblem

from benchmarks.peers.contenders.base import Contender, Unsupported
from benchmarks.peers.contenders.torch_loop import wait
from benchmarks.peers.contenders.torch_losses import losses
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The work with betty, where it is AID: it has no unrolling."""
    if instance.work.method != "AID":
        raise Unsupported
    logging.disable(logging.INFO)
    return BettyEngine(instance, device)


class Variable(torch.nn.Module):
    """A tensor as a module."""

    def __init__(self, values: torch.Tensor):
        torch.nn.Module.__init__(self)
        self.values = torch.nn.Parameter(values.clone())

    def forward(self):
        return self.values


class BettyEngine(Contender):
    """`neumann_iterations` products give one more term, the v of as many steps from 0."""

    def __init__(self, instance: Instance, device: str):
        self.work, self.device, self.loss = instance.work, device, losses(instance, device)
        self.engine, self.seen = self._engine(keep=False)

    def hypergradients(self, count):
        engine, seen = self._engine(keep=True)
        engine.train_iters = count * self.work.N
        engine.run()
        return seen

    def run(self, steps):
        self.engine.train_iters = steps * self.work.N
        self.engine.run()
        wait(self.device)

    def _engine(self, keep: bool):
        work, loss, seen = self.work, self.loss, []

        class Outer(ImplicitProblem):
            def training_step(self, batch):
                return loss.outer(self(), self.inner())

            def grad_callback(self):
                if keep:
                    seen.append(self.module.values.grad.detach().cpu().numpy().copy())

        class Inner(ImplicitProblem):
            def training_step(self, batch):
                return loss.inner(self.outer(), self())

        def problem(kind, name, values, step_size, config):
            module = Variable(values)
            return kind(
                name=name,
                module=module,
                optimizer=torch.optim.SGD(module.parameters(), lr=step_size),
                train_data_loader=[(torch.zeros(()),)],  # full batch: the losses hold the data
                config=config,
            )

        neumann = Config(
            type="neumann",
            unroll_steps=work.N,
            neumann_iterations=work.Q - 1,
            neumann_alpha=work.step_size,
        )
        direct = Config(retain_graph=True)  # f is differentiated twice: for x, and for the series
        outer = problem(Outer, "outer", loss.x, work.outer_step_size, direct)
        inner = problem(Inner, "inner", loss.y, work.step_size, neumann)
        engine = Engine(
            config=EngineConfig(train_iters=work.N, strategy=self.device),
            problems=[outer, inner],
            dependencies={"u2l": {outer: [inner]}, "l2u": {inner: [outer]}},
        )
        return engine, seen
