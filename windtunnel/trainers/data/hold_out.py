"""Selects training rows for validation."""

from __future__ import annotations

import torch
from torch import Tensor


def hold_out_mask(target: Tensor, weight: Tensor | None, fraction: float, seed: int) -> Tensor:
    """A mask of the rows to hold out for validation, bool ``[N]``; stratified by class if the target holds integers.

    Of each class ``round(fraction * count)`` rows are held out, at least one and not all of them if the class has
    two. Rows of weight 0 do not count, and none of them is held out.
    """
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    if weight is not None:
        order = order[weight.cpu()[order] > 0]
    strata = torch.zeros(len(order), dtype=torch.int64) if target.is_floating_point() else target.cpu()[order]
    chosen = torch.zeros(len(target), dtype=torch.bool)
    for stratum in sorted(set(strata.tolist())):
        rows = order[strata == stratum]
        chosen[rows[: min(max(round(fraction * len(rows)), 1), len(rows) - 1)]] = True
    return chosen


def why_not_held_out(target: Tensor, weight: Tensor | None) -> str:
    """Why ``can_hold_out`` is false for some of these rows."""
    counted = target if weight is None else target[weight > 0]
    if target.is_floating_point() or len(counted) < 10:
        return f"{len(counted)} rows with a weight above 0 are too few"
    return "those that would be held out have fewer than two classes"


def can_hold_out(chosen: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Whether rows are left on both sides of a mask, and the chosen ones have two classes if the target has classes."""
    counted = torch.ones_like(chosen) if weight is None else weight.cpu() > 0
    held_out = chosen & counted
    if not held_out.any() or not (~chosen & counted).any():
        return False
    return target.is_floating_point() or len(set(target.cpu()[held_out].tolist())) > 1
