"""Trees as tables of successors for few rows, see ``trees_successors.c``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.byte_columns import NEVER, ByteColumns
from windtunnel.compiler.native.lowering.tree_layout import Ints, Walk, levels_of, sorted_nodes

LANES = 64
"""Nodes of a table."""
MOST_COLUMNS = 256
"""The most columns of bytes: so many bytes are permuted at once."""
COST = 17
"""Cost of a row and a table, in the unit of ``Masks.cost``; measured."""
NONE: tuple[Fact, ...] = (0,)
"""The facts of trees without tables."""


def successors(walk: Walk, value: NDArray[np.float64], cost_of_masks: int) -> tuple[Fact, ...]:
    """The facts of trees that have masks and compare few thresholds; ``NONE`` for others.

    ``value`` ``[P]`` or ``[P, K]`` are the values of the leaves. Tables are used up to the number of rows at which they
    cost as much as masks; ``cost_of_masks`` is ``Masks.cost``.
    """
    if cost_of_masks == 0 or (columns := ByteColumns(walk)).count > MOST_COLUMNS:
        return NONE
    levels, trees = levels_of(walk), len(walk.root)
    tree, position = sorted_nodes(levels)
    nodes = np.bincount(tree, minlength=trees)
    count = np.maximum(1, -(-nodes // LANES))
    first = np.cumsum(count) - count
    number = np.zeros(len(walk.follow), np.int64)
    number[position] = np.arange(len(tree)) - (np.cumsum(nodes) - nodes)[tree]
    place = first[tree] * LANES + number[position]
    tables, values = _tables(walk, value, columns, position, place, number, int(count.sum()))
    alone = ~walk.is_node[walk.root]
    values[first[alone] * LANES, 0] = (np.arange(len(value)) if value.ndim > 1 else value)[walk.root[alone]]
    steps, rest = np.zeros(trees, np.int64), np.zeros(trees, np.int64)
    for level, (tree_of, at) in enumerate(levels):
        steps[tree_of] = level
        rest[np.unique(tree_of[number[at] >= LANES])] += 1
    records = np.stack([first, count, steps, np.maximum(rest - 1, 0)], axis=1).astype(np.uint32)
    rows = max(1, cost_of_masks // (COST * int(count.sum())))
    return rows, *columns.facts(), tables, records, values


def _tables(
    walk: Walk,
    value: NDArray[np.float64],
    columns: ByteColumns,
    position: Ints,
    place: Ints,
    number: Ints,
    count: int,
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Each ``successor_table``, uint8 ``[count, 4, LANES]``, and the values of the leaves below each of its nodes.

    ``position`` and ``place`` ``[nodes]`` are the places of the nodes in the trees and in the tables, ``number``
    ``[P]`` are the numbers of the nodes in their trees.
    """
    tables, values = np.zeros((4, count * LANES), np.uint8), np.zeros((count * LANES, 2))
    condition = columns.condition[position]
    tables[0, place] = columns.place[condition]
    tables[1] = NEVER
    tables[1, place] = columns.bound[condition]
    leaf = np.arange(len(value)) if value.ndim > 1 else value
    for side in (0, 1):
        below = walk.follow[position] + side
        goes_on = walk.is_node[below]
        tables[2 + side, place] = np.where(goes_on, number[below], number[position])
        values[place[~goes_on], side] = leaf[below[~goes_on]]
    return tables.reshape(4, count, LANES).transpose(1, 0, 2).copy(), values
