"""The ranks of values among thresholds, see ``wt_tree_search`` in ``trees.h``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windtunnel.modules.trees.forms.ranks import cells

SEARCH = [
    ("low", np.float64),
    ("scale", np.float64),
    *((name, np.uint32) for name in ("last", "cell", "bound", "steps")),
]
"""``wt_tree_search``."""


class Searches:
    """Searches of ranks: their cells, and thresholds with numbers of infinity behind those of each search."""

    def __init__(self) -> None:
        self._cells: list[NDArray[np.uint16]] = [np.empty(0, np.uint16)]
        self._bounds: list[NDArray[np.float64]] = [np.empty(0)]
        self._cell = self._bound = 0

    def add(self, thresholds: NDArray[np.float64]) -> tuple[float, float, int, int, int, int]:
        """Add the search among ascending thresholds, at most 65,535; gives its record."""
        low, scale, below = cells(thresholds)
        if not (np.isfinite(scale) and scale > 0):
            low, scale, below = 0.0, 1.0, np.zeros(1, np.int64)
        steps = int(np.diff(below, append=len(thresholds)).max()).bit_length()
        record = (low, scale, len(below) - 1, self._cell, self._bound, steps)
        self._cells.append(below.astype(np.uint16))
        self._bounds.append(np.append(thresholds, np.full(1 << steps, np.inf)))
        self._cell += len(self._cells[-1])
        self._bound += len(self._bounds[-1])
        return record

    def facts(self) -> tuple[NDArray[np.uint16], NDArray[np.float64]]:
        """Cells and thresholds."""
        return np.concatenate(self._cells), np.concatenate(self._bounds)
