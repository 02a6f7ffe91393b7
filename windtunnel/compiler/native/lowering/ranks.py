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
    """Searches of ranks: their records, cells and thresholds."""

    def __init__(self) -> None:
        self._records: list[tuple[float, float, int, int, int, int]] = []
        self._cells: list[NDArray[np.uint16]] = [np.empty(0, np.uint16)]
        self._thresholds: list[NDArray[np.float64]] = []
        self._cell = self._bound = 0

    def add(self, thresholds: NDArray[np.float64]) -> None:
        """Add the search among ascending thresholds, at most 65,535."""
        low, scale, below = cells(thresholds)
        if not (np.isfinite(scale) and scale > 0):
            low, scale, below = 0.0, 1.0, np.zeros(1, np.int64)
        steps = int(np.diff(below, append=len(thresholds)).max()).bit_length()
        self._records.append((low, scale, len(below) - 1, self._cell, self._bound, steps))
        self._cells.append(below.astype(np.uint16))
        self._thresholds.append(thresholds)
        self._cell += len(below)
        self._bound += len(thresholds)

    def facts(self) -> tuple[NDArray[np.void], NDArray[np.uint16], NDArray[np.float64]]:
        """The records, the cells, and the thresholds, with infinities behind those of each search.

        There are enough infinities for as many steps as the longest search takes.
        """
        records = np.array(self._records, SEARCH)
        beyond = np.full(1 << int(records["steps"].max(initial=0)), np.inf)
        records["bound"] += (np.arange(len(records)) * len(beyond)).astype(np.uint32)
        bounds = [part for thresholds in self._thresholds for part in (thresholds, beyond)]
        return records, np.concatenate(self._cells), np.concatenate([np.empty(0), *bounds])
