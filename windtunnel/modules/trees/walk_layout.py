"""Where the nodes and leaves of an ensemble stand for a walk down, and what each node reads of its feature."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import BadFile
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO, TreeEnsemble

# Each node gets a reading: how it turns its feature into a number to compare. A node goes right where this number is
# above its threshold. LOW: NaN becomes -inf (goes left). HIGH: NaN becomes +inf (goes right). FLAG: 1 for NaN, else 0;
# for a threshold of +inf whose NaN goes right. ZERO is added if values near 0 count as missing. CODE: the category
# number, -1 for NaN.
LOW = 0
HIGH = 1
FLAG = 2
ZERO = 3
CODE = 6
MOST_SET_PLACES = 2**28
"""The most places of the tables of all sets of categories, one byte each."""


def walk_layout(ensemble: TreeEnsemble) -> tuple[int, list[int], dict[str, NDArray[Any]]]:
    """Depth, the readings in use, and the arrays over positions that a walk goes on.

    The positions are T roots, 2 N children, and one leaf of value 0 at the end that evens out the trees per score.
    """
    items = items_of(ensemble)
    nodes = len(ensemble.feature)
    is_node = items < nodes
    node = items[is_node]
    reading = _reading(ensemble)
    readings, place = np.unique(reading, return_inverse=True)
    column = place * ensemble.width + ensemble.feature
    split = ensemble.threshold.copy()
    split[reading % ZERO == FLAG] = 0.5
    split[list(ensemble.categories)] = np.inf
    no_column = np.zeros(len(items), np.int64)
    split = _at_nodes(split, is_node, node, np.full(len(items), np.inf))
    set_start, set_last, goes_right = _sets(ensemble)
    value = np.concatenate([ensemble.leaf_value, np.zeros((1, *ensemble.leaf_value.shape[1:]))])
    walk: dict[str, NDArray[Any]] = {
        "column": _at_nodes(column, is_node, node, no_column),
        "feature_at": _at_nodes(ensemble.feature, is_node, node, no_column),
        "split": _largest_float32_not_above(split) if ensemble.reads == "float32" else split,
        "follow": np.where(is_node, ensemble.trees + 2 * items, np.arange(len(items))),
        "value": value[np.where(is_node, -1, items - nodes)],
        "root": _roots(ensemble, padding=len(items) - 1),
        "set_start": _at_nodes(set_start, is_node, node, no_column),
        "set_last": _at_nodes(set_last, is_node, node, no_column),
        "set_goes_right": goes_right,
    }
    depths = depths_of(np.arange(ensemble.trees), walk["follow"], is_node)
    return int(depths.max(initial=0)), readings.tolist(), walk


def positions_of(ensemble: TreeEnsemble) -> NDArray[np.int64]:
    """The position of each node, then of each leaf, then of the padding leaf, int64 ``[N + L + 1]``."""
    return np.argsort(items_of(ensemble))


def depths_of(root: NDArray[np.int64], follow: NDArray[np.int64], is_node: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many splits the longest way down from each root has; ``BadFile`` if a node is reached twice."""
    depths = np.zeros(len(root), np.int64)
    at, tree = root, np.arange(len(root))
    depth = visited = 0
    while is_node[at].any():
        depth += 1
        at, tree = at[is_node[at]], tree[is_node[at]]
        visited += len(at)
        if visited > len(follow):
            raise BadFile("these tensors are not a tree ensemble: a node is reached twice")
        depths[tree] = depth
        at, tree = np.concatenate([follow[at], follow[at] + 1]), np.concatenate([tree, tree])
    return depths


def items_of(ensemble: TreeEnsemble) -> NDArray[np.int64]:
    """List what sits at each position: node n of the ensemble as n, leaf l as N + l, the padding leaf as N + L."""
    nodes, leaves = len(ensemble.feature), len(ensemble.leaf_value)
    counts = np.diff(ensemble.node_start)
    first_node, first_leaf = np.repeat(ensemble.node_start[:-1], counts), np.repeat(ensemble.leaf_start[:-1], counts)
    children = np.stack([ensemble.left, ensemble.right], axis=1)
    limits = np.repeat(counts, counts)[:, None]
    if ((children >= limits) | (children < -1 - limits)).any():
        raise BadFile("these tensors are not a tree ensemble: a child is outside its tree")
    below = np.where(children >= 0, first_node[:, None] + children, nodes + first_leaf[:, None] - 1 - children)
    roots = np.where(counts > 0, ensemble.node_start[:-1], nodes + ensemble.leaf_start[:-1])
    return np.concatenate([roots, below.reshape(-1), [nodes + leaves]])


def _at_nodes(
    values: NDArray[Any], is_node: NDArray[np.bool_], node: NDArray[np.int64], elsewhere: NDArray[Any]
) -> NDArray[Any]:
    """Values over nodes at the positions of their nodes, ``elsewhere`` at the leaves."""
    values_at = elsewhere.copy()
    values_at[is_node] = values[node]
    return values_at


def _reading(ensemble: TreeEnsemble) -> NDArray[np.int64]:
    """Choose what each node reads of its feature."""
    zero_goes_left = ensemble.threshold >= 0
    missing_left = np.where(ensemble.missing == MISSING_NONE, zero_goes_left, ensemble.default_left)
    reading = np.where(missing_left, LOW, HIGH)
    reading[~missing_left & np.isposinf(ensemble.threshold)] = FLAG
    reading[ensemble.missing == MISSING_ZERO] += ZERO
    reading[list(ensemble.categories)] = CODE
    return reading


def _largest_float32_not_above(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
        return np.where(near > values, np.nextafter(near, np.float32(-np.inf)), near)


def _sets(ensemble: TreeEnsemble) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The start of the set of each node and the last place in it; at place 1 + c: whether category c goes right.

    Place 0 is for a missing value, the last one for every category beyond the set. A numeric node has the one place 0,
    which says no.
    """
    start, last = np.zeros((2, len(ensemble.feature)), np.int64)
    missing_right = ~((ensemble.missing == MISSING_NAN) & ensemble.default_left)
    tables = [np.zeros(1, np.bool_)]
    if (size := sum(int(members.max(initial=-1)) + 3 for members in ensemble.categories.values())) > MOST_SET_PLACES:
        raise BadFile(
            f"the sets of categories reach up to numbers that take {size} bytes, of {MOST_SET_PLACES} at most"
        )
    end = 1
    for node, members in ensemble.categories.items():
        table = np.ones(members.max(initial=-1) + 3, np.bool_)
        table[members + 1] = False
        table[0] = missing_right[node]
        start[node], last[node] = end, len(table) - 1
        tables.append(table)
        end += len(table)
    return start, last, np.concatenate(tables)


def _roots(ensemble: TreeEnsemble, padding: int) -> NDArray[np.int64]:
    """Roots by the score that they add to, as many for each: ``[K * most trees of one score]``.

    Where every tree adds to every score: the roots as they are, ``[T]``.
    """
    if ensemble.vector:
        return np.arange(ensemble.trees)
    counts = np.bincount(ensemble.output, minlength=ensemble.outputs)
    most = int(counts.max(initial=0))
    roots = np.full((ensemble.outputs, most), padding, np.int64)
    # Boolean assignment goes row by row, so trees sorted by score land in the row of their score.
    roots[np.arange(most) < counts[:, None]] = np.argsort(ensemble.output, kind="stable")
    return roots.reshape(-1)
