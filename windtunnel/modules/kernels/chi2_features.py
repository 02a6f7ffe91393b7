"""A few sampled frequencies of the additive chi2 kernel, column by column."""

import math

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class Chi2Features(Module):
    """Features of each column whose inner products approximate 2 x p / (x + p).

    y_0 = sqrt(L x), then for j = 1 .. steps - 1
        sqrt(2 L x / cosh(pi j L)) cos(j L log x)    and    sqrt(2 L x / cosh(pi j L)) sin(j L log x)

    with L the interval; all are 0 where x is 0.

    Shape
    -----
    ``[B, width]`` -> ``[B, (2 steps - 1) width]``, a block of all columns for each feature; NaN for rows with negative
    values.

    Parameters
    ----------
    steps : int
        How many frequencies, 0 included.
    interval : float
        What lies between two of them.
    """

    steps: int
    interval: float

    def __post_init__(self) -> None:
        self.factors = [
            math.sqrt(2 * self.interval / math.cosh(math.pi * step * self.interval)) for step in range(self.steps)
        ]

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, (2 steps - 1) width]."""
        inside = x > 0
        positive = torch.where(inside, x, torch.ones_like(x))
        root = torch.where(inside, torch.sqrt(positive), torch.zeros_like(x))
        angle = torch.log(positive) * self.interval
        row_blocks = [root * math.sqrt(self.interval)]
        for step in range(1, self.steps):
            row_blocks.append(root * self.factors[step] * torch.cos(angle * step))
            row_blocks.append(root * self.factors[step] * torch.sin(angle * step))
        y = torch.cat(row_blocks, dim=1)
        return torch.where((x < 0).any(dim=1, keepdim=True), torch.full_like(y, float("nan")), y)
