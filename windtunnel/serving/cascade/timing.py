"""Seconds per row: of a group of features, of a cascade, and of its full model alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

TIMED_ROWS, REPEATS = 500, 3
"""Rows and runs of a timing, of which the fastest counts."""


@dataclass(frozen=True)
class RowSeconds:
    """Seconds per row in a batch, declared costs included."""

    # cascade, full: the seconds of the cascade, and of its full model alone
    cascade: float
    full: float

    def report(self) -> str:
        """A line of text: both times, and whether the cascade is faster."""
        times = f"time per row: {1e6 * self.cascade:.2f} us, of the full model alone {1e6 * self.full:.2f} us"
        if self.cascade < self.full:
            return f"{times}; the cascade is {self.full / self.cascade:.2f} times as fast"
        advice = "use the full model, or declare what features cost, with cost= of windtunnel.cascade in Python"
        return f"{times}; the cascade saves no time: {advice}"


def least_seconds(compute: Callable[[Any], Any], rows: Any) -> float:
    """Seconds per row, the least of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        compute(rows)
        times.append(perf_counter() - start)
    return min(times) / int(np.shape(rows)[0])
