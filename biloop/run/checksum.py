"""A checksum of an array that does not depend on how the array is split over devices."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt32


@jax.jit
def checksum(array: Array) -> UInt32[Array, "2"]:
    """Two sums over the bits of an array, the same however it is split over devices.

    Σ_i mix(bits_i + mix(i + seed)) mod 2³², for two seeds. The sum runs where the parts lie.
    """
    words = _words(array)
    strides = [math.prod(words.shape[axis + 1 :]) % 2**32 for axis in range(words.ndim)]
    index = jnp.zeros(words.shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        index += lax.broadcasted_iota(jnp.uint32, words.shape, axis) * np.uint32(stride)
    seeds = np.uint32(0x9E3779B9), np.uint32(0x85EBCA6B)
    return jnp.stack(
        [jnp.sum(_mix(words + _mix(index + seed)), dtype=jnp.uint32) for seed in seeds]
    )


def _words(array: Array) -> UInt32[Array, "..."]:
    """The bits of an array as unsigned integers of 32 bits."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = jnp.stack([array.real, array.imag])
    size = array.dtype.itemsize
    if size < 4 and not jnp.issubdtype(array.dtype, jnp.floating):
        return array.astype(jnp.int32).astype(jnp.uint32)
    words = {1: jnp.uint8, 2: jnp.uint16}.get(size, jnp.uint32)
    return lax.bitcast_convert_type(array, words).astype(jnp.uint32)


def _mix(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A permutation of the integers below 2³² that leaves no pattern (Wellons' lowbias32)."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))
