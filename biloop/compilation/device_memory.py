"""How many bytes are free, for whoever sizes itself by that."""

import os
from pathlib import Path

import jax

_UNKNOWN = 2**32  # bytes, where the system does not tell
_GROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def free_bytes() -> int:
    """Memory that can still be had on the device that JAX uses by default.

    On the host also what the limit of a container leaves, where there is one.
    """
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return max(0, min(_host_bytes(), _container_bytes()))


def _host_bytes() -> int:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _container_bytes() -> int:
    try:
        limit = int((_GROUP / "memory.max").read_text())
        return limit - int((_GROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no control group, or "max": no limit
        return 2**62
