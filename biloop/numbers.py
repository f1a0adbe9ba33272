"""Numbers as a reader wants them: few digits, no padding, no `e+08`."""

import math

LARGEST_WRITTEN_OUT = 10**5


def short(value: float, digits: int = 3) -> str:
    """The number to `digits` significant digits: 0.05, 2.5, 1.84e-4, 2.13e8; ∞ and NaN by name."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "NaN")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -3 <= int(exponent) < digits or float(mantissa) == 0.0:
        return f"{float(f'{mantissa}e{exponent}'):.{digits}g}"
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def count(value: float, digits: int = 3) -> str:
    """A number of things: in full while it is short, N/A where it is infinite."""
    if value == math.inf:
        return "N/A"
    return f"{value:.0f}" if value < LARGEST_WRITTEN_OUT else short(value, digits)
