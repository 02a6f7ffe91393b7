"""Single trees, and the ensemble that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windtunnel.modules.trees.ensemble import MISSING_NAN, TreeEnsemble

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SingleTree:
    """A tree of n nodes and n + 1 leaves whose missing values, always NaN, go the default way.

    The arrays are as in ``TreeEnsemble``, with ``leaf_value`` of shape ``[leaves]`` or ``[leaves, K]``.
    """

    feature: NDArray[np.int64]
    threshold: Floats
    default_left: NDArray[np.bool_]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf_value: Floats
    categories: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    leaf_cover: Floats | None = None


def child_numbers(is_leaf: NDArray[np.bool_], is_node: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The numbers of nodes and leaves that are stored together: nodes count up from 0, leaves down from -1.

    A pruned node is neither; its number means nothing.
    """
    return np.where(is_leaf, -np.cumsum(is_leaf, dtype=np.int64), np.cumsum(is_node, dtype=np.int64) - 1)


def join(
    trees: Sequence[SingleTree],
    *,
    width: int,
    base: Floats,
    output: NDArray[np.int64] | None = None,
    divisor: float = 1.0,
    reads: str = "float64",
    data_at: str = "unknown",
) -> TreeEnsemble:
    """One ensemble of trees; where each leaf holds one value, the trees go to the scores in turn, or to ``output``."""
    counts = np.array([len(tree.feature) for tree in trees], np.int64)
    node_start = np.cumsum([0, *counts])
    leaf_value = np.concatenate([tree.leaf_value for tree in trees] or [np.empty(0)]).astype(np.float64)
    if leaf_value.ndim == 2:
        output = np.zeros(len(trees), np.int64)
    elif output is None:
        output = np.arange(len(trees)) % len(base)
    covers = [tree.leaf_cover for tree in trees if tree.leaf_cover is not None]
    return TreeEnsemble(
        width=width,
        node_start=node_start,
        leaf_start=np.cumsum([0, *(counts + 1)]),
        feature=np.concatenate([np.empty(0), *(tree.feature for tree in trees)]).astype(np.int64),
        threshold=np.concatenate([np.empty(0), *(tree.threshold for tree in trees)]),
        default_left=np.concatenate([np.empty(0), *(tree.default_left for tree in trees)]).astype(np.bool_),
        missing=np.full(int(counts.sum()), MISSING_NAN, np.int8),
        left=np.concatenate([np.empty(0), *(tree.left for tree in trees)]).astype(np.int64),
        right=np.concatenate([np.empty(0), *(tree.right for tree in trees)]).astype(np.int64),
        leaf_value=leaf_value,
        output=output,
        base=np.asarray(base, np.float64),
        categories={
            int(first) + node: members
            for first, tree in zip(node_start, trees, strict=False)
            for node, members in tree.categories.items()
        },
        leaf_cover=np.concatenate(covers).astype(np.float64) if covers and len(covers) == len(trees) else None,
        divisor=divisor,
        reads=reads,
        data_at=data_at,
    )
