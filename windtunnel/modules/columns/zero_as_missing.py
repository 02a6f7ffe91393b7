"""Zeros that stand for what a sparse matrix does not store."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class ZeroAsMissing(Module):
    """NaN for zero, as XGBoost reads the entries that a sparse matrix does not hold.

    y = NaN where x = 0, else x
    """

    PER_COLUMN: ClassVar[tuple[str, ...]] = ()

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return torch.where(x == 0, torch.full_like(x, float("nan")), x)
