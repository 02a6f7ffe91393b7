"""Weighted sums of whether each column is above a threshold."""

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned

SHARP = 2 / 0.3
"""Half a gap between neighbouring values in units of 1 / slope, at which a soft step is 0.0013 off 0 or 1."""


class ThresholdedLinear(Module):
    """K weighted sums of the columns that are above a threshold.

    y = 1[x > threshold] W^T + b
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]
    threshold: Tensor  # a number, in the unit of the columns

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype``; numbers of this type lie on the side of the threshold that they lay on before."""
        exact = self.threshold.clone()
        self.to(dtype)
        if self.threshold.to(exact.dtype) > exact:
            self.threshold = torch.nextafter(self.threshold, torch.full_like(self.threshold, -torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # In place: to compare, and then to make numbers of truth values, takes three times as long.
        above = x.detach().to(self.weight.dtype, copy=True).gt_(self.threshold)
        # A few sums of many rows as a few long rows, as in ``Linear``.
        return torch.addmm(self.bias.unsqueeze(1), self.weight, above.t()).t()

    def soft(self, sample: Tensor | None) -> Module:
        """A sigmoid in the middle of the gap that each column of the sample has around the threshold.

        Without a sample the gaps are not known, and only the weights get a gradient.
        """
        if sample is None or not len(sample):
            return self
        # A column that lies on one side gets a gap twice as wide as its distance from the threshold; that is 0 for
        # columns of zeros alone, which get the gap that 0/1 columns have.
        threshold, infinite = self.threshold, torch.full_like(sample, torch.inf)
        below = torch.where(sample > threshold, -infinite, sample).amax(dim=0)
        above = torch.where(sample > threshold, sample, infinite).amin(dim=0)
        mirrored = torch.where(below < threshold, 2 * threshold - below, threshold + 1)
        above = torch.where(above.isinf(), mirrored, above)
        below = torch.where(below.isinf(), 2 * threshold - above, below)
        center = (below + above) / 2
        slope = 2 * SHARP / (above - below)
        return SoftThresholdedLinear(self.weight, self.bias, center, slope)


class SoftThresholdedLinear(Module):
    """K weighted sums of soft steps, the differentiable form of ``ThresholdedLinear``.

    y = sigmoid((x - center) slope) W^T + b
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]
    center: Tensor = learned()  # [width], in the unit of the columns
    slope: Tensor  # [width], per unit of the columns

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return functional.linear(torch.sigmoid((x - self.center) * self.slope), self.weight, self.bias)
