"""The cut of a pass over soft trees into groups of trees and slices of rows, and the operands of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import pad

from windtunnel.modules.trees.soft.kernel.memory import ROWS_PER_MASK, plan, workers
from windtunnel.modules.trees.soft.kernel.operands import Dropout, SoftOperands
from windtunnel.modules.trees.soft.kernel.overrides import NodeOverrides, missing_flags, node_overrides
from windtunnel.modules.trees.soft.kernel.tree_weights import (
    SparseWeights,
    TreeWeights,
    favours_dense,
    favours_sparse,
    one_column_each,
)

ALWAYS = 100.0
"""The sigmoid of this is 1."""


@dataclass(frozen=True)
class RowSlice:
    """A slice of the batch, columns first; a last row of ones below z."""

    at: slice
    z: Tensor  # [width + 1, R]
    columns: Tensor  # [R, width], z the other way round, without the ones
    ones: Tensor  # [R]
    x: Tensor | None  # [width, R]
    gone: Tensor | None  # int8 [width, R]
    grad: Tensor | None  # [K, R] or [T * l, R], of the output

    @classmethod
    def of(cls, operands: SoftOperands, at: slice, grad: Tensor | None) -> RowSlice:
        """Rows ``at`` of the batch."""
        z = torch.cat([operands.z[at].t(), operands.z.new_ones(1, at.stop - at.start)])
        x = operands.x[at].t().contiguous() if operands.x.numel() else None
        gone = None if x is None else missing_flags(x)
        return cls(at, z, z[:-1].t(), z[-1], x, gone, None if grad is None else grad[:, at])


@dataclass(frozen=True)
class TreeGroup:
    """Trees ``part`` with slopes and shifts folded into the weights; of n + 1 units, the last is always 1."""

    part: slice
    first: Tensor | SparseWeights  # [G * (n + 1), width + 1], the last column the shifts
    second: TreeWeights  # [G, l, n + 1]
    value: Tensor | None  # [G * l, K], of a leaf that is reached
    node_overrides: NodeOverrides | None
    masks: tuple[Tensor, Tensor] | None  # [G, n + 1, blocks of rows] and [G, l, blocks of rows]

    @classmethod
    def of(cls, operands: SoftOperands, part: slice, dropout: Dropout) -> TreeGroup:
        """Fold slopes and shifts into the weights of trees ``part``."""
        value = operands.leaf_value[part].flatten(0, 1) * 2 if operands.leaf_value.dim() == 3 else None
        has_overrides = operands.x.numel() > 0
        overrides = (
            node_overrides(
                operands.feature, operands.missing, operands.direction, operands.slope * 2, operands.category_node, part
            )
            if has_overrides
            else None
        )
        masks = _masks(operands, part, dropout) if dropout.rate else None
        return cls(part, _first(operands, part), _second(operands, part, dropout), value, overrides, masks)

    @cached_property
    def first_back(self) -> Tensor | SparseWeights:
        """``[width + 1, G * (n + 1)]``, the way of the gradient."""
        return self.first.t() if isinstance(self.first, Tensor) else self.first.transposed()

    @cached_property
    def second_back(self) -> TreeWeights:
        """``[G, n + 1, l]``, the way of the gradient; it does not come through the unit that is always 1."""
        return self.second.transposed(but=-1)


@dataclass(frozen=True)
class TreePass:
    """A pass over all trees and rows: shares of the trees for threads, in groups, and slices of rows."""

    operands: SoftOperands
    dropout: Dropout
    shares: list[slice]
    at_once: int
    slices: list[RowSlice]

    @classmethod
    def cut(cls, operands: SoftOperands, dropout: Dropout, grad: Tensor | None = None) -> TreePass:
        """The shares, groups and slices of a pass; the same for the forward and the backward pass."""
        trees, nodes, leaves = operands.path.shape
        batch, units = operands.z.shape[0], max(nodes + 1, leaves)
        threads = workers(trees, units * batch, operands.z.device)
        ends = [trees * thread // threads for thread in range(threads + 1)]
        cut = plan(
            trees, units, operands.z.element_size(), operands.z.device, threads, gathered=not operands.weight.numel()
        )
        slices = [RowSlice.of(operands, slice(at, min(at + cut.rows, batch)), grad) for at in range(0, batch, cut.rows)]
        return cls(operands, dropout, [slice(*two) for two in pairwise(ends)], cut.trees, slices)

    def groups(self, share: slice) -> Iterator[TreeGroup]:
        """The groups of trees of a share."""
        for first in range(share.start, share.stop, self.at_once):
            yield TreeGroup.of(self.operands, slice(first, min(first + self.at_once, share.stop)), self.dropout)


def _first(operands: SoftOperands, part: slice) -> Tensor | SparseWeights:
    slope = pad(operands.slope[part] * 2, (0, 1))
    shift = pad(operands.slope[part] * operands.threshold[part] * -2, (0, 1), value=ALWAYS)
    if operands.weight.numel():
        weight = pad((operands.weight[part] * slope[:, None, :-1]).transpose(1, 2), (0, 0, 0, 1))
        return torch.cat([weight, shift.unsqueeze(2)], dim=2).flatten(0, 1)
    column, width = pad(operands.feature[part], (0, 1)).flatten(), operands.z.shape[1]
    if favours_dense(operands.z):
        dense = operands.z.new_zeros(len(column), width + 1).scatter_(1, column[:, None], slope.view(-1, 1))
        dense[:, -1] = shift.flatten()
        return dense
    return one_column_each(column, slope.flatten(), shift.flatten(), width)


def _second(operands: SoftOperands, part: slice, dropout: Dropout) -> TreeWeights:
    path, bias = operands.path[part].transpose(1, 2), operands.path_bias[part].unsqueeze(2)
    if not dropout.rate:  # the second layer reads sigmoids: a = 2 sigmoid - 1
        path, bias = path * 2, bias - path.sum(dim=2, keepdim=True)
    weights = path.new_empty(*path.shape[:2], path.shape[2] + 1)
    weights[:, :, :-1], weights[:, :, -1:] = path, bias
    return TreeWeights.of(weights.mul_(operands.leaf_slope[part].unsqueeze(2) * 2), add_up=favours_sparse(operands.z))


def _masks(operands: SoftOperands, part: slice, dropout: Dropout) -> tuple[Tensor, Tensor]:
    """0 or 1 / (1 - rate) per unit and block of rows; the unit that is always 1 stays."""
    units = operands.path.shape[1] + 1
    masks = dropout_mask(operands, part, dropout).to(operands.z.dtype).div_(1 - dropout.rate)
    masks[:, units - 1] = 1
    return masks[:, :units], masks[:, units:]


def dropout_mask(operands: SoftOperands, part: slice, dropout: Dropout) -> Tensor:
    """The mask of units of trees ``part`` that dropout keeps, ``[G, n + 1 + l, blocks of rows]``, whatever the cut."""
    units, blocks = operands.path.shape[1] + 1 + operands.path.shape[2], -(-operands.z.shape[0] // ROWS_PER_MASK)
    draws = torch.Generator(device=operands.z.device)
    drawn = operands.z.new_empty(part.stop - part.start, units, blocks)
    for tree, draws_of_tree in zip(range(part.start, part.stop), drawn, strict=True):
        draws_of_tree.uniform_(generator=draws.manual_seed(dropout.seed + tree))
    return drawn >= dropout.rate
