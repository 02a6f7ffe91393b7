"""The arithmetic of soft trees, group of trees by group; the backward pass computes activations again, not keeps them.

Straight autograd would keep T x B x (n + l) activations twice over. Here a step keeps the input and the weights, and
memory is that of one group.
"""

from __future__ import annotations

from typing import Any

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
) -> Tensor:
    """Scores ``[B, K]`` without a base: ``sum_t (1 + h_t) . leaf_value_t`` with ``leaf_value`` ``[T, l, K]``."""
    trees = threshold.shape[0]
    # (1 + h) . v = sum of v + h . v
    scores = leaf_value.sum(dim=[0, 1]).unsqueeze(0).expand(z.shape[0], leaf_value.shape[2])
    for first in range(0, trees, 4):
        part = slice_of(first, trees)
        t0, t1 = part[0], part[1]
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(given, t0, t1),
                                  rows_of(value, t0, t1))  # fmt: skip
        leaf = leaf_activations(active, path[t0:t1], path_bias[t0:t1], leaf_slope[t0:t1])
        scores = scores + torch.bmm(leaf, leaf_value[t0:t1]).sum(dim=0)
    return scores


def slice_of(first: int, trees: int) -> tuple[int, int]:
    """Trees ``first`` up to the end of its group."""
    return first, min(first + 4, trees)


def rows_of(settled: Tensor, first: int, last: int) -> Tensor:
    """The part of a settled-nodes tensor for some trees; empty stays empty."""
    return settled[first:last] if settled.numel() else settled


def dropout_mask(like: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """0 or 1 / (1 - rate) per tree, unit and block of rows, spread over ``[G, B, units]``."""
    trees, rows, units = like.shape
    blocks = -(-rows // ROWS_PER_MASK)
    keep = torch.rand(trees, blocks, 1, units, generator=generator, device=like.device) >= rate
    mask = keep.to(like.dtype).div_(1 - rate).expand(trees, blocks, ROWS_PER_MASK, units)
    return mask.reshape(trees, blocks * ROWS_PER_MASK, units)[:, :rows]


class SoftTreesFunction(torch.autograd.Function):
    """``soft_trees`` with dropout on both layers and a backward pass that recomputes each group."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Scores ``[B, K]``; the last argument is the dropout rate."""
        *tensors, rate = inputs
        z, weight, threshold, slope, path, path_bias, leaf_slope, leaf_value, given, value = tensors
        ctx.rate = rate
        ctx.seed = int(torch.randint(2**62, ()).item()) if rate else 0
        ctx.save_for_backward(*tensors)
        scores = leaf_value.sum(dim=(0, 1)).expand(len(z), leaf_value.shape[2]).clone()
        for t0, t1, active, _, leaf, _ in _groups(ctx, tensors):
            del active
            scores += torch.bmm(leaf, leaf_value[t0:t1]).sum(dim=0)
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of everything that wants one."""
        (grad,) = grads
        tensors = ctx.saved_tensors
        z, weight, threshold, slope, path, path_bias, leaf_slope, leaf_value, _, value = tensors
        needs = ctx.needs_input_grad
        of = [torch.zeros_like(tensor) if need else None for tensor, need in zip(tensors, needs, strict=False)]
        deeper = any(needs[i] for i in (0, 1, 2, 4, 5, 9))
        if of[7] is not None:
            of[7] += grad.sum(dim=0)  # the 1 of (1 + h)
        for t0, t1, active, active_mask, leaf, leaf_mask in _groups(ctx, tensors):
            grad_rows = grad.unsqueeze(0).expand(t1 - t0, *grad.shape)
            if of[7] is not None:
                of[7][t0:t1] += torch.bmm(leaf.transpose(1, 2), grad_rows)
            if not deeper:
                continue
            grad_leaf = torch.bmm(grad_rows, leaf_value[t0:t1].transpose(1, 2))
            grad_leaf = _through_tanh(grad_leaf, leaf, leaf_mask).mul_(leaf_slope[t0:t1].unsqueeze(1))
            if of[5] is not None:
                of[5][t0:t1] = grad_leaf.sum(dim=1)
            if of[4] is not None:
                of[4][t0:t1] = torch.bmm(active.transpose(1, 2), grad_leaf)
            if any(needs[i] for i in (0, 1, 2, 9)):
                grad_active = torch.bmm(grad_leaf, path[t0:t1].transpose(1, 2))
                _first_layer(tensors, of, (t0, t1), grad_active, active, active_mask)
        return (*of, None)


def _groups(ctx: Any, tensors: Any) -> Any:
    """Each group's first and last tree, node activations and leaf activations with their dropout masks."""
    z, weight, threshold, slope, path, path_bias, leaf_slope, _, given, value = tensors
    generator = torch.Generator(device=z.device)
    generator.manual_seed(ctx.seed)
    for t0 in range(0, len(threshold), GROUP):
        t1 = min(t0 + GROUP, len(threshold))
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(given, t0, t1),
                                  rows_of(value, t0, t1))  # fmt: skip
        active_mask = leaf_mask = None
        if ctx.rate:
            active_mask = dropout_mask(active, ctx.rate, generator)
            active = active * active_mask
        leaf = leaf_activations(active, path[t0:t1], path_bias[t0:t1], leaf_slope[t0:t1])
        if ctx.rate:
            leaf_mask = dropout_mask(leaf, ctx.rate, generator)
            leaf = leaf * leaf_mask
        yield t0, t1, active, active_mask, leaf, leaf_mask


def _through_tanh(grad: Tensor, masked: Tensor, mask: Tensor | None) -> Tensor:
    """The gradient before ``tanh`` and dropout, from the one after: ``grad mask (1 - a^2)`` with ``masked = mask a``."""
    if mask is None:
        return grad * (1 - masked * masked)
    # Where the mask is 0 so is the gradient; elsewhere a = masked / mask.
    scale = mask.amax()
    plain = masked / scale.clamp_min(1)
    return grad * mask * (1 - plain * plain)


def _first_layer(
    tensors: Any, of: list[Tensor | None], part: tuple[int, int], grad: Tensor, active: Tensor, mask: Tensor | None
) -> None:
    """Add one group's gradients for the input, the node weights, the thresholds and the settled activations."""
    z, weight, _, slope, _, _, _, _, given, _ = tensors
    t0, t1 = part
    if of[9] is not None and given.numel():
        settled = grad if mask is None else grad * mask
        of[9][t0:t1] += torch.where(given[t0:t1], settled, torch.zeros_like(settled))
    grad = _through_tanh(grad, active, mask)
    if given.numel():
        grad = grad.masked_fill(given[t0:t1], 0.0)
    grad = grad * slope[t0:t1].unsqueeze(1)
    if of[2] is not None:
        of[2][t0:t1] = -grad.sum(dim=1)
    if weight.dim() == 3:
        if of[1] is not None:
            of[1][t0:t1] = torch.bmm(z.t().unsqueeze(0).expand(t1 - t0, z.shape[1], len(z)), grad)
        if of[0] is not None:
            of[0] += torch.bmm(grad, weight[t0:t1].transpose(1, 2)).sum(dim=0)
    elif of[0] is not None:
        of[0].index_add_(1, weight[t0:t1].flatten(), grad.transpose(0, 1).flatten(1))
