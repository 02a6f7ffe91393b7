"""A linear map of centred columns."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned
from windtunnel.modules.outputs.finite import Finite


class Projection(Module):
    """K weighted sums of the columns, each less its center.

    y = (x - center) W^T + b

    The subtraction comes first, so that columns far from zero keep their digits.

    Examples
    --------
    >>> import torch
    >>> Projection(torch.tensor([[1.0, 2.0]]), torch.zeros(1), torch.tensor([3.0, 4.0]))(torch.ones(1, 2)).tolist()
    [[-8.0]]
    """

    MIXES_COLUMNS: ClassVar[bool] = True
    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]
    center: Tensor  # [width], in the unit of the column

    def cast(self, dtype: torch.dtype) -> None:
        """Compute in ``dtype``; what it cannot hold of the center goes into the bias."""
        with torch.no_grad():
            rest = self.center - self.center.to(dtype).to(self.center.dtype)
            self.bias.sub_(self.weight @ rest)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return functional.linear(x - self.center, self.weight, self.bias)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """Columns whose weight is not 0 in some of the sums."""
        return self.weight[list(wanted)].ne(0).any(dim=0).nonzero()[:, 0].tolist()

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted sums, of the needed columns."""
        weight, bias = self.weight[list(wanted)][:, list(needed)], self.bias[list(wanted)]
        return Projection(weight, bias, self.center[list(needed)])

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """All sums with all columns, those without weight as well."""
        return [Finite(tuple(range(width)))] * len(self.bias)
