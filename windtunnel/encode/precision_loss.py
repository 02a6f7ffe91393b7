"""Warns of columns that vary little around a large value, of which float32 distinguishes few values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import warn_caller

NameOf = Callable[[int], str]
FLOAT32_STEP = 2.0**-24
"""Relative distance of neighbouring float32 numbers."""
FEW_STEPS = 10_000
SAMPLE_ROWS = 1_000
"""Rows that are enough to accept a column."""


class PrecisionLossWarner:
    """Warns once for each column of which float32 distinguishes few values."""

    def __init__(self) -> None:
        self._finished: set[int] = set()

    def check_block(self, columns: Sequence[int], numbers: NDArray[Any], name_of: NameOf) -> None:
        """Check columns, whose numbers are ``[B, n]``: a sample accepts most of them, the others are checked whole."""
        unsure = [position for position, column in enumerate(columns) if column not in self._finished]
        if not unsure or len(numbers) < 2:
            return
        sample = numbers[:: max(1, len(numbers) // SAMPLE_ROWS), unsure]
        low, high = sample.min(axis=0).astype(np.float64), sample.max(axis=0).astype(np.float64)
        with np.errstate(invalid="ignore"):
            accepted = _steps(low, high) >= FEW_STEPS
        zero = (low == 0) & (high == 0)  # counts and flags are 0 in most rows of many columns
        for position, accept, empty in zip(unsure, accepted.tolist(), zero.tolist(), strict=True):
            if accept:
                self._finished.add(columns[position])
            elif not empty:
                self.check_column(columns[position], numbers[:, position].astype(np.float64), name_of)

    def check_column(self, column: int, values: NDArray[np.float64], name_of: NameOf) -> None:
        """Warn if the values of one column vary little around a large one."""
        if column in self._finished:
            return
        finite = values[np.isfinite(values)]
        if len(finite) < 2:
            return
        low, high = float(finite.min()), float(finite.max())
        steps = float(_steps(low, high))
        if steps >= FEW_STEPS:  # more rows only widen the range
            self._finished.add(column)
        # Few values may be exact in float32, as years are.
        elif steps > 0 and (finite.astype(np.float32) != finite).any():
            self._finished.add(column)
            warn_caller(
                f"column {name_of(column)} runs from {low:.10g} to {high:.10g}: float32, in which this program "
                f"computes, tells only about {steps:,.0f} values apart there, so outputs may differ from the source's. "
                f"Subtract a constant such as {low:.10g} from the column before fitting.",
            )


def _steps(low: Any, high: Any) -> Any:
    """The count of float32 numbers between the least and the greatest value, of a column or of each."""
    return (high - low) / (np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-30) * FLOAT32_STEP)
