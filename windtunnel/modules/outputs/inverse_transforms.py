"""Inverses of what targets were transformed by, where they are not functions with a name."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.columns.quantile import interpolate


class InversePower(Module):
    """From Yeo-Johnson's or Box-Cox's numbers back.

    z = x scale + shift; Yeo-Johnson: (z p + 1)^(1 / p) - 1 from 0 up, 1 - (1 - (2 - p) z)^(1 / (2 - p)) below;
    Box-Cox: (z p + 1)^(1 / p). At p = 0 (and 2) the exponential. NaN where there is no such number.

    Computed in float64 whatever the type of the program, as high powers need it.
    """

    FLOAT64: ClassVar[bool] = True
    MAY_BE_NON_FINITE: ClassVar[bool] = True
    power: Tensor  # [width], of the fitted transformer
    scale: Tensor  # [width], of the fitted transformer
    shift: Tensor  # [width], of the fitted transformer
    positive: bool  # true for Box-Cox

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        z = x.double() * self.scale + self.shift
        if self.positive:
            y = torch.exp(log_root(z, self.power))
        else:
            up = torch.expm1(log_root(z.clamp_min(0), self.power))
            down = -torch.expm1(log_root((-z).clamp_min(0), 2 - self.power))
            y = torch.where(z >= 0, up, down)
        return y.to(x.dtype)


def log_root(z: Tensor, power: Tensor) -> Tensor:
    """log(1 + p z) / p, and z where p is 0; NaN where 1 + p z is below 0."""
    zero = power.abs() < 2.220446049250313e-16
    p = torch.where(zero, torch.ones_like(power), power)
    inside = 1 + p * z > 0
    root = torch.log1p(torch.where(inside, p * z, torch.zeros_like(z))) / p
    return torch.where(zero, z, torch.where(inside, root, torch.log1p((p * z).detach()) / p))


class InverseQuantiles(Module):
    """From shares, or the normal numbers of shares, back to quantiles.

    y interpolates the quantiles at p = x, or at p = Phi(x); p within 1e-7 of 0 and 1 is taken for it where normal.

    Computed in float64 whatever the type of the program.
    """

    FLOAT64: ClassVar[bool] = True
    levels: Tensor  # [width, Q], ascending; Q at least 2
    quantiles: Tensor  # [width, Q], ascending
    normal: bool

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        p = torch.special.ndtr(x.double()) if self.normal else x.double()
        y = interpolate(p.t().contiguous(), self.levels, self.quantiles).t()
        if self.normal:
            y = torch.where(p + 1e-7 > 1, self.quantiles[:, -1], y)
            y = torch.where(p - 1e-7 < 0, self.quantiles[:, 0], y)
        return y.to(x.dtype)
