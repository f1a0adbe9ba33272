"""Numbers by chance that cost next to nothing: hashes of a key and of counters.

The generators of `jax.random` take longer than a whole step on a small batch. Nothing here is for
secrets; each bit of a hash depends on all bits of what it is made from.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree, UInt32

from biloop.compilation import apart

_ROUNDS = 12
_GOLDEN = 0x9E3779B9


def stream(key: Key[Array, ""], purpose: int) -> Key[Array, ""]:
    """A key for a purpose; those of other purposes do not depend on it."""
    words = jax.random.key_data(key)
    mixed = hashed(words ^ jnp.uint32(purpose * _GOLDEN % 2**32))
    return jax.random.wrap_key_data(mixed, impl=jax.random.key_impl(key))


def word(key: Key[Array, ""], number: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """32 bits for each number."""
    words = jax.random.key_data(key)
    return hashed(words[0] ^ hashed(words[-1] ^ hashed(number)))


def integers(key: Key[Array, ""], t: Any, size: int, below: int) -> Int[Array, " size"]:
    """So many integers from 0 to below − 1, for draw t."""
    count = jnp.arange(size, dtype=jnp.uint32) * jnp.uint32(_GOLDEN)
    first = jnp.broadcast_to(word(key, jnp.asarray(t, jnp.uint32)), (size,))
    return (hashed(first + count) % jnp.uint32(below)).astype(jnp.int32)


def shuffled(key: Key[Array, ""], t: Any, count: int) -> Int[Array, ""]:
    """Entry t mod count of a random permutation of 0, …, count − 1, a new one after each pass.

    The permutation is never made, so that the cost does not grow with count: in round r of the
    swap-or-not shuffle i and i′ = k_r − i are swapped or not, by a hash of (r, max(i, i′)).
    Hoang, Morris and Rogaway (2012), https://arxiv.org/abs/1208.1176.
    """
    t = jnp.asarray(t, jnp.uint32)
    place, seed = t % jnp.uint32(count), word(key, t // jnp.uint32(count))
    for r in range(_ROUNDS):
        salt = hashed(seed + jnp.uint32(r * _GOLDEN % 2**32))
        partner = salt % jnp.uint32(count) + jnp.uint32(count) - place
        partner = jnp.where(partner >= count, partner - jnp.uint32(count), partner)
        swap = hashed(jnp.maximum(place, partner) ^ salt) & jnp.uint32(1)
        place = jnp.where(swap == 1, partner, place)
    return place.astype(jnp.int32)


def once(drawn: Callable[[], PyTree], t: Any) -> PyTree:
    """What is drawn for t. XLA would draw it again for each entry of the rows that it points at."""
    shapes = jax.eval_shape(drawn)
    if not jax.tree.leaves(shapes):
        return drawn()
    nothing = lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)  # noqa: E731
    return apart(jnp.asarray(t, jnp.uint32) < jnp.uint32(2**32 - 1), drawn, nothing)


def hashed(word: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection that mixes the bits of a word (lowbias32 of Wellons)."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x7FEB352D)
    word = (word ^ (word >> 15)) * jnp.uint32(0x846CA68B)
    return word ^ (word >> 16)
