"""Convert soft trees back to a tree ensemble: the inverse of ``soften``, with the temperature going to 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.trees.ensemble import MISSING_NAN, TreeEnsemble
from windtunnel.modules.trees.soft.trees import SoftSplits, SoftTrees

INFINITY = 0x7F800000
"""The bits of the float32 infinity."""
INSTEAD = (
    "Translate with level='L1' or 'L2' to harden what was trained, or keep the soft trees: torchscript, "
    "exported and onnx files hold them."
)
MAX_FLOAT64 = float(np.finfo(np.float64).max)


def harden(soft: SoftTrees) -> TreeEnsemble:
    """Hard trees of soft ones: every node decides, and a row gets the value of one leaf.

    As the temperature goes to 0 a node ``tanh((z - threshold) / tau)`` becomes -1 or +1, a leaf -1 or, where every
    ancestor agrees, +1, and ``value / 2 (1 + h)`` the value of that leaf. A threshold is the largest float32 whose z,
    rounded as ``SoftSplits.scaled`` rounds it, is not above the soft one, so that every float32 row goes the way that
    its soft node leans; at the threshold itself it goes left. An entry of a category table sends its category to the
    right where it is above 0. Values, base and default directions are those of the soft trees.

    Raises
    ------
    UnfaithfulOption
        The first or the second layer has moved (levels L3 and L4), so that the network is no tree any more.
    """
    leaf_value, base = (parameter.detach().cpu().double().numpy() for parameter in (soft.leaf_value, soft.base))
    leaf_value = leaf_value[soft.leaf_mask.cpu().numpy() > 0]
    return _ensemble(soft, leaf_value, soft.output.cpu().numpy().copy(), base)


def harden_splits(soft: SoftSplits) -> TreeEnsemble:
    """As ``harden``, of soft trees without values: each leaf has its position for one."""
    leaves = int(soft.leaf_mask.sum())
    return _ensemble(soft, np.arange(leaves, dtype=np.float64), np.zeros(len(soft.feature), np.int64), np.zeros(1))


def _ensemble(
    soft: SoftSplits, leaf_value: NDArray[np.float64], output: NDArray[np.int64], base: NDArray[np.float64]
) -> TreeEnsemble:
    _check_first_layer(soft)
    real, leaf_real = soft.node_mask.cpu().numpy() > 0, soft.leaf_mask.cpu().numpy() > 0
    counts, leaf_counts = real.sum(axis=1), leaf_real.sum(axis=1)
    left, right = _children(soft, counts.tolist(), leaf_counts.tolist())
    sets = _sets(soft, real)
    left[sets.swapped], right[sets.swapped] = right[sets.swapped], left[sets.swapped]
    default_left, missing = soft.direction.cpu().numpy()[real] < 0, soft.missing.cpu().numpy()[real]
    threshold = _thresholds(soft)[real]
    default_left[sets.node], missing[sets.node], threshold[sets.node] = sets.default_left, MISSING_NAN, 0.0
    return TreeEnsemble(
        width=len(soft.center),
        node_start=np.cumsum([0, *counts]),
        leaf_start=np.cumsum([0, *leaf_counts]),
        feature=soft.feature.cpu().numpy()[real],
        threshold=threshold,
        default_left=default_left,
        missing=missing,
        left=left,
        right=right,
        leaf_value=leaf_value,
        output=output,
        base=base,
        categories=dict(zip(sets.node.tolist(), sets.members, strict=True)),
        reads="float32",  # soft trees are given float32 rows
    )


def _check_first_layer(soft: SoftSplits) -> None:
    if soft.node_weight.numel() == 0:
        return
    weight = soft.node_weight.detach()
    start = torch.zeros_like(weight).scatter_(1, soft.feature.unsqueeze(1), soft.node_mask.unsqueeze(1))
    if not torch.equal(weight, start):
        raise UnfaithfulOption(
            f"trees trained at {soft.level}: their nodes weigh several columns against a threshold, which a tree that "
            f"compares one column at a time cannot hold. {INSTEAD}"
        )


def _children(
    soft: SoftSplits, counts: list[int], leaf_counts: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both children of every node, read off the paths: the child has exactly the leaves of that side below it."""
    path, bias = soft.path.detach().cpu().numpy(), soft.path_bias.detach().cpu().numpy()
    children: list[list[int]] = []
    for tree, (nodes, leaves) in enumerate(zip(counts, leaf_counts, strict=True)):
        signs = path[tree, :nodes, :leaves]
        number = {(row != 0).tobytes(): node for node, row in enumerate(signs)}
        number |= {unit.tobytes(): -1 - leaf for leaf, unit in enumerate(np.eye(leaves, dtype=bool))}
        pairs = [[number.get((row == side).tobytes()) for side in (-1, 1)] for row in signs]
        if (
            any(child is None for pair in pairs for child in pair)
            or (bias[tree, :leaves] != 1 - np.abs(signs).sum(axis=0)).any()
        ):
            raise UnfaithfulOption(
                f"trees trained at {soft.level}: their leaves weigh nodes that are none of their ancestors, which no "
                f"tree can hold. {INSTEAD}"
            )
        children += pairs  # type: ignore[arg-type]  # none is None
    table = np.array(children, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def _thresholds(soft: SoftSplits) -> NDArray[np.float64]:
    """``[T, n]``: the largest float32 that goes left, found by bisection over the ordered float32 numbers."""
    feature = soft.feature.cpu().numpy()
    facts = [getattr(soft, name).detach().cpu().numpy() for name in ("center", "scale", "bound", "threshold")]
    center, scale, bound, wanted = facts
    center, scale, lower, upper = center[feature], scale[feature], bound[0][feature], bound[1][feature]

    def goes_left(x: NDArray[np.float32]) -> NDArray[np.bool_]:
        with np.errstate(over="ignore"):
            z = (x - center) / scale
        return np.asarray(np.minimum(np.maximum(z, lower), upper) <= wanted)

    low, high = np.full(feature.shape, -INFINITY), np.full(feature.shape, INFINITY)
    for _ in range(33):
        middle = (low + high + 1) // 2
        left = goes_left(_in_order(middle))
        low, high = np.where(left, middle, low), np.where(left, high, middle - 1)
    largest = _in_order(low).astype(np.float64)
    # A split that separates only missing values sends every number to one side.
    beyond = soft.beyond_bounds().cpu().numpy()
    largest[beyond] = np.where(wanted[beyond] > 0, np.inf, -MAX_FLOAT64)
    return largest


def _in_order(number: NDArray[Any]) -> NDArray[np.float32]:
    """Float32 numbers by their place in the order of all of them; 0 is at 0, the infinities at both ends."""
    size = np.abs(number).astype(np.uint32).view(np.float32)
    numbers: NDArray[np.float32] = np.where(number < 0, -size, size)
    return numbers


@dataclass(frozen=True)
class _CategorySets:
    """Of each categorical node: its number, the categories that go left, and where a missing one goes.

    ``swapped`` are the nodes whose children have changed sides, because unknown categories go right.
    """

    node: NDArray[np.int64]
    members: list[NDArray[np.int64]]
    default_left: NDArray[np.bool_]
    swapped: NDArray[np.int64]


def _sets(soft: SoftSplits, real: NDArray[np.bool_]) -> _CategorySets:
    number = np.cumsum(real.flatten()) - 1
    node: NDArray[np.int64] = number[soft.category_node.cpu().numpy()]
    left = soft.category_table.detach().cpu().numpy() <= 0
    swapped = left[:, -2] if len(left) else np.zeros(0, np.bool_)
    left = left ^ swapped[:, None]
    return _CategorySets(node, [np.flatnonzero(row[:-2]) for row in left], left[:, -1], node[swapped])
