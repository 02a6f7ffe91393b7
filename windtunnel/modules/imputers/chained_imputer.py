"""Missing numbers predicted from the other columns, one column after the other, over and over."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.imputers.imputer import is_missing


class ChainedImputer(Module):
    """Fill the missing numbers, then improve each column by a linear model of the others, step by step.

    x_c = clip(x w_s + b_s, low_c, high_c) where x_c is missing, for the steps s with their columns c = order[s]

    If all numbers of a batch are missing, they stay as they are filled at first.
    """

    DIFFERS_IF_ALL_MISSING: ClassVar[bool] = True
    fill: Tensor = learned()  # [K], what stands in at first, of the kept columns
    weight: Tensor = learned()  # [steps, K]
    bias: Tensor = learned()  # [steps]
    # low, high: [K], the bounds of each column, in its unit
    low: Tensor
    high: Tensor
    order: Tensor  # int64 [steps], positions among the kept columns
    missing: Tensor  # [], the value that stands for a missing one: NaN or a number
    # kept, constant, flagged: int64 positions of input columns that are given and that get a flag; ``constant`` are
    # positions among the kept ones that are only filled at first
    kept: Tensor
    constant: Tensor
    flagged: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(kept) + len(flagged)]."""
        absent = is_missing(x, self.missing)
        gone = absent.index_select(1, self.kept)
        always = torch.zeros_like(gone[:1])
        always[:, self.constant] = True
        start = torch.where(gone, self.fill, x.index_select(1, self.kept))
        gone = gone & ~always
        columns = torch.arange(gone.shape[1], device=x.device)
        y = start
        for step in range(self.order.shape[0]):
            column = self.order[step]
            value = y @ self.weight[step] + self.bias[step]
            value = torch.minimum(torch.maximum(value, self.low[column]), self.high[column])
            y = torch.where(gone & (columns == column), value.unsqueeze(1), y)
        y = torch.where(gone.all(), start, y)
        return torch.cat([y, absent.index_select(1, self.flagged).to(x.dtype)], dim=1)
