"""The normal random numbers of torch, so that experiments that were drawn with it can be repeated.

The words of the Mersenne twister are equal. Logarithms and cosines in float32 are not the same
on all machines, here as in torch: draws of 16 numbers or more agree to a few units in the last
place, shorter ones are equal.
"""

import math
import operator

import numpy as np

_BLOCK = 16


class TorchNormal:
    """`torch.randn` on the CPU in float32 after `torch.manual_seed(seed)`, call by call."""

    def __init__(self, seed: int) -> None:
        """Fill the state as Matsumoto and Nishimura do; torch uses the low 32 bits of a seed."""
        words = [operator.index(seed) & 0xFFFFFFFF]
        for i in range(1, 624):
            words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & 0xFFFFFFFF)
        self._words = np.random.MT19937()
        self._words.state = {
            "bit_generator": "MT19937",
            "state": {"key": np.array(words, np.uint32), "pos": 624},
        }
        self._kept: float | None = None

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """The next numbers, float32; like torch, in another way for fewer than 16."""
        n = math.prod(shape)
        values = self._many(n) if n >= _BLOCK else [self._one() for _ in range(n)]
        return np.asarray(values, np.float32).reshape(shape)

    def _many(self, n: int) -> np.ndarray:
        """Blocks of 16; where the last block is not full, the last 16 numbers are drawn anew."""
        uniform = self._uniform(n)
        full = n - n % _BLOCK
        values = np.empty(n, np.float32)
        values[:full] = _box_muller(uniform[:full])
        if full < n:
            values[-_BLOCK:] = _box_muller(self._uniform(_BLOCK))
        return values

    def _uniform(self, n: int) -> np.ndarray:
        """The low 24 bits of a word each, over 2²⁴."""
        return (self._words.random_raw(n) & 0xFFFFFF).astype(np.float32) / np.float32(1 << 24)

    def _one(self) -> float:
        """One number in double precision; the other one of its pair is kept for the next call."""
        if self._kept is not None:
            value, self._kept = self._kept, None
            return value
        u, u_2 = (self._double() for _ in range(2))
        radius, angle = math.sqrt(-2 * math.log1p(-u_2)), 2 * math.pi * u
        self._kept = radius * math.sin(angle)
        return radius * math.cos(angle)

    def _double(self) -> float:
        """The low 53 bits of two words, over 2⁵³."""
        high, low = self._words.random_raw(2).tolist()
        return (high << 32 | low) % 2**53 / 2**53


def torch_normal(seed: int) -> TorchNormal:
    """The generator of torch after `torch.manual_seed(seed)`: `.normal(shape)` is `randn`.

    Parameters
    ----------
    seed : int

    Examples
    --------
    >>> print(bl.data.torch_normal(0).normal((2,)))
    [ 1.541 -0.293]
    """
    return TorchNormal(seed)


def _box_muller(uniform: np.ndarray) -> np.ndarray:
    """Per block, the first eight numbers give the radius and the last eight the angle.

    √(−2 ln(1 − u)) cos 2πu',   √(−2 ln(1 − u)) sin 2πu'
    """
    u, u_2 = np.moveaxis(uniform.reshape(-1, 2, _BLOCK // 2), 1, 0)
    radius, angle = np.sqrt(np.float32(-2) * np.log(1 - u)), np.float32(2 * np.pi) * u_2
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
