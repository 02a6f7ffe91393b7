"""A linear map of centred columns."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import EPSILON, Module, Rounding
from windtunnel.modules.linear.linear import WeightedSums


class Projection(WeightedSums):
    """K weighted sums of the columns, each less its center.

    y = (x - center) W^T + b

    The subtraction comes first, so that columns far from zero keep their digits.
    """

    center: Tensor  # [width], in the unit of the column
    source_centers_last: bool = False  # whether the source computes x W^T - center W^T

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype``; what it cannot hold of the center goes into the bias."""
        with torch.no_grad():
            rest = self.center - self.center.to(dtype).to(self.center.dtype)
            self.bias.sub_(self.weight @ rest)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return functional.linear(x - self.center, self.weight, self.bias)

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """That of the source's sum of products, which are as large as those of the center."""
        if not self.source_centers_last:
            return None
        with torch.no_grad():
            largest = float((self.weight[column] * self.center).abs().sum())
        return lambda y: 8 * EPSILON * (y.abs() + largest)

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted sums, of the needed columns."""
        weight, bias = self.weight[list(wanted)][:, list(needed)], self.bias[list(wanted)]
        return Projection(weight, bias, self.center[list(needed)], self.source_centers_last)
