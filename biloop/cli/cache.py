"""Compiled programs that are kept for the next run of the command line.

In the user's cache folder, or where the environment variable BILOOP_CACHE says; "off" keeps none.
A folder that JAX was given by its own variable stays, and the library leaves JAX's settings
alone.
"""

import os
import sys
from pathlib import Path

import jax

VARIABLE = "BILOOP_CACHE"
_WORTH = 0.2  # seconds of compilation from which on a program is kept


def keep_compiled() -> Path | None:
    """Switch it on; None where it is off or the folder cannot be had, which is no failure."""
    if os.environ.get(VARIABLE) == "off" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    folder = Path(os.environ.get(VARIABLE) or _user_cache() / "biloop" / "compiled")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH)
    return folder


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
