"""Files of a run as NumPy sees them, to be looked into and to be damaged."""

import json

import numpy as np


def read_npz(file):
    with np.load(file, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    return arrays, json.loads(str(arrays.pop("meta")))


def write_npz(file, arrays, meta):
    np.savez(file, meta=np.array(json.dumps(meta)), **arrays)
