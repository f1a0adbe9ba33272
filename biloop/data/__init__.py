"""Arrays to make problems of: images, digits, label noise, and the draws of an older experiment."""

from biloop.data.images import digits, fashion_mnist, mnist
from biloop.data.samples import Samples, Split, noisy_labels, split, with_bias
from biloop.data.sow import SowDraws, sow
from biloop.data.torch_generator import TorchNormal, torch_normal

__all__ = [
    "Samples",
    "Split",
    "mnist",
    "fashion_mnist",
    "digits",
    "split",
    "noisy_labels",
    "with_bias",
    "torch_normal",
    "TorchNormal",
    "sow",
    "SowDraws",
]
