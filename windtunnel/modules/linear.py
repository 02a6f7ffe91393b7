"""The linear map of linear models."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from windtunnel.modules.base import Module


class Linear(Module):
    """K weighted sums of the columns.

    y = x W^T + b

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    weight : Tensor
        ``[K, width]``; learned.
    bias : Tensor
        ``[K]``; learned.

    Examples
    --------
    >>> import torch
    >>> Linear(torch.tensor([[1.0, 2.0]]), torch.tensor([0.5]))(torch.tensor([[3.0, 4.0]])).tolist()
    [[11.5]]
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return functional.linear(x, self.weight, self.bias)
