"""A table row per bin of a number."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned


class BinTables(Module):
    """The row of each number's bin, from a table for each column; side by side.

    bin_j(x) = number of the edges e of column j with e <= x, or the last row where x is missing
    y = the kept ones of (rows[1, bin_1(x_1)], ..., rows[width, bin_width(x_width)])

    Edges are facts, as the categories of text are; the gradient goes to the rows.

    Examples
    --------
    >>> rows, kept, closed = torch.tensor([[[1.0], [2.0], [7.0]]]), torch.tensor([0]), torch.tensor([False])
    >>> tables = BinTables(rows, torch.tensor([[0.5]]), kept, closed)
    >>> tables(torch.tensor([[0.4], [0.5], [float("nan")]])).tolist()
    [[1.0], [2.0], [7.0]]
    """

    KINDS: ClassVar[dict[str, str]] = {"rows": "table"}
    rows: Tensor = learned()
    """[width, E + 2, w], a table for each column, padded: bins in order, and last the row of a missing number."""
    edges: Tensor  # [width, E], in the unit of the column, ascending, padded by infinity
    kept: Tensor  # int64 positions of the columns out among ``width * w``, in their order
    closed: Tensor  # bool [width], the columns in which a missing number is rejected

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with an infinite number, or a missing one in a column whose encoder rejects it."""
        return (torch.isinf(x) | (torch.isnan(x) & self.closed)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(kept)]."""
        size = self.rows.shape[1]
        at = (x.unsqueeze(2) >= self.edges).sum(dim=2)  # [B, width]
        at = torch.where(torch.isnan(x), torch.full_like(at, size - 1), at)
        at = at + torch.arange(self.rows.shape[0], device=x.device) * size
        return functional.embedding(at, self.rows.flatten(0, 1)).flatten(1).index_select(1, self.kept)
