"""Compiled programs that are kept for the next run of the command line.

In the user's cache folder, or where the environment variable BILOOP_CACHE says; "off" keeps none.
A folder that JAX was given by its own variable stays, and the library leaves JAX's settings
alone.
"""

import functools
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
    try:
        folder = Path(os.environ.get(VARIABLE) or _user_cache() / "biloop" / "compiled")
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return None
    except RuntimeError:  # of Path.home
        _tell_of_no_home()
        return None
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH)
    return folder


@functools.cache
def _tell_of_no_home() -> None:
    """Once, however many commands one process runs."""
    sentence = "there is no home folder, so compiled programs are not kept"
    print(f"biloop: {sentence}; {VARIABLE} names another folder, or is off", file=sys.stderr)


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
