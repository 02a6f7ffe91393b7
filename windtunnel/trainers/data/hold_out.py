"""Selects training rows for validation."""

from __future__ import annotations

import torch
from torch import Tensor


def hold_out_mask(target: Tensor, fraction: float, seed: int) -> Tensor | None:
    """A mask of the rows to hold out for validation, bool ``[N]``; stratified by class if the target holds integers.

    Of each class ``round(fraction * count)`` rows are held out, at least one if the class has two. None where too few
    rows or fewer than two classes would be held out.
    """
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    classes = None if target.is_floating_point() else target.cpu()
    strata = torch.zeros(len(target), dtype=torch.int64) if classes is None else classes[order]
    chosen = torch.zeros(len(target), dtype=torch.bool)
    for stratum in sorted(set(strata.tolist())):
        rows = order[strata == stratum]
        chosen[rows[: max(round(fraction * len(rows)), 1) if len(rows) > 1 else 0]] = True
    if not chosen.any() or chosen.all() or (classes is not None and len(set(classes[chosen].tolist())) < 2):
        return None
    return chosen
