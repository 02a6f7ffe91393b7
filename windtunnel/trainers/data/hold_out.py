"""Rows that are held out of training, to judge by."""

from __future__ import annotations

import torch
from torch import Tensor

from windtunnel.trainers.data.batches import Batches


def hold_out(batches: Batches, fraction: float, seed: int) -> tuple[Batches, Batches] | None:
    """Split rows into a training and a held-out part, class by class where the target is one of classes.

    Of each class ``round(fraction * count)`` rows are held out, at least one where the class has two. None where that
    leaves nothing to judge by: too few rows, or fewer than two classes among them.
    """
    target = batches.target
    assert target is not None
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(batches.size, generator=generator)
    strata = target[order].cpu() if _is_classes(target) else torch.zeros(batches.size, dtype=torch.int64)
    out = torch.cat([_share(order[strata == stratum], fraction) for stratum in _distinct(strata)])
    held = torch.zeros(batches.size, dtype=torch.bool)
    held[out] = True
    if not held.any() or held.all() or (_is_classes(target) and len(_distinct(target[held.to(target.device)])) < 2):
        return None
    index = torch.arange(batches.size)
    return batches.subset(index[~held], shuffle=batches.shuffle), batches.subset(index[held], shuffle=False)


def _share(rows: Tensor, fraction: float) -> Tensor:
    count = len(rows)
    return rows[: max(round(fraction * count), 1) if count > 1 else 0]


def _distinct(values: Tensor) -> list[int]:
    return sorted(set(values.tolist()))


def _is_classes(target: Tensor) -> bool:
    return not target.is_floating_point()
