"""What all figures of a report have in common."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plain_axes(axes: "Axes") -> None:
    """A light grid behind the curves and no frame at the top and at the right."""
    axes.grid(visible=True, which="major", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
