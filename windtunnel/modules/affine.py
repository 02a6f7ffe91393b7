"""Elementwise affine maps, which all the scalers share."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


def affine(x: Tensor, scale: Tensor, shift: Tensor, center: Tensor) -> Tensor:
    """(x - center) * scale + shift; NaN and infinities come through without touching the gradients of the rest."""
    finite = torch.isfinite(x)
    # The gradient of the scale is a sum over rows, to which 0 * NaN would add NaN.
    y = (torch.where(finite, x, center) - center) * scale + shift
    return torch.where(finite, y, x * scale.detach())


class Affine(Module):
    """Shift and stretch each column by itself.

    y = (x - center) * scale + shift

    The subtraction comes first: a column like 1e6 +- 1 keeps all its digits, which x * scale + shift would lose.

    Shape
    -----
    float32 ``[B, width]`` -> float32 ``[B, width]``; NaN stays NaN.

    Parameters
    ----------
    scale, shift : Tensor
        ``[width]`` each; learned.
    center : Tensor
        ``[width]``; a fact of the fitted data.

    Examples
    --------
    >>> import torch
    >>> Affine(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([10.0]))(torch.tensor([[13.0]])).tolist()
    [[7.0]]
    """

    center: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, center: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale.detach().clone())
        self.shift = nn.Parameter(shift.detach().clone())
        self.register_buffer("center", center.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return affine(x, self.scale, self.shift, self.center)


class ClippedAffine(Module):
    """An ``Affine`` whose result is held between two bounds.

    y = min(max((x - center) * scale + shift, low), high)

    Shape
    -----
    float32 ``[B, width]`` -> float32 ``[B, width]``; NaN stays NaN.

    Parameters
    ----------
    scale, shift : Tensor
        ``[width]`` each; learned.
    center : Tensor
        ``[width]``; a fact of the fitted data.
    low, high : float
        The bounds, in units of the result.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("low", "high")
    center: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, center: Tensor, low: float, high: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale.detach().clone())
        self.shift = nn.Parameter(shift.detach().clone())
        self.register_buffer("center", center.detach().clone())
        self.low = float(low)
        self.high = float(high)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return affine(x, self.scale, self.shift, self.center).clamp(self.low, self.high)
