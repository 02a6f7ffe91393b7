"""Oblivious trees, such as CatBoost's, see ``trees_oblivious.c``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.ranks import SEARCH, Searches
from windtunnel.compiler.native.lowering.tree_masks import MASK_ROWS, Ints, Walk, levels_of

LANES = 64
"""Trees of a group."""
PERMUTED, TOGETHER = 256, 4
"""``PERMUTED`` and ``TOGETHER`` of ``trees_oblivious.c``."""
MOST_LEVELS, BYTE_LEVELS = 16, 8
MOST_LEAVES = 1 << 23
"""Of all trees, those that a shallow tree repeats included."""
NEVER = 255
"""No byte is above it."""
NO_SET = 2**32 - 1
COLUMN = np.dtype([*SEARCH, ("column", np.uint32), ("set", np.uint32)])


@dataclass(frozen=True)
class Tables:
    """Facts of the C operation from the columns of bytes to the leaves, and its scratch bytes."""

    facts: tuple[Fact, ...]
    scratch: int


def oblivious(walk: Walk, value: NDArray[np.float64], score_of_tree: Ints) -> Tables | None:
    """The tables of oblivious trees; None if the nodes of a level ask several things.

    Parameters
    ----------
    walk : Walk
    value : float64 [P] or [P, K]
        The values of the leaves.
    score_of_tree : int64 [trees of all scores]
    """
    levels = levels_of(walk)
    trees, deepest = len(walk.root), len(levels)
    if trees == 0 or deepest > MOST_LEVELS:
        return None
    columns = _Columns(walk)
    groups = -(-trees // LANES)
    compared = np.zeros((groups, deepest, LANES), np.uint16)
    bound = np.full((groups, deepest, LANES), NEVER, np.uint8)
    depth, number = np.zeros(trees, np.int64), np.zeros(len(walk.follow), np.int64)
    for level, (tree, position) in enumerate(levels):
        asks = columns.condition[position]
        if (asks != asks[np.searchsorted(tree, tree)]).any() or (np.bincount(tree)[tree] != 1 << level).any():
            return None
        compared[tree // LANES, level, tree % LANES] = columns.place[asks]
        bound[tree // LANES, level, tree % LANES] = columns.bound[asks]
        depth[tree] = level + 1
        for side in (0, 1):
            number[walk.follow[position] + side] = number[position] + (side << level)
    start = np.cumsum(1 << depth) - (1 << depth)
    if columns.count > np.iinfo(np.uint16).max or start[-1] + (1 << depth[-1]) > MOST_LEAVES:
        return None
    tree, position = _leaves(walk)
    leaves = np.zeros((start[-1] + (1 << depth[-1]), *value.shape[1:]))
    leaves[start[tree] + number[position]] = value[position]
    plane, planes = _planes(leaves, start, depth)
    records = np.stack([depth, start, score_of_tree, plane], axis=1).astype(np.uint32)
    permuted = compared.astype(np.uint8) if columns.count <= PERMUTED else np.empty(0, np.uint8)
    facts = (*columns.facts(), compared, bound, permuted, deepest, records, trees, leaves, planes)
    few = -(-columns.count // PERMUTED) * PERMUTED + 2 * TOGETHER * groups * LANES
    return Tables(facts, max(few, (8 + columns.count) * MASK_ROWS))


def _planes(leaves: NDArray[np.float64], start: Ints, depth: Ints) -> tuple[Ints, NDArray[np.uint8]]:
    """The bytes of the leaves of each tree and score, uint8 ``[8, leaves]``: where those of a tree start, and all."""
    places, parts, end = np.zeros(len(depth), np.int64), [np.empty(0, np.uint8)], 0
    columns = leaves.reshape(len(leaves), -1)
    for tree in np.flatnonzero(depth <= BYTE_LEVELS).tolist():
        count = 1 << int(depth[tree])
        values = np.zeros((columns.shape[1], max(LANES, count)))
        values[:, :count] = columns[start[tree] : start[tree] + count].T
        parts.append(values.view(np.uint8).reshape(*values.shape, 8).transpose(0, 2, 1).reshape(-1))
        places[tree] = end // LANES
        end += len(parts[-1])
    return places, np.concatenate(parts)


def _leaves(walk: Walk) -> tuple[Ints, Ints]:
    """Tree and position of the leaves."""
    tree, at = np.arange(len(walk.root)), walk.root
    found = []
    while len(at):
        nodes = walk.is_node[at]
        found.append((tree[~nodes], at[~nodes]))
        tree, at = np.repeat(tree[nodes], 2), (walk.follow[at[nodes]][:, None] + np.arange(2)).reshape(-1)
    return np.concatenate([tree for tree, _ in found]), np.concatenate([position for _, position in found])


class _Columns:
    """The columns of bytes of trees, and what their nodes compare with.

    Attributes
    ----------
    count : int
        Columns.
    condition : int64 [P]
        The condition of each node.
    place, bound : int64 [conditions]
        The column that a condition reads, and what a byte has to be above.
    """

    def __init__(self, walk: Walk) -> None:
        self.count = 0
        self.condition = np.zeros(len(walk.follow), np.int64)
        self._records: list[tuple[float, ...]] = []
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
        self.place, self.bound = np.concatenate(place), np.concatenate(bound)

    def facts(self) -> tuple[Fact, ...]:
        """The records of the columns, how many, their cells, thresholds and sets."""
        records = np.array(self._records, COLUMN)
        return records, self.count, *self._searches.facts(), self._goes_right

    def _add_thresholds(self, column: int, thresholds: NDArray[np.float64]) -> None:
        self._records.append((*self._searches.add(thresholds), column, NO_SET))
        self.count += 1

    def _add_sets(self, column: int, walk: Walk, nodes: Ints, first_condition: int) -> int:
        """Add a column per set; gives how many."""
        number: dict[bytes, int] = {}
        for node in nodes.tolist():
            start, last = int(walk.set_start[node]), int(walk.set_last[node])
            name = walk.set_goes_right[start : start + last + 1].tobytes()
            if name not in number:
                self._records.append((0.0, 0.0, last, 0, 0, 0, column, start))
                number[name] = len(number)
            self.condition[node] = first_condition + number[name]
        self.count += len(number)
        return len(number)
