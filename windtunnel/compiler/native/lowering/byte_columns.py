"""What the nodes of trees compare, as bytes: see ``wt_tree_bytes`` in ``trees.h``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.ranks import Searches
from windtunnel.compiler.native.lowering.tree_layout import Ints, Walk

NEVER = 255
"""No byte is above it."""
NO_SET = 2**32 - 1
FEW_THRESHOLDS = 40
"""So many thresholds are compared with each value in the time of a search."""


class ByteColumns:
    """The columns of bytes that trees read, and what their nodes compare the bytes with."""

    def __init__(self, walk: Walk) -> None:
        self.count = 0  # columns
        self.condition = np.zeros(len(walk.follow), np.int64)  # [P], the condition of each node
        # of values; of a set its start and last category; how many thresholds, if they are few, else 0
        self._columns: list[tuple[int, int, int, int]] = []
        self._searches = Searches()
        self._goes_right = walk.set_goes_right.astype(np.uint8)
        place: list[Ints] = [np.empty(0, np.int64)]
        bound: list[Ints] = [np.empty(0, np.int64)]
        conditions = 0
        for column in np.unique(walk.column[walk.is_node]).tolist():
            nodes = np.flatnonzero(walk.is_node & (walk.column == column))
            is_set = walk.set_start[nodes] > 0
            splits, asked = np.unique(walk.split[nodes[~is_set]], return_inverse=True)
            self.condition[nodes[~is_set]] = conditions + asked
            ranks = np.arange(len(splits))
            place.append(self.count + ranks // NEVER)
            bound.append(ranks % NEVER)
            for first in range(0, len(splits), NEVER):
                self._add_thresholds(column, splits[first : first + NEVER])
            conditions += len(splits)
            sets = self._add_sets(column, walk, nodes[is_set], conditions)
            place.append(np.arange(self.count - sets, self.count))
            bound.append(np.zeros(sets, np.int64))
            conditions += sets
        # [conditions], the column that each condition reads, and what a byte has to be above.
        self.place, self.bound = np.concatenate(place), np.concatenate(bound)

    def facts(self) -> tuple[Fact, ...]:
        """The facts that ``wt_tree_bytes_of`` reads."""
        searches, cells, bounds = self._searches.facts()
        value, start, last_category, few = np.array(self._columns, np.uint32).reshape(-1, 4).T.copy()
        is_set = start != NO_SET
        low, scale, last = (searches[name].astype(np.float64) for name in ("low", "scale", "last"))
        scale[is_set], last[is_set] = 0, last_category[is_set]
        most_steps, any_set = int(searches["steps"].max(initial=0)), int(is_set.any())
        search = [searches[name].copy() for name in ("cell", "bound", "steps")]
        facts = (low, scale, last, *search, value, start, few, cells, bounds, self._goes_right)
        return self.count, *facts, most_steps, any_set

    def _add_thresholds(self, column: int, thresholds: NDArray[np.float64]) -> None:
        self._searches.add(thresholds)
        with np.errstate(over="ignore"):
            few = len(thresholds) <= FEW_THRESHOLDS and bool((thresholds.astype(np.float32) == thresholds).all())
        self._columns.append((column, NO_SET, 0, len(thresholds) if few else 0))
        self.count += 1

    def _add_sets(self, column: int, walk: Walk, nodes: Ints, first_condition: int) -> int:
        """Add a column per set; gives how many."""
        number: dict[bytes, int] = {}
        for node in nodes.tolist():
            start, last = int(walk.set_start[node]), int(walk.set_last[node])
            name = walk.set_goes_right[start : start + last + 1].tobytes()
            if name not in number:
                self._searches.add(np.zeros(1))  # not read
                self._columns.append((column, start, last, 0))
                number[name] = len(number)
            self.condition[node] = first_condition + number[name]
        self.count += len(number)
        return len(number)
