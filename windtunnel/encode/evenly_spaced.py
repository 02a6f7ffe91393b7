"""Evenly spaced rows, where some stand for all."""

from __future__ import annotations

import torch
from torch import Tensor


def evenly_spaced(count: int, most: int) -> Tensor:
    """The indices of at most ``most`` of ``count`` rows, evenly spaced from the first to the last one, int64."""
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).long()
