"""What a measurement was made on: the machine, without its name, and the versions."""

import importlib.metadata
import math
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.peers.contenders import CONTENDERS


def machine(device: str) -> str:
    """The processor, the cores that may be used, the memory; the GPU."""
    text = f"{_processor()}, {cores()} cores"
    if (memory := _memory_bytes()) is not None:
        text += f", {memory / 2**30:.0f} GiB"
    return f"{text}; {_gpu()}" if device == "gpu" else text


def cores() -> int:
    """Those that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def load() -> float:
    """The processes that wanted a core in the last minute; NaN where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return math.nan


def versions() -> dict[str, str]:
    """Those of Python and of all packages that are compared, "not installed" included."""
    packages = dict.fromkeys(p for entry in CONTENDERS.values() for p in entry.packages)
    found = {package: _version(package) for package in (*packages, "numpy")}
    return {"biloop": _our_version(), "Python": platform.python_version()} | found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _our_version() -> str:
    """That of this checkout, which need not be installed to be measured."""
    source = Path(__file__).parents[2] / "biloop" / "__init__.py"
    found = re.search(r'__version__ = "(.+)"', source.read_text(encoding="utf-8"))
    return found[1] if found else "unknown"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _gpu() -> str:
    command = shutil.which("nvidia-smi")
    if command is None:
        return "an unknown GPU"
    done = subprocess.run(
        [command, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True
    )
    return ", ".join(done.stdout.split("\n")[:-1]) or "an unknown GPU"
