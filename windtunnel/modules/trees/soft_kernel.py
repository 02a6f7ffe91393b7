r"""The arithmetic of soft trees, forward and backward, on slices of trees and rows whose activations stay in caches.

``tanh(y) = 2 sigmoid(2 y) - 1``, and sigmoid is several times faster than tanh. So a node is kept as ``sigmoid(2 y)``,
a leaf as ``sigmoid(2 y) = (1 + tanh(y)) / 2``, which is how far a row reaches it; factors and shifts go into the
weights, once per group. Each tree has one unit more, always 1, whose weights in the second layer are the biases.

Units come first, ``[G, units, R]``: the gathers of L1 and L2 copy whole rows, and scores are one matrix product.
Nothing of T x B is kept; the backward pass computes the activations of a slice again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from windtunnel.modules.trees.memory import ROWS_PER_MASK, plan
from windtunnel.modules.trees.settled import Settling, settle, settling, take_categories, what_is_gone

LEARNED = ("z", "weight", "threshold", "path", "path_bias", "leaf_value", "category_table")
"""Operands that may want a gradient, in the order of flags and answers."""
NODES = {"z", "weight", "threshold", "category_table"}
"""Those of them that the gradient reaches through the nodes."""


class SoftOperands(NamedTuple):
    """What soft trees are computed from; T trees of n nodes and l leaves, B rows, K scores."""

    z: Tensor
    """The scaled input, ``[B, width]``."""
    weight: Tensor
    """``[T, width, n]``; empty where each node reads the one column ``feature``."""
    threshold: Tensor
    """``[T, n]``."""
    slope: Tensor
    """``[T, n]``."""
    path: Tensor
    """``[T, n, l]``, 0 at padding."""
    path_bias: Tensor
    """``[T, l]``."""
    leaf_slope: Tensor
    """``[T, l]``."""
    leaf_value: Tensor
    """``[T, l, K]``, half of each leaf's value; empty where the leaves themselves are wanted."""
    x: Tensor
    """The input before scaling, ``[B, width]``; empty where no node has a missing or a category value."""
    feature: Tensor
    """int64 ``[T, n]``."""
    missing: Tensor
    """int8 ``[T, n]``, see TreeEnsemble."""
    direction: Tensor
    """``[T, n]``, -1 where a missing value goes left, else +1."""
    category_node: Tensor
    """int64 ``[c]``, positions in T * n."""
    category_table: Tensor
    """``[c, V + 2]``."""


class Dropout(NamedTuple):
    """Masks of one seed, shared by ``ROWS_PER_MASK`` rows."""

    rate: float
    seed: int
    whole: bool
    """What is dropped of a leaf: all of ``(1 + h) / 2``, or only ``h``."""


@dataclass(frozen=True)
class Group:
    """Trees ``part`` with slopes and shifts folded into the weights; of n + 1 units, the last is always 1."""

    part: slice
    first: Tensor  # [G * (n + 1), width + 1], the last column the shifts; empty where nodes gather
    gather: Tensor  # int64 [G * (n + 1)]
    slope: Tensor  # [G, n + 1, 1], of the sigmoid
    shift: Tensor  # [G, n + 1, 1]
    second: Tensor  # [G, l, n + 1]
    settling: Settling | None
    masks: tuple[Tensor, Tensor] | None  # [G, n + 1, blocks of rows] and [G, l, blocks of rows]


@dataclass(frozen=True)
class Rows:
    """A slice of the batch, columns first; a last row of ones below z."""

    at: slice
    z: Tensor  # [width + 1, R]
    x: Tensor | None  # [width, R]
    gone: Tensor | None  # int8 [width, R]


@dataclass(frozen=True)
class Activations:
    """Those of one group for one slice of rows; without dropout both of a layer are the same tensor."""

    node: Tensor  # sigmoid, [G, n + 1, R]
    unit: Tensor  # what the second layer reads
    reach: Tensor  # sigmoid, [G, l, R]
    leaf: Tensor  # what is left of it after dropout
    node_mask: Tensor | None
    leaf_mask: Tensor | None


@dataclass(frozen=True)
class Sums:
    """Gradients added up over slices of rows, with respect to the folded weights; None where none is wanted."""

    z: Tensor | None  # [width, B]
    first: Tensor | None  # [T, n + 1, width + 1]
    shift: Tensor | None  # [T, n + 1]
    second: Tensor | None  # [T, n + 1, l]
    leaf_value: Tensor | None  # [T, l, K]
    category_table: Tensor | None  # [c, V + 2]

    @classmethod
    def zeros(cls, of: SoftOperands, wants: set[str]) -> Sums:
        """Nothing added yet."""
        trees, nodes, leaves = of.path.shape

        def zeros(*names: str, shape: tuple[int, ...]) -> Tensor | None:
            return of.z.new_zeros(shape) if wants & set(names) else None

        return cls(
            z=zeros("z", shape=tuple(reversed(of.z.shape))),
            first=zeros("weight", shape=(trees, nodes + 1, of.z.shape[1] + 1)),
            shift=zeros("threshold", shape=(trees, nodes + 1)),
            second=zeros("path", "path_bias", shape=(trees, nodes + 1, leaves)),
            leaf_value=zeros("leaf_value", shape=of.leaf_value.shape),
            category_table=zeros("category_table", shape=of.category_table.shape),
        )

    def gradients(self, of: SoftOperands, dropout: Dropout) -> dict[str, Tensor]:
        """With respect to the operands: the folding of ``_group`` undone."""
        answers = {}
        if self.z is not None:
            answers["z"] = self.z.t().contiguous()
        if self.first is not None:
            answers["weight"] = (self.first[:, :-1, :-1].transpose(1, 2) * (of.slope * 2).unsqueeze(1)).contiguous()
        if self.shift is not None:
            answers["threshold"] = self.shift[:, :-1] * of.slope * -2
        if self.second is not None:
            bias = self.second[:, -1]
            path = self.second[:, :-1] if dropout.rate else self.second[:, :-1] * 2 - bias.unsqueeze(1)
            answers["path"] = path * (of.leaf_slope * 2).unsqueeze(1)
            answers["path_bias"] = bias * of.leaf_slope * 2
        if self.leaf_value is not None:
            answers["leaf_value"] = self.leaf_value
        if self.category_table is not None:
            answers["category_table"] = self.category_table
        return answers


class Buffers:
    """Blocks ``[trees, units, rows]`` that every slice writes anew; fresh ones would cost page faults each time."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._blocks: dict[str, Tensor] = {}

    def __call__(self, name: str, trees: int, units: int, rows: int) -> Tensor:
        """The block of that name; the first request of a name is the largest."""
        if name not in self._blocks:
            self._blocks[name] = self._like.new_empty(trees * units * rows)
        return self._blocks[name][: trees * units * rows].view(trees, units, rows)


def forward(of: SoftOperands, dropout: Dropout) -> Tensor:
    """Scores ``[K, B]`` without a base, or the leaves ``[T * l, B]``."""
    scored = of.leaf_value.dim() == 3
    trees, leaves = of.path_bias.shape
    batch = of.z.shape[0]
    out = of.z.new_zeros(of.leaf_value.shape[2], batch) if scored else of.z.new_empty(trees * leaves, batch)
    buffers = Buffers(of.z)
    for group, rows in _slices(of, dropout):
        leaf = _activations(of, group, rows, dropout, buffers).leaf.flatten(0, 1)
        if scored:
            out[:, rows.at].addmm_(of.leaf_value[group.part].flatten(0, 1).t(), leaf, alpha=2)
        else:
            out[group.part.start * leaves : group.part.stop * leaves, rows.at] = leaf
    return out


def backward(grad: Tensor, of: SoftOperands, dropout: Dropout, wanted: list[bool]) -> list[Tensor]:
    """Gradients in the order of ``LEARNED`` from that of the output; empty where none is wanted."""
    wants = {name for name, wish in zip(LEARNED, wanted, strict=True) if wish}
    sums, buffers = Sums.zeros(of, wants), Buffers(of.z)
    for group, rows in _slices(of, dropout):
        now = _activations(of, group, rows, dropout, buffers)
        upper = _through_values(of, group, now, grad[:, rows.at], sums, buffers)
        if wants - {"leaf_value"}:
            lower = _through_leaves(group, now, upper, sums, buffers, onwards=bool(wants & NODES))
            if lower is not None:
                _through_nodes(of, group, rows, lower, sums)
    answers = sums.gradients(of, dropout)
    return [answers[name] if name in wants else of.z.new_empty(0) for name in LEARNED]


def _slices(of: SoftOperands, dropout: Dropout) -> Iterator[tuple[Group, Rows]]:
    """Every group with every slice of rows, in the same order and with the same masks each time."""
    trees, nodes, leaves = of.path.shape
    batch = of.z.shape[0]
    cut = plan(trees, max(nodes + 1, leaves), of.z.element_size(), of.z.device)
    slices = [_rows(of, slice(first, min(first + cut.rows, batch))) for first in range(0, batch, cut.rows)]
    draws = torch.Generator(device=of.z.device).manual_seed(dropout.seed)
    for first in range(0, trees, cut.trees):
        group = _group(of, slice(first, min(first + cut.trees, trees)), dropout, draws)
        for rows in slices:
            yield group, rows


def _rows(of: SoftOperands, at: slice) -> Rows:
    z = torch.cat([of.z[at].t(), of.z.new_ones(1, at.stop - at.start)])
    if not of.x.numel():
        return Rows(at, z, None, None)
    x = of.x[at].t().contiguous()
    return Rows(at, z, x, what_is_gone(x))


def _group(of: SoftOperands, part: slice, dropout: Dropout, draws: torch.Generator) -> Group:
    slope = pad(of.slope[part] * 2, (0, 1))
    shift = pad(of.slope[part] * of.threshold[part] * -2, (0, 1))
    if of.weight.numel():
        weight = pad((of.weight[part] * slope[:, None, :-1]).transpose(1, 2), (0, 0, 0, 1))
        first = torch.cat([weight, shift.unsqueeze(2)], dim=2).flatten(0, 1)
    else:
        first = of.weight
    path, bias, steep = of.path[part], of.path_bias[part], of.leaf_slope[part] * 2
    if not dropout.rate:  # the second layer reads sigmoids: a = 2 sigmoid - 1
        path, bias = path * 2, bias - path.sum(dim=1)
    second = torch.cat([path, bias.unsqueeze(1)], dim=1).transpose(1, 2) * steep.unsqueeze(2)
    masks = _masks(second, of.z.shape[0], dropout, draws) if dropout.rate else None
    settled = (
        settling(of.feature, of.missing, of.direction, of.slope * 2, of.category_node, part) if of.x.numel() else None
    )
    gather = pad(of.feature[part], (0, 1)).flatten()
    return Group(part, first, gather, slope.unsqueeze(2), shift.unsqueeze(2), second, settled, masks)


def _masks(second: Tensor, rows: int, dropout: Dropout, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """0 or 1 / (1 - rate) per unit and block of rows; the unit that is always 1 stays."""
    trees, leaves, nodes = second.shape
    node, leaf = (
        (torch.rand(trees, units, -(-rows // ROWS_PER_MASK), generator=draws, device=second.device) >= dropout.rate)
        .to(second.dtype)
        .div_(1 - dropout.rate)
        for units in (nodes, leaves)
    )
    node[:, -1] = 1
    return node, leaf


def _for_rows(mask: Tensor, at: slice) -> Tensor:
    """The mask ``[G, units, R]`` of a slice that starts with a block."""
    blocks = mask[:, :, at.start // ROWS_PER_MASK : -(-at.stop // ROWS_PER_MASK)]
    return blocks.repeat_interleave(ROWS_PER_MASK, dim=2)[:, :, : at.stop - at.start]


def _activations(of: SoftOperands, group: Group, rows: Rows, dropout: Dropout, buffers: Buffers) -> Activations:
    trees, leaves, nodes = group.second.shape
    count = rows.z.shape[1]
    node = buffers("node", trees, nodes, count)
    if group.first.numel():
        torch.mm(group.first, rows.z, out=node.view(-1, count))
    else:
        torch.index_select(rows.z, 0, group.gather, out=node.view(-1, count))
        node.mul_(group.slope).add_(group.shift)
    if group.settling is not None and rows.x is not None:
        settle(node, rows.x, rows.gone, group.settling, of.category_table)
    node.sigmoid_()
    node[:, -1].fill_(1.0)
    reach = buffers("reach", trees, leaves, count)
    if group.masks is None:
        torch.bmm(group.second, node, out=reach).sigmoid_()
        return Activations(node, node, reach, reach, None, None)
    node_mask, leaf_mask = (_for_rows(mask, rows.at) for mask in group.masks)
    unit = torch.mul(node, 2, out=buffers("unit", trees, nodes, count)).sub_(1).mul_(node_mask)
    torch.bmm(group.second, unit, out=reach).sigmoid_()
    leaf = torch.mul(reach, leaf_mask, out=buffers("leaf", trees, leaves, count))
    if not dropout.whole:
        leaf.add_(0.5).sub_(leaf_mask, alpha=0.5)  # (1 + mask h) / 2
    return Activations(node, unit, reach, leaf, node_mask, leaf_mask)


def _through_values(
    of: SoftOperands, group: Group, now: Activations, grad: Tensor, sums: Sums, buffers: Buffers
) -> Tensor:
    """The gradient of the leaves before dropout and sigmoid, ``[G, l, R]``."""
    trees, leaves, count = now.reach.shape
    upper = buffers("upper", trees, leaves, count)
    if of.leaf_value.dim() == 3:
        value = of.leaf_value[group.part].flatten(0, 1)
        if sums.leaf_value is not None:
            total = sums.leaf_value[group.part].view(value.shape)
            total.addmm_(now.leaf.view(-1, count), grad.t(), alpha=2)
        torch.mm(value * 2, grad, out=upper.view(-1, count))
    else:
        upper.copy_(grad[group.part.start * leaves : group.part.stop * leaves].view(now.reach.shape))
    if now.leaf_mask is not None:
        upper.mul_(now.leaf_mask)
    return _through_sigmoid(upper, now.reach)


def _through_leaves(
    group: Group, now: Activations, upper: Tensor, sums: Sums, buffers: Buffers, *, onwards: bool
) -> Tensor | None:
    """The gradient of the nodes before dropout and sigmoid, ``[G, n + 1, R]``, where it is needed."""
    if sums.second is not None:
        sums.second[group.part].baddbmm_(now.unit, upper.transpose(1, 2))
    if not onwards:
        return None
    lower = torch.bmm(group.second.transpose(1, 2), upper, out=buffers("lower", *now.node.shape))
    if now.node_mask is not None:
        lower.mul_(now.node_mask).mul_(2)
    return _through_sigmoid(lower, now.node)


def _through_nodes(of: SoftOperands, group: Group, rows: Rows, lower: Tensor, sums: Sums) -> None:
    if group.settling is not None and rows.x is not None:
        take_categories(lower, rows.x, group.settling, of.category_table, sums.category_table)
    flat = lower.view(-1, lower.shape[2])
    if sums.shift is not None:
        sums.shift[group.part] += lower.sum(dim=2)
    if sums.first is not None:
        sums.first[group.part].view(-1, rows.z.shape[0]).addmm_(flat, rows.z.t())
    if sums.z is not None:
        if group.first.numel():
            sums.z[:, rows.at].addmm_(group.first[:, :-1].t(), flat)
        else:
            sums.z[:, rows.at].index_add_(0, group.gather, flat * group.slope.view(-1, 1))


def _through_sigmoid(grad: Tensor, after: Tensor) -> Tensor:
    """``grad after (1 - after)``, written over ``grad``."""
    torch.ops.aten.sigmoid_backward.grad_input(grad, after, grad_input=grad)
    return grad
