"""A linear map of the values that are there."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.modules.base import Module


class PresentLinear(Module):
    """K weighted sums of the columns; a missing value adds nothing.

    y = z W^T + b, where z is x with 0 for NaN

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    weight : Tensor
        ``[K, width]``; learned.
    bias : Tensor
        ``[K]``; learned.

    Source
    ------
    XGBoost's gblinear.

    Examples
    --------
    >>> nan = float("nan")
    >>> PresentLinear(torch.tensor([[1.0, 2.0]]), torch.tensor([0.5]))(torch.tensor([[3.0, nan]])).tolist()
    [[3.5]]
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        present = torch.where(torch.isnan(x), torch.zeros_like(x), x)
        return functional.linear(present, self.weight, self.bias)
