"""Power transforms of columns: Yeo-Johnson and Box-Cox."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import EPSILON, Module, Rounding, learned
from windtunnel.modules.columns.affine import affine
from windtunnel.modules.slices import cache_slices, join_slices

SMALL = 1e-4
"""Below this exponent a series of four terms is exact to float64, and its gradient has no 0 / 0."""


def box_cox_of_log(power: Tensor, logarithm: Tensor, small: float = SMALL) -> Tensor:
    """(exp(power * logarithm) - 1) / power, and the logarithm itself where the power is 0."""
    exponent = power * logarithm
    if not torch.is_grad_enabled():
        return torch.where(power == 0, logarithm, torch.expm1(exponent) / power)
    is_small = exponent.abs() < small
    series = logarithm * (1 + exponent / 2 * (1 + exponent / 3 * (1 + exponent / 4)))
    ones = torch.ones_like(exponent)
    # Where the exponent is small, other numbers stand in, so that the branch not taken has a gradient.
    power, exponent = torch.where(is_small, ones, power), torch.where(is_small, ones, exponent)
    return torch.where(is_small, series, torch.expm1(exponent) / power)


class Power(Module):
    """Raise each column to its own power, then shift and stretch it.

    Yeo-Johnson: ((x + 1)^p - 1) / p from 0 up, -((1 - x)^(2 - p) - 1) / (2 - p) below. Box-Cox: (x^p - 1) / p, for
    numbers above 0 only. At p = 0 (and 2) the logarithm. Then (y - center) / unit * scale + shift.

    Computed in float64 whatever the type of the program: high powers lie close together.
    """

    MAY_BE_NON_FINITE: ClassVar[bool] = True
    power: Tensor  # [width], as fitted
    change: Tensor = learned()  # [width], what is added to the powers, 0 at first
    scale: Tensor = learned()  # [width]
    shift: Tensor = learned()  # [width]
    center: Tensor  # [width], of the fitted data
    unit: Tensor  # [width], of the fitted data
    positive: bool  # true for Box-Cox

    def cast(self, dtype: torch.dtype) -> None:
        """Learn in ``dtype``; facts stay float64."""
        for name, parameter in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(parameter.detach().to(dtype)))

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """That of (exp(e) - 1) / p, whose exponent e is rounded, less the center."""
        power, scale, shift, center, unit = (
            float(tensor.detach()[column]) for tensor in (self.power, self.scale, self.shift, self.center, self.unit)
        )

        def of_values(values: Tensor) -> Tensor:
            y = (values - shift) / scale * unit + center
            powers = torch.full_like(y, power) if self.positive else torch.where(y < 0, 2 - power, power)
            y = y if self.positive else y.abs()
            raised = (1 + powers * y).clamp_min(torch.finfo(y.dtype).tiny)  # exp(e)
            changes = torch.where(powers == 0, y.abs(), raised * raised.log().abs() / powers.abs())
            return 4 * EPSILON * (changes + y.abs() + abs(center)) / unit * abs(scale)

        return None if scale == 0 or inputs[column] is not None else of_values

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with an infinite number, and for Box-Cox with one that is 0 or below."""
        return (torch.isinf(x) | ((x <= 0) & self.positive)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]; NaN stays NaN."""
        return join_slices([self._raised(part) for part in cache_slices(x, 4 * self.power.numel())])

    def _raised(self, x: Tensor) -> Tensor:
        power, number = self.power + self.change.double(), x.double()
        known = number
        if torch.is_grad_enabled():  # where 0 times NaN would be the gradient
            known = torch.where(torch.isnan(number), torch.ones_like(number), number)
        if self.positive:
            inside = known > 0
            y = box_cox_of_log(power, torch.where(inside, known, torch.ones_like(known)).log())
            y = torch.where(inside, y, torch.full_like(y, float("nan")))
        else:
            up = known >= 0
            y = box_cox_of_log(torch.where(up, power, 2 - power), torch.log1p(torch.where(up, known, -known)))
            y = torch.where(up, y, -y)
        y = affine(y, self.scale.double(), self.shift.double(), self.center, self.unit)
        return torch.where(torch.isnan(number), number, y).to(x.dtype)
