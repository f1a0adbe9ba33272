"""Checksums: the same by NumPy as where an array lies, and other for other bits."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from biloop.run.checksum import checksum, checksum_of_host


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16, "int64", "int8", "bool", "c16"]
)
def test_host_and_device_give_the_same_checksum(dtype):
    entries = np.random.default_rng(0).normal(size=(7, 3)) * 100
    for values in (entries, entries[:1, :1], entries[0, 0]):
        whole = np.asarray(values).astype(dtype)
        np.testing.assert_array_equal(checksum_of_host(whole), checksum(jnp.asarray(whole)))
    changed = np.array(entries.astype(dtype))
    changed[3, 1] = changed[3, 1] == 0
    assert not np.array_equal(checksum_of_host(changed), checksum_of_host(entries.astype(dtype)))
