r"""The arithmetic of soft trees, forward and backward, on slices of trees and rows whose activations stay in caches.

``tanh(y) = 2 sigmoid(2 y) - 1``, and sigmoid is several times faster than tanh. So a node is kept as ``sigmoid(2 y)``,
a leaf as ``sigmoid(2 y) = (1 + tanh(y)) / 2``, which is how far a row reaches it; factors and shifts go into the
weights, once per group. Each tree has one unit more, always 1, whose weights in the second layer are the biases.

Units come first, ``[G * units, R]``: the sums of L1 and L2 add up whole rows, and scores are one matrix product.
Nothing of T x B is kept; the backward pass computes the activations of a slice again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from windtunnel.modules.threads import run_parallel
from windtunnel.modules.trees.soft.kernel.gradient_sums import GradientSums
from windtunnel.modules.trees.soft.kernel.memory import ROWS_PER_MASK
from windtunnel.modules.trees.soft.kernel.operands import LEARNED, NODES, Dropout, SoftOperands
from windtunnel.modules.trees.soft.kernel.overrides import apply_overrides, move_category_gradients
from windtunnel.modules.trees.soft.kernel.subnormal import without_subnormals
from windtunnel.modules.trees.soft.kernel.tree_pass import RowSlice, TreeGroup, TreePass
from windtunnel.modules.trees.soft.kernel.tree_weights import SparseWeights

Result = TypeVar("Result")


@dataclass(frozen=True)
class Activations:
    """Those of one group for one slice of rows; without dropout both of a layer are the same tensor."""

    node: Tensor  # sigmoid, [G * (n + 1), R]
    unit: Tensor  # what the second layer reads
    reach: Tensor  # sigmoid, [G * l, R]
    leaf: Tensor  # what is left of it after dropout
    node_mask: Tensor | None
    leaf_mask: Tensor | None


class Buffers:
    """Blocks ``[units, rows]`` that every slice writes anew; fresh ones would cost page faults each time."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._blocks: dict[str, Tensor] = {}

    def __call__(self, name: str, units: int, rows: int) -> Tensor:
        """The block of that name; the first request of a name is the largest."""
        if name not in self._blocks:
            self._blocks[name] = self._like.new_empty(units * rows)
        return self._blocks[name][: units * rows].view(units, rows)


def forward(operands: SoftOperands, dropout: Dropout) -> Tensor:
    """Scores ``[K, B]`` without a base, or the leaves ``[T * l, B]``."""
    work = TreePass.cut(operands, dropout)
    if operands.leaf_value.dim() == 3:
        scores = operands.z.new_zeros(operands.leaf_value.shape[2], operands.z.shape[0])
        for part in _on_each_share(partial(_scores, work), work):
            scores += part
        return scores
    leaves = operands.z.new_empty(operands.path_bias.numel(), operands.z.shape[0])
    _on_each_share(partial(_leaves, work, leaves), work)
    return leaves


def _on_each_share(task: Callable[[slice], Result], work: TreePass) -> list[Result]:
    """The results of a task on each share.

    On a CPU a single share does not run in the calling thread either: OpenMP threads that start there while subnormal
    numbers are taken for 0 would do so ever after, for other libraries too.
    """
    on_cpu = work.operands.z.device.type == "cpu"
    return run_parallel(task, work.shares, single_thread=on_cpu and torch.get_num_threads() > 1)


@without_subnormals
def _scores(work: TreePass, share: slice) -> Tensor:
    """The sum that the trees of the share add to the scores."""
    operands, buffers = work.operands, Buffers(work.operands.z)
    scores = operands.z.new_zeros(operands.leaf_value.shape[2], operands.z.shape[0])
    for group in work.groups(share):
        assert group.value is not None
        for rows in work.slices:
            scores[:, rows.at].addmm_(group.value.t(), _activations(work, group, rows, buffers).leaf)
    return scores


@without_subnormals
def _leaves(work: TreePass, into: Tensor, share: slice) -> None:
    """Write the leaves of the share."""
    leaves, buffers = work.operands.path.shape[2], Buffers(work.operands.z)
    for group in work.groups(share):
        for rows in work.slices:
            leaf = _activations(work, group, rows, buffers).leaf
            into[group.part.start * leaves : group.part.stop * leaves, rows.at] = leaf


def backward(grad: Tensor, operands: SoftOperands, dropout: Dropout, wanted: list[bool]) -> list[Tensor]:
    """Gradients in the order of ``LEARNED`` from that of the output; empty where none is wanted."""
    wants = {name for name, wish in zip(LEARNED, wanted, strict=True) if wish}
    sums, work = GradientSums.zeros(operands, wants), TreePass.cut(operands, dropout, grad)
    for part in _on_each_share(partial(_gradients, work, sums, wants), work):
        if sums.z is not None and part is not None:
            sums.z.add_(part)
    gradients = sums.gradients(operands, dropout)
    return [gradients[name] if name in wants else operands.z.new_empty(0) for name in LEARNED]


@without_subnormals
def _gradients(work: TreePass, sums: GradientSums, wants: set[str], share: slice) -> Tensor | None:
    """Add up what belongs to the trees of the share; the gradient of z, which all have in common, is handed back."""
    buffers = Buffers(work.operands.z)
    z = None if sums.z is None else torch.zeros_like(sums.z)
    for group in work.groups(share):
        group_sums = sums.on(group.part, z)
        for rows in work.slices:
            now = _activations(work, group, rows, buffers)
            if group_sums.leaf_value is not None and rows.grad is not None:
                group_sums.leaf_value.addmm_(now.leaf, rows.grad.t(), alpha=2)
            if wants - {"leaf_value"}:
                upper = _to_leaves(group, rows, now, buffers)
                if group_sums.second is not None:
                    _through_leaves(group, now, upper, group_sums.second)
                if wants & NODES:
                    _through_nodes(work.operands, group, rows, _to_nodes(group, now, upper, buffers), group_sums)
            del now  # so that the next slice finds its memory, still in a cache
    return z


def _for_rows(mask: Tensor, at: slice) -> Tensor:
    """The mask ``[G * units, R]`` of a slice that starts with a block."""
    blocks = mask[:, :, at.start // ROWS_PER_MASK : -(-at.stop // ROWS_PER_MASK)].flatten(0, 1)
    return blocks.repeat_interleave(ROWS_PER_MASK, dim=1)[:, : at.stop - at.start]


def _activations(work: TreePass, group: TreeGroup, rows: RowSlice, buffers: Buffers) -> Activations:
    trees, leaves, nodes = group.second.dense.shape
    count = rows.z.shape[1]
    if isinstance(group.first, Tensor):
        node = torch.mm(group.first, rows.z, out=buffers("node", trees * nodes, count))
    else:
        node = group.first.times(rows.z)
    if group.node_overrides is not None and rows.x is not None:
        apply_overrides(
            node.view(trees, nodes, count), rows.x, rows.gone, group.node_overrides, work.operands.category_table
        )
    node.sigmoid_()
    reach = buffers("reach", trees * leaves, count)
    if group.masks is None:
        reach = group.second.times(node, reach).sigmoid_()
        return Activations(node, node, reach, reach, None, None)
    node_mask, leaf_mask = (_for_rows(mask, rows.at) for mask in group.masks)
    unit = torch.mul(node, 2, out=buffers("unit", trees * nodes, count)).sub_(1).mul_(node_mask)
    reach = group.second.times(unit, reach).sigmoid_()
    leaf = torch.mul(reach, leaf_mask, out=buffers("leaf", trees * leaves, count))
    if not work.dropout.whole:
        leaf.add_(0.5).sub_(leaf_mask, alpha=0.5)  # (1 + mask h) / 2
    return Activations(node, unit, reach, leaf, node_mask, leaf_mask)


def _to_leaves(group: TreeGroup, rows: RowSlice, now: Activations, buffers: Buffers) -> Tensor:
    """The gradient of the leaves before dropout and sigmoid, ``[G * l, R]``."""
    assert rows.grad is not None
    upper = buffers("upper", *now.reach.shape)
    if group.value is not None:
        torch.mm(group.value, rows.grad, out=upper)
    else:
        leaves = group.second.dense.shape[1]
        upper.copy_(rows.grad[group.part.start * leaves : group.part.stop * leaves])
    if now.leaf_mask is not None:
        upper.mul_(now.leaf_mask)
    return _through_sigmoid(upper, now.reach)


def _through_leaves(group: TreeGroup, now: Activations, upper: Tensor, into: Tensor) -> None:
    trees, leaves, nodes = group.second.dense.shape
    into.baddbmm_(now.unit.view(trees, nodes, -1), upper.view(trees, leaves, -1).transpose(1, 2))


def _to_nodes(group: TreeGroup, now: Activations, upper: Tensor, buffers: Buffers) -> Tensor:
    """The gradient of the nodes before dropout and sigmoid, ``[G * (n + 1), R]``."""
    lower = group.second_back.times(upper, buffers("lower", *now.node.shape))
    if now.node_mask is not None:
        lower.mul_(now.node_mask).mul_(2)
    return _through_sigmoid(lower, now.node)


def _through_nodes(operands: SoftOperands, group: TreeGroup, rows: RowSlice, lower: Tensor, sums: GradientSums) -> None:
    if group.node_overrides is not None and rows.x is not None:
        by_tree = lower.view(len(group.second.dense), -1, lower.shape[1])
        move_category_gradients(by_tree, rows.x, group.node_overrides, operands.category_table, sums.category_table)
    if sums.shift is not None:
        sums.shift.addmv_(lower, rows.ones)
    if sums.first is not None:
        sums.first.addmm_(lower, rows.columns)
    if sums.z is not None:
        gradient = (
            group.first_back.times(lower) if isinstance(group.first_back, SparseWeights) else group.first_back @ lower
        )
        sums.z[:, rows.at] += gradient[:-1]


def _through_sigmoid(grad: Tensor, after: Tensor) -> Tensor:
    """``grad after (1 - after)``, written over ``grad``."""
    torch.ops.aten.sigmoid_backward.grad_input(grad, after, grad_input=grad)
    return grad
