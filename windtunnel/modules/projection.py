"""A linear map of centred columns."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.modules.base import Module


class Projection(Module):
    """K weighted sums of the columns, each less its center.

    y = (x - center) W^T + b

    The subtraction comes first, so that columns far from zero keep their digits.

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    weight : Tensor
        ``[K, width]``; learned.
    bias : Tensor
        ``[K]``; learned.
    center : Tensor
        ``[width]``, in the unit of the column; a fact.

    Examples
    --------
    >>> import torch
    >>> Projection(torch.tensor([[1.0, 2.0]]), torch.zeros(1), torch.tensor([3.0, 4.0]))(torch.ones(1, 2)).tolist()
    [[-8.0]]
    """

    center: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, center: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())
        self.register_buffer("center", center.detach().clone())

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype``; what it cannot hold of the center goes into the bias."""
        with torch.no_grad():
            rest = self.center - self.center.to(dtype).to(self.center.dtype)
            self.bias.sub_(self.weight @ rest)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return functional.linear(x - self.center, self.weight, self.bias)
