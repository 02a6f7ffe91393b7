"""The steps from the roots of an ensemble down to its leaves, and trees as rectangular arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.walk_layout import items_of


class LeafSteps(NamedTuple):
    """One entry for each leaf and each node above it, int64 ``[S]``; numbers are those of the ensemble."""

    leaf: NDArray[np.int64]
    node: NDArray[np.int64]
    child: NDArray[np.int64]  # the child of the node on the way to the leaf: a node, or N plus the number of the leaf
    right: NDArray[np.bool_]  # whether that is the right child


def leaf_steps(ensemble: TreeEnsemble) -> LeafSteps:
    """All steps, from the leaves up."""
    nodes, leaves = len(ensemble.feature), len(ensemble.leaf_value)
    children = items_of(ensemble)[ensemble.trees : -1].reshape(nodes, 2)
    parent, is_right = np.full(nodes + leaves, -1), np.zeros(nodes + leaves, np.bool_)
    parent[children], is_right[children[:, 1]] = np.arange(nodes)[:, None], True
    leaf, child = np.arange(leaves), nodes + np.arange(leaves)
    steps = [LeafSteps(leaf[:0], leaf[:0], child[:0], is_right[:0])]
    while len(child):
        below = parent[child] >= 0
        leaf, child = leaf[below], child[below]
        steps.append(LeafSteps(leaf, parent[child], child, is_right[child]))
        child = parent[child]
    return LeafSteps(*map(np.concatenate, zip(*steps, strict=True)))


@dataclass(frozen=True)
class PaddedTrees:
    """Trees as rectangular arrays: T trees, n nodes and l leaves each."""

    node: NDArray[np.int64]  # [T, n], number of the node in the ensemble, -1 for padding
    leaf: NDArray[np.int64]  # [T, l], number of the leaf in the ensemble, -1 for padding
    # [T, n, l]: +1 where the leaf is to the right of the node, -1 where to the left, 0 where the node is no ancestor:
    path: NDArray[np.float32]

    @classmethod
    def of(cls, ensemble: TreeEnsemble, trees: NDArray[np.int64] | None = None) -> PaddedTrees:
        """Pad every tree, or every one of ``trees``, to the largest of them."""
        trees = np.arange(ensemble.trees) if trees is None else trees
        node, leaf = _ragged(ensemble.node_start, trees), _ragged(ensemble.leaf_start, trees)
        steps = leaf_steps(ensemble)
        row = np.full(ensemble.trees, -1)
        row[trees] = np.arange(len(trees))
        tree = np.repeat(np.arange(ensemble.trees), np.diff(ensemble.node_start))[steps.node]
        place = row[tree], steps.node - ensemble.node_start[tree], steps.leaf - ensemble.leaf_start[tree]
        inside = row[tree] >= 0
        path = np.zeros((*node.shape, leaf.shape[1]), np.float32)
        path[tuple(index[inside] for index in place)] = np.where(steps.right, 1, -1)[inside]
        return cls(node, leaf, path)


def _ragged(start: NDArray[np.int64], trees: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from ``start`` of each tree up to that of the next one, padded with -1; one column at least."""
    first, end = start[trees, None], start[trees + 1, None]
    numbers = first + np.arange(max(1, int((end - first).max(initial=0))))
    return np.where(numbers < end, numbers, -1)
