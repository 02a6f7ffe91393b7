"""Columns mapped to a uniform or normal distribution by their quantiles."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.slices import cache_slices, join_slices

BOUND = 1e-7
"""How near to the first and last quantile a value is taken for it (normal), in the unit of the column."""
LEAST = BOUND - 2.0**-52
"""Fractions are clipped to this distance from 0 and 1 before the normal quantile is computed."""


def interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear from ``knots`` to ``values``, both ``[width, Q]``, flat outside; x is ``[width, B]``.

    Of repeated knots the last one counts. Knots so near to each other that the slope is infinite give what NumPy's
    interpolation gives: no number where it finds none on either side.
    """
    last = knots.shape[1] - 1
    at = torch.searchsorted(knots.detach(), x.detach(), right=True) - 1
    low = at.clamp(0, last - 1)
    start, end = knots.gather(1, low), knots.gather(1, low + 1)
    inside = (at >= 0) & (at < last)
    first, second = values.gather(1, low), values.gather(1, low + 1)
    slope = (second - first) / torch.where(inside, end - start, torch.ones_like(x))
    zero = torch.zeros_like(x)
    y = slope * torch.where(inside, x - start, zero) + first
    y = torch.where(torch.isnan(y), slope * torch.where(inside, x - end, zero) + second, y)
    y = torch.where((torch.isnan(y) & (first == second)) | (x == start) | (at < 0), first, y)
    return torch.where(at >= last, second, y)


class QuantileMap(Module):
    """Replace each number by its fraction among the quantiles of its column, or by the normal quantile of that.

    p = (up(x) + down(x)) / 2, y = p or y = Phi^-1(p); up and down interpolate the levels at the quantiles, and take
    the last or the first of repeated ones.

    Computed in float64 whatever the type of the program, as fractions near 0 and 1 have large normal quantiles.
    """

    MAY_BE_NON_FINITE: ClassVar[bool] = True
    PER_COLUMN: ClassVar[tuple[str, ...]] = ("quantiles", "levels")
    quantiles: Tensor  # [width, Q], ascending, in the unit of the column; Q at least 2
    levels: Tensor = learned()  # [width, Q], fractions from 0 to 1
    normal: bool  # whether fractions become normal quantiles, within +-5.2

    def __post_init__(self) -> None:
        self.bound, self.least = BOUND, LEAST

    def cast(self, dtype: torch.dtype) -> None:
        """Take numbers of ``dtype``: quantiles, which are seen values, are rounded as the numbers are."""
        self.quantiles = self.quantiles.to(dtype).double()

    def has_bits_of_source(self) -> bool:
        """It interpolates in the order of the source; the normal quantiles are another function's."""
        return not self.normal

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]; NaN stays NaN."""
        return join_slices([self._mapped(part) for part in cache_slices(x, 4 * self.quantiles.shape[0])])

    def _mapped(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        knots, levels = self.quantiles.double(), self.levels.double()
        low, high = knots[:, 0], knots[:, -1]
        # [width, B]
        known = torch.where(missing, low.to(x.dtype), x).double().t().contiguous()
        up = interpolate(known, knots, levels)
        down = interpolate(-known, (-knots).flip(1), (-levels).flip(1))
        fraction = (0.5 * (up - down)).t()
        known = known.t()
        if self.normal:
            fraction = torch.where(known + self.bound > high, torch.ones_like(fraction), fraction)
            fraction = torch.where(known - self.bound < low, torch.zeros_like(fraction), fraction)
            normal_number = torch.special.ndtri(fraction.clamp(self.least, 1 - self.least))
        else:
            fraction = torch.where(known == high, levels[:, -1], fraction)
            normal_number = torch.where(known == low, levels[:, 0], fraction)
        return torch.where(missing, x, normal_number.to(x.dtype))
