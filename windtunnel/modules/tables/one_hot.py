"""One-hot columns of so many categories that a table of them would be too large."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.finite import Finite


class OneHot(Module):
    """A column per category: 1 in the column of the category that a row has, 0 in all others.

    y_k = 1 if column[id] = k else 0

    What ``CategoryTable`` gives for a table of w^2 numbers, from w numbers; a fact, as such a table is not learned. In
    front of weighted sums it is multiplied into their weights (``windtunnel.compiler.passes.fold``), which are.

    Examples
    --------
    >>> table = OneHot(torch.tensor([-1, 0, 1]), torch.arange(2), torch.tensor(1.0))
    >>> table(torch.tensor([[0], [2]])).tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """

    column: Tensor  # int64 [V], from 0 to w - 1, or -1 for a category that has no column
    columns: Tensor  # int64 [w], the number of each: 0 to w - 1, or fewer where only some are wanted
    unit: Tensor  # 1, a scalar in the type of the output

    def forward(self, ids: Tensor) -> Tensor:
        """int64 [B, 1] in 0..V-1 -> [B, w]."""
        return self.column[ids].eq(self.columns).to(self.unit.dtype)

    @torch.jit.unused
    def times(self, columns: Sequence[int], center: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of some columns, each less its center, for every category: float64 ``[V, K]``."""
        place = torch.full((int(torch.cat([self.column, self.columns]).max()) + 2,), -1)
        place[self.columns[list(columns)]] = torch.arange(len(columns))
        place = place[self.column]  # -1 is the last of them, which is no column's
        sums = torch.where(place.unsqueeze(1) >= 0, weight.t()[place], weight.new_zeros(()))
        return sums - weight @ center

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """The ids."""
        return [0]

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted columns."""
        return OneHot(self.column, self.columns[list(wanted)], self.unit)

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """None: the output is finite whatever the input."""
        return [Finite()] * len(self.columns)
