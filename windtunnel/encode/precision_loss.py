"""What float32 cannot tell apart: columns that vary little around a large value."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Name = Callable[[int], str]
FLOAT32_STEP = 2.0**-24
"""Relative distance of neighbouring float32 numbers."""
FEW_STEPS = 10_000
SAMPLE = 1_000
"""Rows by which columns are told that float32 does not blur."""


class Blur:
    """Says once of each column that float32 tells few of its values apart; ``name`` gives what it is called."""

    def __init__(self) -> None:
        self._judged: set[int] = set()

    def look(self, columns: Sequence[int], read: NDArray[Any], name: Name) -> None:
        """Look closer at those of the columns, whose numbers are ``[B, n]``, that are that near in some of the rows."""
        unsure = [position for position, column in enumerate(columns) if column not in self._judged]
        if not unsure or len(read) < 2:
            return
        some = read[:: max(1, len(read) // SAMPLE), unsure]
        low, high = some.min(axis=0).astype(np.float64), some.max(axis=0).astype(np.float64)
        with np.errstate(invalid="ignore"):
            far = _steps(low, high) >= FEW_STEPS
        zero = (low == 0) & (high == 0)  # as counts and flags of few rows are, in many columns
        for position, apart, empty in zip(unsure, far.tolist(), zero.tolist(), strict=True):
            if apart:
                self._judged.add(columns[position])
            elif not empty:
                self.look_at(columns[position], read[:, position].astype(np.float64), name)

    def look_at(self, column: int, values: NDArray[np.float64], name: Name) -> None:
        """Warn where the values of one column vary little around a large one."""
        if column in self._judged:
            return
        known = values[np.isfinite(values)]
        if len(known) < 2:
            return
        low, high = float(known.min()), float(known.max())
        steps = float(_steps(low, high))
        if steps >= FEW_STEPS:  # what is far apart in some rows is so in all
            self._judged.add(column)
        # Few values may be held as they are, as years are.
        elif steps > 0 and (known.astype(np.float32) != known).any():
            self._judged.add(column)
            warnings.warn(
                f"column {name(column)} runs from {low:.10g} to {high:.10g}: float32, in which translations "
                f"compute, tells only about {steps:,.0f} values apart there, so answers may differ from the source's. "
                f"Subtract a constant such as {low:.10g} from the column before fitting.",
                UserWarning,
                stacklevel=2,
            )


def _steps(low: Any, high: Any) -> Any:
    """How many numbers float32 tells apart from the least to the greatest value, of a column or of each."""
    return (high - low) / (np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-30) * FLOAT32_STEP)
