"""The arithmetic of soft trees, group of trees by group; the backward pass computes activations again, not keeps them.

Straight autograd would keep T x B x (n + l) activations twice over. Here a step keeps the input and the weights, and
memory is that of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

GROUP = 4
"""Trees worked on at once: small enough for caches, large enough for the matrix products."""
ROWS_PER_MASK = 32
"""Rows that share a dropout mask; drawing one per row costs more than the tree itself, and rows are shuffled."""


def node_activations(
    z: Tensor, weight: Tensor, threshold: Tensor, slope: Tensor, given: Tensor, value: Tensor
) -> Tensor:
    """``tanh(slope (z . weight - threshold))``, ``[G, B, n]``; settled nodes keep their value.

    ``weight`` is ``[G, width, n]``, or int64 ``[G, n]`` where each node reads one feature.
    """
    if weight.dim() == 3:
        scaled = weight * slope.unsqueeze(1)
        rows = z.unsqueeze(0).expand(weight.shape[0], z.shape[0], z.shape[1])
        pre = torch.baddbmm(-(threshold * slope).unsqueeze(1), rows, scaled)
    else:
        picked = z[:, weight.flatten()].view(z.shape[0], weight.shape[0], weight.shape[1]).transpose(0, 1)
        pre = (picked - threshold.unsqueeze(1)) * slope.unsqueeze(1)
    active = torch.tanh(pre)
    return torch.where(given, value, active) if given.numel() else active


def leaf_activations(active: Tensor, path: Tensor, path_bias: Tensor, leaf_slope: Tensor) -> Tensor:
    """``tanh(leaf_slope (active . path + path_bias))``, ``[G, B, l]``."""
    slope = leaf_slope.unsqueeze(1)
    return torch.tanh(torch.baddbmm(path_bias.unsqueeze(1) * slope, active, path * slope))


def soft_trees(
    z: Tensor,
    weight: Tensor,
    threshold: Tensor,
    slope: Tensor,
    path: Tensor,
    path_bias: Tensor,
    leaf_slope: Tensor,
    leaf_value: Tensor,
    given: Tensor,
    value: Tensor,
    group: int = GROUP,
) -> Tensor:
    """Scores ``[B, K]`` without a base: ``sum_t (1 + h_t) . leaf_value_t`` with ``leaf_value`` ``[T, l, K]``.

    Straight torch, for scripting and export.
    """
    trees = threshold.shape[0]
    # (1 + h) . v = sum of v + h . v
    scores = leaf_value.sum(dim=[0, 1]).unsqueeze(0).expand(z.shape[0], leaf_value.shape[2])
    for t0 in range(0, trees, group):
        t1 = min(t0 + group, trees)
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(given, t0, t1),
                                  rows_of(value, t0, t1))  # fmt: skip
        leaf = leaf_activations(active, path[t0:t1], path_bias[t0:t1], leaf_slope[t0:t1])
        scores = scores + torch.bmm(leaf, leaf_value[t0:t1]).sum(dim=0)
    return scores


def soft_leaves(
    z: Tensor,
    weight: Tensor,
    threshold: Tensor,
    slope: Tensor,
    path: Tensor,
    path_bias: Tensor,
    leaf_slope: Tensor,
    given: Tensor,
    value: Tensor,
    group: int = GROUP,
) -> Tensor:
    """``(1 + h_t) / 2`` of every leaf, ``[B, T * l]``. Straight torch, for scripting and export."""
    parts: list[Tensor] = []
    for t0 in range(0, threshold.shape[0], group):
        t1 = min(t0 + group, threshold.shape[0])
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(given, t0, t1),
                                  rows_of(value, t0, t1))  # fmt: skip
        leaf = leaf_activations(active, path[t0:t1], path_bias[t0:t1], leaf_slope[t0:t1])
        parts.append((1 + leaf).transpose(0, 1).flatten(1) / 2)
    return torch.cat(parts, dim=1)


def rows_of(settled: Tensor, first: int, last: int) -> Tensor:
    """The part of a settled-nodes tensor for some trees; empty stays empty."""
    return settled[first:last] if settled.numel() else settled


def dropout_mask(like: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """0 or 1 / (1 - rate) per tree, unit and block of rows, spread over ``[G, B, units]``."""
    trees, rows, units = like.shape
    blocks = -(-rows // ROWS_PER_MASK)
    keep = torch.rand(trees, blocks, 1, units, generator=generator, device=like.device) >= rate
    mask: Tensor = keep.to(like.dtype).div_(1 - rate).expand(trees, blocks, ROWS_PER_MASK, units)
    return mask.reshape(trees, blocks * ROWS_PER_MASK, units)[:, :rows]


class Operands(NamedTuple):
    """What the arithmetic works on, in the order of ``soft_trees``; shapes there."""

    z: Tensor
    weight: Tensor
    threshold: Tensor
    slope: Tensor
    path: Tensor
    path_bias: Tensor
    leaf_slope: Tensor
    leaf_value: Tensor
    given: Tensor
    value: Tensor


@dataclass(frozen=True)
class Group:
    """Trees ``part`` of an ensemble with their activations after dropout, and the masks that dropout drew."""

    part: slice
    active: Tensor
    active_mask: Tensor | None
    leaf: Tensor
    leaf_mask: Tensor | None


class SoftTreesFunction(torch.autograd.Function):
    """``soft_trees`` with dropout on both layers and a backward pass that recomputes each group.

    Called as ``SoftTreesFunction.apply(rate, *operands)``.
    """

    @staticmethod
    def forward(ctx: Any, rate: float, *tensors: Tensor) -> Tensor:
        """Scores ``[B, K]``."""
        of = Operands(*tensors)
        ctx.rate = rate
        ctx.seed = int(torch.randint(2**62, ()).item()) if rate else 0
        ctx.save_for_backward(*tensors)
        scores = of.leaf_value.sum(dim=(0, 1)).expand(len(of.z), of.leaf_value.shape[2]).clone()
        for group in _groups(of, ctx.rate, ctx.seed):
            scores += torch.bmm(group.leaf, of.leaf_value[group.part]).sum(dim=0)
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Gradients of everything that wants one; None for the rest."""
        of = Operands(*ctx.saved_tensors)
        into = _wanted(ctx, of)
        if "leaf_value" in into:
            into["leaf_value"] += grads[0].sum(dim=0)  # the 1 of (1 + h)
        for group in _groups(of, ctx.rate, ctx.seed):
            _backward_leaves(of, group, grads[0], into)
        return (None, *(into.get(name) for name in Operands._fields))


class SoftLeavesFunction(torch.autograd.Function):
    """``soft_leaves`` with dropout on both layers and a backward pass that recomputes each group.

    What is dropped of a leaf is all of ``(1 + h) / 2``, so that a leaf without a row and one that is dropped are 0.
    Called as ``SoftLeavesFunction.apply(rate, *operands)``; no leaf value is read.
    """

    @staticmethod
    def forward(ctx: Any, rate: float, *tensors: Tensor) -> Tensor:
        """``[B, T * l]``."""
        of = Operands(*tensors)
        ctx.rate = rate
        ctx.seed = int(torch.randint(2**62, ()).item()) if rate else 0
        ctx.save_for_backward(*tensors)
        leaves = of.z.new_empty(len(of.z), *of.path_bias.shape)
        for group in _groups(of, ctx.rate, ctx.seed):
            kept = 1 if group.leaf_mask is None else group.leaf_mask
            leaves[:, group.part] = ((kept + group.leaf) / 2).transpose(0, 1)
        return leaves.flatten(1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """Gradients of everything that wants one; None for the rest."""
        of = Operands(*ctx.saved_tensors)
        into = _wanted(ctx, of)
        grad = grads[0].view(len(of.z), *of.path_bias.shape).transpose(0, 1) / 2  # [T, B, l]
        for group in _groups(of, ctx.rate, ctx.seed):
            _backward_paths(of, group, grad[group.part], into)
        return (None, *(into.get(name) for name in Operands._fields))


def _wanted(ctx: Any, of: Operands) -> dict[str, Tensor]:
    """Zeros in the shape of every operand that wants a gradient."""
    wanted = [name for name, needs in zip(Operands._fields, ctx.needs_input_grad[1:], strict=True) if needs]
    return {name: torch.zeros_like(getattr(of, name)) for name in wanted}


def _groups(of: Operands, rate: float, seed: int) -> Iterator[Group]:
    """The forward pass of one group after the other; the same seed draws the same dropout again."""
    generator = torch.Generator(device=of.z.device)
    generator.manual_seed(seed)
    trees = len(of.threshold)
    for first in range(0, trees, GROUP):
        last = min(first + GROUP, trees)
        part = slice(first, last)
        given, value = rows_of(of.given, first, last), rows_of(of.value, first, last)
        active = node_activations(of.z, of.weight[part], of.threshold[part], of.slope[part], given, value)
        active_mask = dropout_mask(active, rate, generator) if rate else None
        active = active if active_mask is None else active * active_mask
        leaf = leaf_activations(active, of.path[part], of.path_bias[part], of.leaf_slope[part])
        leaf_mask = dropout_mask(leaf, rate, generator) if rate else None
        leaf = leaf if leaf_mask is None else leaf * leaf_mask
        yield Group(part, active, active_mask, leaf, leaf_mask)


def _backward_leaves(of: Operands, group: Group, grad: Tensor, into: dict[str, Tensor]) -> None:
    """Add one group's gradients for leaf values, and go on to the second layer where somebody asks."""
    part = group.part
    grad_rows = grad.unsqueeze(0).expand(len(group.leaf), *grad.shape)
    if "leaf_value" in into:
        into["leaf_value"][part] += torch.bmm(group.leaf.transpose(1, 2), grad_rows)
    if into.keys() - {"leaf_value"}:
        _backward_paths(of, group, torch.bmm(grad_rows, of.leaf_value[part].transpose(1, 2)), into)


def _backward_paths(of: Operands, group: Group, grad: Tensor, into: dict[str, Tensor]) -> None:
    """Add one group's gradients for the second layer from those of its leaves ``[G, B, l]``, and go on to the first."""
    part = group.part
    grad_leaf = _through_tanh(grad, group.leaf, group.leaf_mask).mul_(of.leaf_slope[part].unsqueeze(1))
    if "path_bias" in into:
        into["path_bias"][part] = grad_leaf.sum(dim=1)
    if "path" in into:
        into["path"][part] = torch.bmm(group.active.transpose(1, 2), grad_leaf)
    if into.keys() & {"z", "weight", "threshold", "value"}:
        _backward_nodes(of, group, torch.bmm(grad_leaf, of.path[part].transpose(1, 2)), into)


def _backward_nodes(of: Operands, group: Group, grad: Tensor, into: dict[str, Tensor]) -> None:
    """Add one group's gradients for the input, the node weights, the thresholds and the settled activations."""
    part, weight = group.part, of.weight[group.part]
    if "value" in into:
        settled = grad if group.active_mask is None else grad * group.active_mask
        into["value"][part] += settled.masked_fill(~of.given[part], 0.0)
    grad = _through_tanh(grad, group.active, group.active_mask)
    if of.given.numel():
        grad = grad.masked_fill(of.given[part], 0.0)
    grad = grad * of.slope[part].unsqueeze(1)
    if "threshold" in into:
        into["threshold"][part] = -grad.sum(dim=1)
    if "weight" in into:
        into["weight"][part] = torch.bmm(of.z.t().unsqueeze(0).expand(len(weight), *of.z.t().shape), grad)
    if "z" in into and weight.dim() == 3:
        into["z"] += torch.bmm(grad, weight.transpose(1, 2)).sum(dim=0)
    elif "z" in into:
        into["z"].index_add_(1, weight.flatten(), grad.transpose(0, 1).flatten(1))


def _through_tanh(grad: Tensor, masked: Tensor, mask: Tensor | None) -> Tensor:
    """The gradient before ``tanh`` and dropout from the one after: ``grad mask (1 - a^2)``; ``masked = mask a``."""
    if mask is None:
        return grad * (1 - masked * masked)
    # Where the mask is 0 so is the gradient; elsewhere a = masked / mask, and all masks that are not 0 are equal.
    plain = masked / mask.amax().clamp_min(1)
    return grad * mask * (1 - plain * plain)
