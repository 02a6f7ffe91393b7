"""The nodes of trees level by level, their records and the numbers of their leaves, for ``tree_masks``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_LEAVES = 256
"""The most leaves of a tree, because their numbers are bytes."""
POPCOUNT = np.array([number.bit_count() for number in range(MOST_LEAVES)], np.uint8)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Walk:
    """The arrays of a ``TreeWalk``, indexed by position."""

    root: Ints  # [trees of all scores]
    follow: Ints  # [P], the left child; a leaf follows to itself
    is_node: NDArray[np.bool_]  # [P]
    column: Ints  # [P], of values
    split: NDArray[np.float64]  # [P]
    # set_start, set_last: [P], the sets of categories in ``set_goes_right``; ``set_start`` is 0 where a node has none
    set_start: Ints
    set_last: Ints
    set_goes_right: NDArray[np.bool_]  # [S]


def levels_of(walk: Walk) -> list[tuple[Ints, Ints]]:
    """Tree and position of the nodes of each level, trees in order."""
    tree, at = np.arange(len(walk.root)), walk.root
    levels = []
    while (nodes := walk.is_node[at]).any():
        tree, at = tree[nodes], at[nodes]
        levels.append((tree, at))
        tree, at = np.repeat(tree, 2), (walk.follow[at][:, None] + np.arange(2)).reshape(-1)
    return levels


def sorted_nodes(levels: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Tree and position of all nodes, tree by tree and within a tree level by level."""
    nodes = np.concatenate([np.empty((2, 0), np.int64), *levels], axis=1)
    tree, position = nodes[:, np.argsort(nodes[0], kind="stable")]
    return tree, position


@dataclass(frozen=True)
class _Records:
    """A record per node, parents first; several where going right changes several bits of the number of a leaf."""

    first: Ints  # [nodes], the first record of a node
    plane: Ints  # [records]
    left: Ints  # [records]
    right: Ints  # [records]
    start: Ints  # [trees]
    count: Ints  # [trees]
    slots: int  # the records of the largest tree


@dataclass(frozen=True)
class _Leaves:
    """The leaves below nodes, and the trees without a node."""

    tree: Ints
    position: Ints
    number: Ints


@dataclass(frozen=True)
class TreeLayout:
    """The nodes of trees, level by level, and their records and leaves."""

    tree: Ints  # [nodes]
    position: Ints  # [nodes]
    nodes: Ints  # [trees], how many
    planes: int  # bits of the number of a leaf
    records: _Records
    leaves: _Leaves


def tree_layout(walk: Walk) -> TreeLayout | None:
    """The layout of trees of at most ``MOST_LEAVES`` leaves; None for larger ones."""
    tree, position = sorted_nodes(levels_of(walk))
    counts = np.bincount(tree, minlength=len(walk.root))
    if counts.max(initial=0) >= MOST_LEAVES:
        return None
    planes = max(1, int(counts.max(initial=0)).bit_length())
    start = np.cumsum(counts) - counts
    left, right = _leaf_numbers(walk, position, start, counts, planes)
    records = _records(walk, tree, position, left ^ right)
    return TreeLayout(tree, position, counts, planes, records, _leaves(walk, tree, position, left, right))


def _records(walk: Walk, tree: Ints, position: Ints, toggled: Ints) -> _Records:
    """The records of nodes; ``toggled`` are the bits that going right changes."""
    width = POPCOUNT[toggled].astype(np.int64)
    first = np.cumsum(width) - width
    count = np.bincount(tree, weights=width, minlength=len(walk.root)).astype(np.int64)
    start = np.cumsum(count) - count
    slots = int(count.max(initial=0))
    place = np.full(len(walk.follow), slots, np.int64)  # the slot that is never read
    place[position] = first - start[tree]
    node_of_record = np.repeat(np.arange(len(tree)), width)
    nth = np.arange(len(node_of_record)) - first[node_of_record]
    bits, plane = toggled[node_of_record].copy(), np.zeros(len(node_of_record), np.int64)
    for turn in range(int(width.max(initial=0))):
        lowest = bits & -bits
        plane = np.where(nth == turn, POPCOUNT[(lowest - 1) & 255], plane)
        bits ^= lowest
    follow = walk.follow[position]
    left = np.where(nth == 0, place[follow][node_of_record], slots)
    further = place[position][node_of_record] + nth + 1
    right = np.where(nth == width[node_of_record] - 1, place[follow + 1][node_of_record], further)
    return _Records(first, plane, left, right, start, count, slots)


def _leaves(walk: Walk, tree: Ints, position: Ints, number_left: Ints, number_right: Ints) -> _Leaves:
    follow = walk.follow[position]
    below = np.concatenate([follow, follow + 1])
    is_leaf = ~walk.is_node[below]
    numbers = np.concatenate([number_left, number_right])[is_leaf]
    alone = np.flatnonzero(~walk.is_node[walk.root])
    return _Leaves(
        np.concatenate([np.concatenate([tree, tree])[is_leaf], alone]),
        np.concatenate([below[is_leaf], walk.root[alone]]),
        np.concatenate([numbers, np.zeros(len(alone), np.int64)]),
    )


def _leaf_numbers(walk: Walk, position: Ints, start: Ints, counts: Ints, planes: int) -> tuple[Ints, Ints]:
    """The number of the leftmost leaf below each node, and of that below its right child.

    The second is the free number that differs from the first in the fewest bits.
    """
    free = np.ones((len(counts), 1 << planes), np.bool_)
    free[:, 0] = False
    leftmost = np.zeros(len(walk.follow), np.int64)
    distance = POPCOUNT[np.arange(1 << planes)[:, None] ^ np.arange(1 << planes)]
    right = np.zeros(len(position), np.int64)
    for turn in range(int(counts.max(initial=0))):
        active = np.flatnonzero(counts > turn)
        node = start[active] + turn
        at = leftmost[position[node]]
        chosen = np.where(free[active], distance[at], 255).argmin(axis=1)
        free[active, chosen] = False
        right[node] = chosen
        leftmost[walk.follow[position[node]]], leftmost[walk.follow[position[node]] + 1] = at, chosen
    return leftmost[position], right
