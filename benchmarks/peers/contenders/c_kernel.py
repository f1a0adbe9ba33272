"""One gradient or product of the cleaning problem in hand-written C: the floor, no contender."""

from benchmarks.peers.contenders.base import Contender, Unavailable, Unsupported
from benchmarks.peers.floor import Kernel
from benchmarks.peers.works import Instance


def prepare(instance: Instance, device: str) -> Contender:
    """The kernels, where the work is one of them."""
    work = instance.work
    if work.method not in ("gradient", "product") or work.sizes[-1] != 10:
        raise Unsupported
    if device != "cpu":
        raise Unavailable("for the CPU only")
    return FusedPass(instance)


class FusedPass(Contender):
    """A pass over X per step."""

    def __init__(self, instance: Instance):
        kernel = Kernel(instance)
        self.unit = kernel.gradient if instance.work.method == "gradient" else kernel.product

    def hypergradients(self, count):
        return [self.unit().copy()]

    def run(self, steps):
        for _ in range(steps):
            self.unit()
