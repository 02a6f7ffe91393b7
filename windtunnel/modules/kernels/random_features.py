"""Random Fourier features."""

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class CosineFeatures(Module):
    """The cosines of random projections, whose inner products approximate a kernel.

    y = scale * cos(x W^T + b)

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    weight : Tensor
        ``[K, width]``; learned.
    bias : Tensor
        ``[K]``, in radians; learned.
    scale : float
        Of the result.
    """

    weight: Tensor = learned()
    bias: Tensor = learned()
    scale: float

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cos(functional.linear(x, self.weight, self.bias)) * self.scale


class LogCosineFeatures(Module):
    """The cosines of random projections of logarithms.

    y = scale * cos(log(x + shift) W^T + b)

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``; NaN for rows with a value of -shift or less.

    Parameters
    ----------
    weight : Tensor
        ``[K, width]``; learned.
    bias : Tensor
        ``[K]``, in radians; learned.
    shift : float
        In the unit of the columns.
    scale : float
        Of the result.
    """

    weight: Tensor = learned()
    bias: Tensor = learned()
    shift: float
    scale: float

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with a value of -shift or less, or a missing or infinite one."""
        return (~torch.isfinite(x) | (x <= -self.shift)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        moved = x + self.shift
        rejected = (x <= -self.shift).any(dim=1, keepdim=True)
        y = functional.linear(torch.log(torch.where(rejected, torch.ones_like(moved), moved)), self.weight, self.bias)
        return torch.where(rejected, torch.full_like(y, float("nan")), torch.cos(y) * self.scale)
