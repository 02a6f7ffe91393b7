"""The operands of soft trees, as the operation on a whole ensemble takes them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

LEARNED = ("z", "weight", "threshold", "path", "path_bias", "leaf_value", "category_table")
"""Operands that may want a gradient, in the order of flags and gradients."""
NODES = {"z", "weight", "threshold", "category_table"}
"""Those of them that the gradient reaches through the nodes."""


class SoftOperands(NamedTuple):
    """The tensors that soft trees are computed from; T trees of n nodes and l leaves, B rows, K scores."""

    z: Tensor  # the scaled input, [B, width]
    weight: Tensor  # [T, width, n]; empty where each node reads the one column ``feature``
    threshold: Tensor  # [T, n]
    slope: Tensor  # [T, n]
    path: Tensor  # [T, n, l], 0 at padding
    path_bias: Tensor  # [T, l]
    leaf_slope: Tensor  # [T, l]
    leaf_value: Tensor  # [T, l, K], half of each leaf's value; empty where the leaves themselves are wanted
    x: Tensor  # the input before scaling, [B, width]; empty where no node has a missing or a category value
    feature: Tensor  # int64 [T, n]
    missing: Tensor  # int8 [T, n], see TreeEnsemble
    direction: Tensor  # [T, n], -1 where a missing value goes left, else +1
    category_node: Tensor  # int64 [c], positions in T * n
    category_table: Tensor  # [c, V + 2]


class Dropout(NamedTuple):
    """Masks of one seed, shared by ``ROWS_PER_MASK`` rows."""

    rate: float
    seed: int
    whole: bool  # what is dropped of a leaf: all of ``(1 + h) / 2``, or only ``h``
