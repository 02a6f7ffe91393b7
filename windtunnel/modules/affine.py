"""Elementwise affine maps, which all the scalers share."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


def affine(x: Tensor, scale: Tensor, shift: Tensor, center: Tensor, unit: Tensor) -> Tensor:
    """(x - center) / unit * scale + shift; NaN and infinities come through and leave the gradients alone."""
    finite = torch.isfinite(x)
    # The gradient of the scale is a sum over rows, to which 0 * NaN would add NaN.
    y = (torch.where(finite, x, center) - center) / unit * scale + shift
    return torch.where(finite, y, x / unit * scale.detach())


class Affine(Module):
    """Shift and stretch each column by itself.

    y = (x - center) / unit * scale + shift

    The subtraction comes first: a column like 1e6 +- 1 keeps all its digits, which x * scale + shift would lose. What
    is learned has the size of the result, whatever the unit of the column: a step of 0.001 is small for all of them.

    Shape
    -----
    float32 ``[B, width]`` -> float32 ``[B, width]``; NaN stays NaN.

    Parameters
    ----------
    scale, shift : Tensor
        ``[width]`` each; learned.
    center, unit : Tensor
        ``[width]`` each; facts of the fitted data, in the unit of the column.

    Examples
    --------
    >>> import torch
    >>> scale, shift, center, unit = torch.tensor([[2.0], [1.0], [10.0], [3.0]])
    >>> Affine(scale, shift, center, unit)(torch.tensor([[13.0]])).tolist()
    [[3.0]]
    """

    center: Tensor
    unit: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, center: Tensor, unit: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale.detach().clone())
        self.shift = nn.Parameter(shift.detach().clone())
        self.register_buffer("center", center.detach().clone())
        self.register_buffer("unit", unit.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return affine(x, self.scale, self.shift, self.center, self.unit)


class ClippedAffine(Module):
    """An ``Affine`` whose result is held between two bounds.

    y = min(max((x - center) / unit * scale + shift, low), high)

    Shape
    -----
    float32 ``[B, width]`` -> float32 ``[B, width]``; NaN stays NaN.

    Parameters
    ----------
    scale, shift : Tensor
        ``[width]`` each; learned.
    center, unit : Tensor
        ``[width]`` each; facts of the fitted data, in the unit of the column.
    low, high : float
        The bounds, in units of the result.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("low", "high")
    center: Tensor
    unit: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, center: Tensor, unit: Tensor, low: float, high: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale.detach().clone())
        self.shift = nn.Parameter(shift.detach().clone())
        self.register_buffer("center", center.detach().clone())
        self.register_buffer("unit", unit.detach().clone())
        self.low = float(low)
        self.high = float(high)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return affine(x, self.scale, self.shift, self.center, self.unit).clamp(self.low, self.high)
