"""Oblivious trees, such as CatBoost's, see ``trees_oblivious.c``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.byte_columns import NEVER, ByteColumns
from windtunnel.compiler.native.lowering.tree_layout import Ints, Walk, levels_of
from windtunnel.compiler.native.lowering.tree_masks import MASK_ROWS

LANES = 64
"""Trees of a group."""
PERMUTED, ROWS = 256, 4
"""``PERMUTED`` and ``OBLIVIOUS_ROWS`` of ``trees_oblivious.c``."""
MOST_LEVELS, BYTE_LEVELS = 16, 8
MOST_LEAVES = 1 << 23
"""The most leaves of all trees together."""


@dataclass(frozen=True)
class Tables:
    """What the C operation needs."""

    facts: tuple[Fact, ...]  # from the columns of bytes to the leaves
    scratch: int  # bytes


def oblivious(walk: Walk, value: NDArray[np.float64], score_of_tree: Ints) -> Tables | None:
    """The tables of oblivious trees; None if nodes of a level have different conditions, or the trees are too large.

    ``value`` ``[P]`` or ``[P, K]`` are the values of the leaves; ``score_of_tree`` has an entry for each tree of all
    scores.
    """
    levels = levels_of(walk)
    trees, deepest = len(walk.root), len(levels)
    if trees == 0 or deepest > MOST_LEVELS:
        return None
    columns = ByteColumns(walk)
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
    values = 8 * (int(walk.column.max(initial=0)) + 1)
    few = values + -(-columns.count // PERMUTED) * PERMUTED + 2 * ROWS * groups * LANES
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
