"""A table row per whole number in each column, added up."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class CodeTables(Module):
    """The sum over the columns of the row that a number picks from the table of its column.

    y = bias + sum_j rows[start_j + trunc(x_j)]

    A number outside of 0 .. count_j - 1 has no row and makes the output NaN.

    Examples
    --------
    >>> start, count = torch.tensor([0, 2]), torch.tensor([2, 1])
    >>> tables = CodeTables(torch.tensor([[1.0], [2.0], [10.0]]), torch.tensor([0.5]), start, count)
    >>> tables(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).tolist()
    [[12.5], [nan]]
    """

    KINDS: ClassVar[dict[str, str]] = {"rows": "table"}
    rows: Tensor = learned()  # [sum of counts, K], the tables one below the other
    bias: Tensor = learned()  # [K]
    start: Tensor  # int64 [width], where each table begins
    count: Tensor  # int64 [width], how many rows each table has, at least 1

    def __post_init__(self) -> None:
        self.sparse = False  # whether gradients hold the rows of the batch only; training sets it

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with a number that has no row, missing and infinite ones among them."""
        code = x.trunc()
        return ~((code >= 0) & (code < self.count)).all(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        code = x.trunc()  # -0.5 is 0, as NumPy converts it
        known = (code >= 0) & (code < self.count)
        at = torch.where(known, code, torch.zeros_like(code)).to(torch.int64) + self.start
        picked = functional.embedding(at, self.rows, sparse=self.sparse)  # [B, width, K]
        total = picked.sum(dim=1) + self.bias
        return torch.where(known.all(dim=1, keepdim=True), total, torch.full_like(total, torch.nan))
