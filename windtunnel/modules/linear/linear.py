"""The linear map of linear models."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned
from windtunnel.modules.outputs.finite import Finite


class WeightedSums(Module):
    """The base of weighted sums: the columns that they depend on."""

    MIXES_COLUMNS: ClassVar[bool] = True
    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """Columns whose weight is not 0 in some of the sums."""
        return self.weight[list(wanted)].ne(0).any(dim=0).nonzero()[:, 0].tolist()

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """All sums with all columns, those without weight as well."""
        return [Finite(tuple(range(width)))] * len(self.bias)


class Linear(WeightedSums):
    """K weighted sums of the columns.

    y = x W^T + b
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # A few sums of many rows as a few long rows: up to five times as fast as many short ones.
        return torch.addmm(self.bias.unsqueeze(1), self.weight, x.t()).t()

    @torch.jit.unused
    def of_sparse(self, x: sparse.csr_array) -> Tensor:
        """``forward`` of rows whose zeros nobody goes through, on the CPU."""
        return torch.from_numpy(x @ self.weight.detach().t().numpy()) + self.bias

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted sums, of the needed columns."""
        return Linear(self.weight[list(wanted)][:, list(needed)], self.bias[list(wanted)])


class LinearSkippingMissing(Module):
    """K weighted sums of the columns; a missing value adds nothing.

    y = z W^T + b, where z is x with 0 for NaN

    Source
    ------
    XGBoost's gblinear.
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        present = torch.where(torch.isnan(x), torch.zeros_like(x), x)
        return functional.linear(present, self.weight, self.bias)
