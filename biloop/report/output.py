"""Where output goes, checked before the work is done and not after."""

from importlib.util import find_spec
from pathlib import Path

FIGURES = (".png", ".pdf", ".svg")


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, by opening it; a file that is there stays as it is."""
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn or written: no matplotlib, unknown ending, no folder."""
    if find_spec("matplotlib") is None:
        raise ImportError("drawing a figure needs matplotlib: pip install 'biloop[report]'")
    if path.suffix.lower() not in FIGURES:
        raise ValueError(f"a figure must end in {', '.join(FIGURES)}, got {str(path)!r}")
    check_writable(path)
