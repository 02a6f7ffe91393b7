"""The arithmetic of soft trees in straight torch, group of trees by group: what is scripted and exported.

Training goes through ``operation``.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 4
"""Trees worked on at once: small enough for caches, large enough for the matrix products."""


def node_activations(
    z: Tensor, weight: Tensor, threshold: Tensor, slope: Tensor, overridden: Tensor, value: Tensor
) -> Tensor:
    """``tanh(slope (z . weight - threshold))``, ``[G, B, n]``; overridden nodes get their value.

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
    return torch.where(overridden, value, active) if overridden.numel() else active


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
    overridden: Tensor,
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
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(overridden, t0, t1),
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
    overridden: Tensor,
    value: Tensor,
    group: int = GROUP,
) -> Tensor:
    """``(1 + h_t) / 2`` of every leaf, ``[B, T * l]``. Straight torch, for scripting and export."""
    parts: list[Tensor] = []
    for t0 in range(0, threshold.shape[0], group):
        t1 = min(t0 + group, threshold.shape[0])
        active = node_activations(z, weight[t0:t1], threshold[t0:t1], slope[t0:t1], rows_of(overridden, t0, t1),
                                  rows_of(value, t0, t1))  # fmt: skip
        leaf = leaf_activations(active, path[t0:t1], path_bias[t0:t1], leaf_slope[t0:t1])
        parts.append((1 + leaf).transpose(0, 1).flatten(1) / 2)
    return torch.cat(parts, dim=1)


def rows_of(overridden: Tensor, first: int, last: int) -> Tensor:
    """The part of a tensor of overridden nodes for some trees; empty stays empty."""
    return overridden[first:last] if overridden.numel() else overridden
