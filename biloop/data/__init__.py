"""Arrays to make problems of: images, tables, text, noise, and the draws of older experiments."""

from biloop.data.images import digits, fashion_mnist, mnist
from biloop.data.neural_competition import ijcnn1
from biloop.data.samples import Samples, Split, noisy_labels, split, with_bias
from biloop.data.sow_draws import SowDraws, sow
from biloop.data.state_of_union import Speech, excerpts, speeches
from biloop.data.text import LETTERS, fragments, next_letters
from biloop.data.torch_generator import TorchNormal, torch_normal

__all__ = [
    "Samples",
    "Split",
    "mnist",
    "fashion_mnist",
    "digits",
    "ijcnn1",
    "speeches",
    "Speech",
    "excerpts",
    "fragments",
    "next_letters",
    "LETTERS",
    "split",
    "noisy_labels",
    "with_bias",
    "torch_normal",
    "TorchNormal",
    "sow",
    "SowDraws",
]
