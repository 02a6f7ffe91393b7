"""Trees as operations on masks of rows, see ``trees_masks.c``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.ranks import SEARCH, Searches

MASK_ROWS = 512
"""``WT_MASK_ROWS`` of ``trees.h``."""
WORD_ROWS = 64
MOST_LEAVES = 256
"""Numbers of leaves are bytes."""
MOST_MASKS = 8192
"""Of a block of trees: half a megabyte, which the second-level cache holds."""
MOST_SET_BITS = 1 << 27
COLUMN = np.dtype([*SEARCH, *((name, np.uint32) for name in ("thresholds", "first", "column", "unused"))])
ANY, PERFECT = 0, 1
ANY_COST, PERFECT_COST = 13, 5
"""Instructions per node of a tree of any shape, and of a perfect one."""
TABLE = 16
"""Values that are looked up at once."""
NODE = np.dtype([("condition", np.uint32), ("left", np.uint16), ("right", np.uint16)])
POPCOUNT = np.array([number.bit_count() for number in range(MOST_LEAVES)], np.uint8)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Walk:
    """The arrays of a ``TreeWalk``, indexed by position.

    Attributes
    ----------
    root : int64 [trees of all scores]
    follow : int64 [P]
        The left child; a leaf follows to itself.
    is_node : bool [P]
    column : int64 [P]
        Of values.
    split : float64 [P]
    set_start, set_last : int64 [P]
        The sets of categories in ``set_goes_right``; ``set_start`` is 0 where a node has none.
    set_goes_right : bool [S]
    """

    root: Ints
    follow: Ints
    is_node: NDArray[np.bool_]
    column: Ints
    split: NDArray[np.float64]
    set_start: Ints
    set_last: Ints
    set_goes_right: NDArray[np.bool_]


@dataclass(frozen=True)
class Masks:
    """Trees as operations on masks: facts and scratch bytes of the C operation.

    ``rows`` is the batch size from which masks are faster, ``cost`` about how many instructions ``WORD_ROWS`` rows
    take; 0 without masks.
    """

    facts: tuple[Fact, ...]
    scratch: int
    rows: int
    cost: int


NO_MASKS = Masks((np.empty(0), 0, *[np.empty(0)] * 8, 0, 0, np.empty(0)), 0, 1 << 62, 0)


def masks(walk: Walk, value: NDArray[np.float64], score_of_tree: Ints) -> Masks:
    """The masks of trees of at most ``MOST_LEAVES`` leaves; ``NO_MASKS`` for larger ones.

    Parameters
    ----------
    walk : Walk
    value : float64 [P] or [P, K]
        The values of the leaves.
    score_of_tree : int64 [trees of all scores]
    """
    layout = _layout(walk)
    if layout is None:
        return NO_MASKS
    blocks, columns, sets = [], _Columns(), _Sets()
    condition = np.zeros(len(walk.follow), np.int64)
    most = 0
    for first, last in _blocks(walk, layout):
        nodes = layout.position[(layout.tree >= first) & (layout.tree < last)]
        is_set = walk.set_start[nodes] > 0
        start = [first, last - first, columns.count, 0, sets.count, 0]
        end = columns.add(walk, nodes[~is_set], condition)
        end = sets.add(walk, nodes[is_set], condition, end)
        start[3], start[5] = columns.count - start[2], sets.count - start[4]
        blocks.append([*start, end, 0])
        most = max(most, end)
    if sets.words > MOST_SET_BITS // 64:
        return NO_MASKS
    records = np.zeros(layout.records, NODE)
    records["condition"] = layout.plane
    records["condition"][layout.record] += 8 * condition[layout.position].astype(np.uint32)
    records["left"], records["right"] = layout.left, layout.right
    levels = _level_trees(walk, layout, condition)
    table = np.zeros((len(walk.root) << layout.planes, *value.shape[1:]))
    leaf = np.arange(len(walk.root)) << layout.planes
    free = levels.kind[layout.leaf_tree] == ANY
    table[(leaf[layout.leaf_tree] + layout.leaf_number)[free]] = value[layout.leaf_position[free]]
    table[leaf[levels.leaf_tree] + levels.leaf_number] = value[levels.leaf_position]
    first_record = np.where(levels.kind == ANY, layout.record_start, levels.first)
    trees = np.stack([levels.kind, levels.depth, first_record, layout.record_count, leaf, score_of_tree], axis=1)
    slots = max(layout.slots, 1 << layout.planes)
    padded = np.concatenate([table.reshape(-1), np.zeros(TABLE)])  # a look-up reads a whole table
    facts: tuple[Fact, ...] = (
        np.array(blocks, np.uint32), len(blocks), *columns.facts(), *sets.facts(),
        trees.astype(np.uint32), records, padded, slots, layout.planes, levels.conditions.astype(np.uint32),
    )  # fmt: skip
    scratch = 12 * MASK_ROWS + 2 * MASK_ROWS + 8 * MASK_ROWS // 8 + (slots + 1 + most) * MASK_ROWS // 8
    return Masks(facts, scratch, 16, levels.cost)


def _blocks(walk: Walk, layout: _Layout) -> list[tuple[int, int]]:
    """Cut trees into blocks of at most ``MOST_MASKS`` conditions, or one tree."""
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
    """Perfect trees as conditions level by level: their leaves are numbered by the way down, a bit per level."""

    kind: Ints  # [trees]
    depth: Ints  # [trees]
    first: Ints  # [trees], place of the first condition
    conditions: Ints
    leaf_tree: Ints
    leaf_number: Ints
    leaf_position: Ints
    cost: int  # of all trees, perfect or not


def _level_trees(walk: Walk, layout: _Layout, condition: Ints) -> _LevelTrees:
    """The trees that are so full that completing them to perfect ones pays."""
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
    chosen = kind[layout.leaf_tree] != ANY
    tree, position = layout.leaf_tree[chosen], layout.leaf_position[chosen]
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


class _Sets:
    """The sets of categories of all blocks."""

    def __init__(self) -> None:
        self.count = self.words = 0
        self._columns: list[list[int]] = []
        self._bits: list[NDArray[np.uint64]] = []

    def add(self, walk: Walk, nodes: Ints, condition: Ints, end: int) -> int:
        """Number the conditions of the nodes of a block; gives the number of masks."""
        for column in np.unique(walk.column[nodes]).tolist():
            own = nodes[walk.column[nodes] == column]
            tables = [
                walk.set_goes_right[s : s + n + 1] for s, n in zip(walk.set_start[own], walk.set_last[own], strict=True)
            ]
            number: dict[bytes, int] = {}
            for node, table in zip(own.tolist(), tables, strict=True):
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


@dataclass(frozen=True)
class _Layout:
    """Nodes of trees as records, parents first, and the numbers of the leaves; arrays over nodes unless said."""

    tree: Ints
    position: Ints
    record: Ints
    plane: Ints  # [records]
    left: Ints  # [records]
    right: Ints  # [records]
    records: int
    nodes: Ints  # [trees]
    record_start: Ints  # [trees]
    record_count: Ints  # [trees]
    leaf_tree: Ints  # [leaves]
    leaf_position: Ints  # [leaves]
    leaf_number: Ints  # [leaves]
    slots: int
    planes: int


def _layout(walk: Walk) -> _Layout | None:
    levels = levels_of(walk)
    trees = len(walk.root)
    tree = np.concatenate([np.empty(0, np.int64), *(level[0] for level in levels)])
    counts = np.bincount(tree, minlength=trees)
    if counts.max(initial=0) >= MOST_LEAVES:
        return None
    planes = max(1, int(counts.max(initial=0)).bit_length())
    position = np.concatenate([np.empty(0, np.int64), *(level[1] for level in levels)])
    order = np.argsort(tree, kind="stable")  # of a tree, level by level
    tree, position = tree[order], position[order]
    start = np.cumsum([0, *counts])[:-1]
    local = np.arange(len(tree)) - start[tree]
    number_left, number_right = _leaf_numbers(walk, tree, position, local, start, planes)
    # A record per node; further ones where going right changes several bits.
    toggled = number_left ^ number_right
    width = POPCOUNT[toggled].astype(np.int64)
    record = np.cumsum(width) - width
    records = int(width.sum())
    record_count = np.bincount(tree, weights=width, minlength=trees).astype(np.int64)
    record_start = np.cumsum(record_count) - record_count
    slots = int(record_count.max(initial=0))
    place = np.full(len(walk.follow), slots, np.int64)  # where nobody reads
    place[position] = record - record_start[tree]
    of = np.repeat(np.arange(len(tree)), width)  # the node of each record
    nth = np.arange(records) - record[of]
    bits, plane = toggled[of].copy(), np.zeros(records, np.int64)
    for turn in range(int(width.max(initial=0))):
        lowest = bits & -bits
        plane = np.where(nth == turn, POPCOUNT[(lowest - 1) & 255], plane)
        bits ^= lowest
    follow = walk.follow[position]
    left = np.where(nth == 0, place[follow][of], slots)
    right = np.where(nth == width[of] - 1, place[follow + 1][of], place[position][of] + nth + 1)
    # Leaves: those below nodes, and trees without a node.
    below = np.concatenate([follow, follow + 1])
    is_leaf = ~walk.is_node[below]
    numbers = np.concatenate([number_left, number_right])[is_leaf]
    alone = np.flatnonzero(~walk.is_node[walk.root])
    return _Layout(
        tree, position, record, plane, left, right, records, counts, record_start, record_count,
        leaf_tree=np.concatenate([np.concatenate([tree, tree])[is_leaf], alone]),
        leaf_position=np.concatenate([below[is_leaf], walk.root[alone]]),
        leaf_number=np.concatenate([numbers, np.zeros(len(alone), np.int64)]),
        slots=slots,
        planes=planes,
    )  # fmt: skip


def levels_of(walk: Walk) -> list[tuple[Ints, Ints]]:
    """Tree and position of the nodes of each level, trees in order."""
    tree, at = np.arange(len(walk.root)), walk.root
    levels = []
    while (nodes := walk.is_node[at]).any():
        tree, at = tree[nodes], at[nodes]
        levels.append((tree, at))
        tree, at = np.repeat(tree, 2), (walk.follow[at][:, None] + np.arange(2)).reshape(-1)
    return levels


def _leaf_numbers(walk: Walk, tree: Ints, position: Ints, local: Ints, start: Ints, planes: int) -> tuple[Ints, Ints]:
    """The number of the leftmost leaf below each node, and below its right child: as few bits apart as are free."""
    trees = len(walk.root)
    counts = np.bincount(tree, minlength=trees)
    free = np.ones((trees, 1 << planes), np.bool_)
    free[:, 0] = False
    leftmost = np.zeros(len(walk.follow), np.int64)
    distance = POPCOUNT[np.arange(1 << planes)[:, None] ^ np.arange(1 << planes)]
    right = np.zeros(len(tree), np.int64)
    for turn in range(int(counts.max(initial=0))):
        active = np.flatnonzero(counts > turn)
        node = start[active] + turn
        at = leftmost[position[node]]
        chosen = np.where(free[active], distance[at], 255).argmin(axis=1)
        free[active, chosen] = False
        right[node] = chosen
        leftmost[walk.follow[position[node]]], leftmost[walk.follow[position[node]] + 1] = at, chosen
    return leftmost[position], right
