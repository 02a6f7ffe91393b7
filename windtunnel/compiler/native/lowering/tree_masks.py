"""Trees as operations on masks of rows, see ``trees_masks.c``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.ranks import SEARCH, Searches
from windtunnel.compiler.native.lowering.tree_layout import Ints, TreeLayout, Walk, levels_of, tree_layout

MASK_ROWS = 512
"""``WT_MASK_ROWS`` of ``trees.h``."""
WORD_ROWS = 64
TREES = 8
"""``MASK_TREES`` of ``trees_masks.c``."""
MOST_MASKS = 8192
"""The most masks of a block of trees: half a megabyte, which the second-level cache holds."""
MOST_SET_BITS = 1 << 27
COLUMN = np.dtype([*SEARCH, *((name, np.uint32) for name in ("thresholds", "first", "column", "unused"))])
ANY, PERFECT = 0, 1
ANY_COST, PERFECT_COST = 13, 5
"""Instructions per node of a tree of any shape, and of a perfect one."""
TABLE = 16
"""Values that are looked up at once."""
FASTER_FROM = 16
"""From so many rows of a batch on, masks are faster than one row after the other."""
NODE = np.dtype([("condition", np.uint32), ("left", np.uint16), ("right", np.uint16)])


@dataclass(frozen=True)
class Masks:
    """Trees as operations on masks: what the C operation needs."""

    facts: tuple[Fact, ...]
    scratch: int  # bytes
    rows: int  # the batch size from which masks are faster
    cost: int  # about how many instructions ``WORD_ROWS`` rows take; 0 without masks


NO_MASKS = Masks((np.empty(0), 0, *[np.empty(0)] * 8, 0, 0, np.empty(0)), 0, 1 << 62, 0)


def masks(walk: Walk, value: NDArray[np.float64], score_of_tree: Ints) -> Masks:
    """The masks of trees of at most ``MOST_LEAVES`` leaves; ``NO_MASKS`` for larger ones.

    ``value`` ``[P]`` or ``[P, K]`` are the values of the leaves; ``score_of_tree`` has an entry for each tree of all
    scores.
    """
    layout = tree_layout(walk)
    if layout is None:
        return NO_MASKS
    conditions = _conditions(walk, layout)
    if conditions.sets.words > MOST_SET_BITS // 64:
        return NO_MASKS
    records, leaves = layout.records, layout.leaves
    nodes = np.zeros(len(records.plane), NODE)
    nodes["condition"] = records.plane
    nodes["condition"][records.first] += 8 * conditions.mask[layout.position].astype(np.uint32)
    nodes["left"], nodes["right"] = records.left, records.right
    levels = _level_trees(walk, layout, conditions.mask)
    leaf_start = np.arange(len(walk.root)) << layout.planes
    table = np.zeros((len(walk.root) << layout.planes, *value.shape[1:]))
    any_form = levels.kind[leaves.tree] == ANY
    table[(leaf_start[leaves.tree] + leaves.number)[any_form]] = value[leaves.position[any_form]]
    table[leaf_start[levels.leaf_tree] + levels.leaf_number] = value[levels.leaf_position]
    first_record = np.where(levels.kind == ANY, records.start, levels.first)
    trees = np.stack([levels.kind, levels.depth, first_record, records.count, leaf_start, score_of_tree], axis=1)
    slots = max(records.slots, 1 << layout.planes)
    padded = np.concatenate([table.reshape(-1), np.zeros(TABLE)])  # a look-up reads a whole table
    facts: tuple[Fact, ...] = (
        np.array(conditions.blocks, np.uint32), len(conditions.blocks), *conditions.columns.facts(),
        *conditions.sets.facts(), trees.astype(np.uint32), nodes, padded, slots, layout.planes,
        levels.conditions.astype(np.uint32),
    )  # fmt: skip
    return Masks(facts, _scratch(slots, conditions.max_masks), FASTER_FROM, levels.cost)


def _scratch(slots: int, max_masks: int) -> int:
    """The bytes of ``tree_mask_scratch`` of ``trees_masks.c``."""
    values, ranks, leaves, bytes_of_rows = 8 * MASK_ROWS, 4 * MASK_ROWS, TREES * MASK_ROWS, MASK_ROWS
    mask = MASK_ROWS // 8
    planes, reach, masks_of_block = 8 * mask, (slots + 1) * mask, max_masks * mask
    return values + ranks + leaves + bytes_of_rows + planes + reach + masks_of_block


@dataclass(frozen=True)
class _Conditions:
    """The conditions of all nodes, numbered within each block of trees."""

    mask: Ints  # [P], the mask that holds the condition of a node
    blocks: list[list[int]]
    columns: _Columns
    sets: _SetMasks
    max_masks: int  # of a block


def _conditions(walk: Walk, layout: TreeLayout) -> _Conditions:
    blocks, columns, sets = list[list[int]](), _Columns(), _SetMasks()
    mask = np.zeros(len(walk.follow), np.int64)
    max_masks = 0
    for first, last in _blocks(walk, layout):
        nodes = layout.position[(layout.tree >= first) & (layout.tree < last)]
        is_set = walk.set_start[nodes] > 0
        start = [first, last - first, columns.count, 0, sets.count, 0]
        end = columns.add(walk, nodes[~is_set], mask)
        end = sets.add(walk, nodes[is_set], mask, end)
        start[3], start[5] = columns.count - start[2], sets.count - start[4]
        blocks.append([*start, end, 0])
        max_masks = max(max_masks, end)
    return _Conditions(mask, blocks, columns, sets, max_masks)


def _blocks(walk: Walk, layout: TreeLayout) -> list[tuple[int, int]]:
    """Cut trees into blocks of at most ``MOST_MASKS`` conditions; a tree with more is a block of its own."""
    position = layout.position
    split, column, sets = walk.split[position], walk.column[position], walk.set_start[position]
    order = np.lexsort((split, column, sets))
    new = np.ones(len(order), np.bool_)
    new[1:] = False
    for key in (split, column, sets):
        new[1:] |= key[order][1:] != key[order][:-1]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    ends = np.cumsum(layout.nodes)
    cuts, size, seen = [0], 0, np.zeros(int(new.sum()), np.bool_)
    for tree, (end, count) in enumerate(zip(ends.tolist(), layout.nodes.tolist(), strict=True)):
        conditions = np.unique(number[end - count : end])
        more = int((~seen[conditions]).sum())
        if size and size + more > MOST_MASKS:
            cuts.append(tree)
            seen[:] = False
            size, more = 0, len(conditions)
        seen[conditions] = True
        size += more
    return list(zip(cuts, [*cuts[1:], len(ends)], strict=True))


@dataclass(frozen=True)
class _LevelTrees:
    """Perfect trees as conditions level by level; the number of a leaf has a bit per level, 1 for the right."""

    kind: Ints  # [trees]
    depth: Ints  # [trees]
    first: Ints  # [trees], place of the first condition
    conditions: Ints
    leaf_tree: Ints
    leaf_number: Ints
    leaf_position: Ints
    cost: int  # of all trees, perfect or not


def _level_trees(walk: Walk, layout: TreeLayout, condition: Ints) -> _LevelTrees:
    """The trees that are so full that completing them to perfect trees pays."""
    trees = len(walk.root)
    depth = np.zeros(trees, np.int64)
    levels = levels_of(walk)
    for level, (tree, _) in enumerate(levels):
        depth[tree] = level + 1
    size = 1 << np.minimum(depth, 30)
    pays = (PERFECT_COST * size < ANY_COST * layout.nodes) & (depth <= layout.planes) & (depth > 0)
    kind = np.where(pays, PERFECT, ANY)
    length = np.where(pays, size - 1, 0)
    first = np.cumsum(length) - length
    conditions = np.zeros(int(length.sum()), np.int64)
    heap, way, at_level = (np.zeros(len(walk.follow), np.int64) for _ in range(3))
    for level, (tree, position) in enumerate(levels[: layout.planes]):
        chosen = kind[tree] != ANY
        tree, position = tree[chosen], position[chosen]
        conditions[first[tree] + heap[position]] = condition[position]
        left = walk.follow[position]
        for side in (0, 1):
            heap[left + side] = 2 * heap[position] + 1 + side
            way[left + side] = way[position] + (side << level)
            at_level[left + side] = level + 1
    leaves = layout.leaves
    chosen = kind[leaves.tree] != ANY
    tree, position = leaves.tree[chosen], leaves.position[chosen]
    copies = 1 << (depth[tree] - at_level[position])  # a leaf above the last level stands for all below it
    copy = np.arange(int(copies.sum())) - np.repeat(np.cumsum(copies) - copies, copies)
    tree, position = np.repeat(tree, copies), np.repeat(position, copies)
    cost = int(np.where(pays, PERFECT_COST * size, ANY_COST * layout.nodes).sum())
    number = way[position] + (copy << at_level[position])
    return _LevelTrees(kind, depth, first, conditions, tree, number, position, cost)


class _Columns:
    """The thresholds of all blocks."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: list[tuple[int, ...]] = []
        self._searches = Searches()

    def add(self, walk: Walk, nodes: Ints, condition: Ints) -> int:
        """Number the conditions of the nodes of a block, from 1 on; gives the number of masks."""
        order = np.lexsort((walk.split[nodes], walk.column[nodes]))
        nodes = nodes[order]
        column, split = walk.column[nodes], walk.split[nodes]
        new_column = np.diff(column, prepend=-1) != 0
        new = new_column.copy()
        new[1:] |= split[1:] != split[:-1]
        condition[nodes] = np.cumsum(new) + np.cumsum(new_column)  # mask 0 is for all rows
        end = 1
        splits, starts = split[new], np.flatnonzero(new_column[new])
        for number, start, stop in zip(column[new_column], starts, [*starts[1:], len(splits)], strict=False):
            part = splits[start:stop]
            end = self._add_column(int(number), part, end)
        return end

    def _add_column(self, column: int, thresholds: NDArray[np.float64], first: int) -> int:
        self._searches.add(thresholds)
        self._columns.append((len(thresholds), first, column, 0))
        self.count += 1
        return first + len(thresholds) + 1

    def facts(self) -> tuple[Fact, ...]:
        """Columns, cells and bounds."""
        searches, cells, bounds = self._searches.facts()
        columns = [(*search, *column) for search, column in zip(searches.tolist(), self._columns, strict=True)]
        return np.array(columns, COLUMN), cells, bounds


class _SetMasks:
    """The sets of categories of all blocks."""

    def __init__(self) -> None:
        self.count = self.words = 0
        self._columns: list[list[int]] = []
        self._bits: list[NDArray[np.uint64]] = []

    def add(self, walk: Walk, nodes: Ints, condition: Ints, end: int) -> int:
        """Number the conditions of the nodes of a block; gives the number of masks."""
        for column in np.unique(walk.column[nodes]).tolist():
            nodes_of_column = nodes[walk.column[nodes] == column]
            tables = [
                walk.set_goes_right[start : start + last + 1]
                for start, last in zip(walk.set_start[nodes_of_column], walk.set_last[nodes_of_column], strict=True)
            ]
            number: dict[bytes, int] = {}
            for node, table in zip(nodes_of_column.tolist(), tables, strict=True):
                condition[node] = end + number.setdefault(table.tobytes(), len(number))
            last, words = max(len(table) for table in tables) - 1, -(-len(number) // WORD_ROWS)
            right = np.zeros((last + 1, words * WORD_ROWS), np.bool_)
            for name, place in number.items():
                table = np.frombuffer(name, np.bool_)
                right[:, place] = table[-1]  # every category beyond a set
                right[: len(table), place] = table
            self._columns.append([column, last, self.words, words, end, 0])
            self._bits.append(np.packbits(right, axis=1, bitorder="little").view(np.uint64).reshape(-1))
            self.count += 1
            self.words += (last + 1) * words
            end += words * WORD_ROWS
        return end

    def facts(self) -> tuple[Fact, ...]:
        """Columns of sets and their bits."""
        columns = np.array(self._columns, np.uint32).reshape(-1, 6)
        return columns, np.concatenate([np.empty(0, np.uint64), *self._bits])
