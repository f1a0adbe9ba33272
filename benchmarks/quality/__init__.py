"""Tuned sampled methods beside loops that size themselves; see `__main__`."""
