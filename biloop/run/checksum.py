"""A checksum of an array that does not depend on how the array is split over devices.

Σ_i mix(bits_i + mix(i + seed)) mod 2³², for two seeds. Arrays that this process has are summed by
NumPy, which compiles nothing; large ones and those of several hosts where their parts lie.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32

_SEEDS = np.uint32(0x9E3779B9), np.uint32(0x85EBCA6B)
_LARGE = 2**16  # entries up to which a copy to the host is faster than compiling
_BLOCK = 2**20  # words that NumPy mixes at once


def bits(array: Any) -> bytes:
    """The checksum of any array, with its shape and dtype."""
    kind = f"{array.dtype}{list(array.shape)}".encode()
    if isinstance(array, jax.Array):
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            array = jax.random.key_data(array)
        if array.size > _LARGE or not is_here(array):
            return kind + np.asarray(checksum(array)).tobytes()
    return kind + checksum_of_host(np.asarray(array)).tobytes()


def is_here(array: Any) -> bool:
    """Whether this process has the whole array."""
    return not isinstance(array, jax.Array) or (
        array.is_fully_addressable or array.is_fully_replicated
    )


@jax.jit
def checksum(array: Array) -> UInt32[Array, "2"]:
    """The two sums, the same however the array is split over devices."""
    words = _words(array)
    strides = [math.prod(words.shape[axis + 1 :]) % 2**32 for axis in range(words.ndim)]
    index = jnp.zeros(words.shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        index += lax.broadcasted_iota(jnp.uint32, words.shape, axis) * np.uint32(stride)
    return jnp.stack(
        [jnp.sum(_mix(words + _mix(index + seed)), dtype=jnp.uint32) for seed in _SEEDS]
    )


def checksum_of_host(array: np.ndarray) -> UInt32[np.ndarray, "2"]:
    """The same two sums by NumPy."""
    words = _host_words(array)
    sums = np.zeros(2, np.uint32)
    for start in range(0, words.size, _BLOCK):
        block = words[start : start + _BLOCK].astype(np.uint32)
        index = np.arange(start, start + block.size, dtype=np.uint64).astype(np.uint32)
        sums += np.array(
            [np.sum(_mix(block + _mix(index + seed)), dtype=np.uint32) for seed in _SEEDS]
        )
    return sums


def _words(array: Array) -> UInt32[Array, "..."]:
    """The bits of an array as unsigned integers of 32 bits."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = jnp.stack([array.real, array.imag])
    size = array.dtype.itemsize
    if size < 4 and not jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(jnp.int32).astype(jnp.uint32)
    words = {1: jnp.uint8, 2: jnp.uint16}.get(size, jnp.uint32)
    return lax.bitcast_convert_type(array, words).astype(jnp.uint32)


def _host_words(array: np.ndarray) -> np.ndarray:
    """The bits in a row, as integers that `astype(uint32)` turns into what `_words` gives."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = np.stack([np.real(array), np.imag(array)])
    size = array.dtype.itemsize
    if size < 4 and not jnp.issubdtype(array.dtype, jnp.floating):
        return array.reshape(-1).astype(np.int32)
    words = {1: np.uint8, 2: np.uint16}.get(size, np.uint32)
    return np.ascontiguousarray(array).reshape(-1).view(words)


def _mix(words: Any) -> Any:
    """A permutation of the integers below 2³² that leaves no pattern (Wellons' lowbias32)."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(0x7FEB352D)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x846CA68B)
    return words ^ (words >> np.uint32(16))
