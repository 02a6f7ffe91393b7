"""Numbers in reports, with as many digits for errors of millions as for errors of millionths."""

from __future__ import annotations

import math

MOST_DECIMALS = 6


def value_text(value: float) -> str:
    """A metric or a loss with six digits: 0.912346, 25312.5, 1.23457e-09."""
    return f"{value:#.6g}".rstrip(".")


def change_text(change: float) -> str:
    """A change with its sign and three digits: +0.00123."""
    return f"{change:+z#.3g}".rstrip(".")


def estimate_text(change: float, standard_error: float) -> str:
    """A change and two digits of its standard error, with equally many decimals: -0.0123 ± 0.0021.

    Without a standard error (NaN) it is the change alone.
    """
    if math.isnan(standard_error):
        return change_text(change)
    if not 0 < standard_error < math.inf:
        return f"{change_text(change)} ± {standard_error:g}"
    decimals = max(0, 1 - math.floor(math.log10(standard_error)))
    if decimals > MOST_DECIMALS:
        return f"{change_text(change)} ± {standard_error:.1e}"
    return f"{change:+z.{decimals}f} ± {standard_error:.{decimals}f}"
