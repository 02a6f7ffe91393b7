"""A piecewise linear function of one column."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned


class Interpolated(Module):
    """A function given at some points, and linear between them.

    y = y_i + (x - x_i) / (x_{i+1} - x_i) (y_{i+1} - y_i) for x in [x_i, x_{i+1}]

    With one point it is y_0 everywhere.
    """

    CHOICES = {"beyond": ("clip", "nan", "raise")}
    MAY_BE_NON_FINITE: ClassVar[bool] = True
    x: Tensor  # [points], ascending
    y: Tensor = learned()  # [points]
    beyond: str
    """What a value beyond the first or last point gets: "clip", the value there; "nan"; or "raise", NaN and a
    rejected row."""
    single: bool = False
    """Whether x and y are rounded to float32 whatever is computed in, as by a source that was fitted on float32."""

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Missing and infinite values, and with "raise" those beyond the first or last of several points."""
        rejected = ~torch.isfinite(x)
        if self.beyond == "raise" and len(self.x) > 1:
            value = x.to(torch.float32).to(x.dtype) if self.single else x
            rejected = rejected | (value < self.x[0]) | (value > self.x[-1])
        return rejected.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1] -> [B, 1]."""
        value = x.to(torch.float32).to(x.dtype) if self.single else x
        last = self.x.shape[0] - 1
        if last == 0:
            return self.y + torch.zeros_like(value)
        clipped = torch.minimum(torch.maximum(value, self.x[0]), self.x[last])
        at = (torch.searchsorted(self.x, clipped.detach().contiguous(), right=True) - 1).clamp(0, last - 1)
        low, high = self.y[at], self.y[at + 1]
        y = low + (clipped - self.x[at]) / (self.x[at + 1] - self.x[at]) * (high - low)
        if self.beyond != "clip":
            y = torch.where(value == clipped, y, torch.full_like(y, torch.nan))
        return y.to(torch.float32).to(x.dtype) if self.single else y
