"""Missing numbers replaced by the mean of the nearest fitted rows."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.imputers.imputer import is_missing
from windtunnel.modules.slices import row_blocks


class NearestImputer(Module):
    """Fill the missing numbers of a row from the fitted rows nearest to it that have the number.

    d(x, r)^2 = width / |P| * sum over P of (x_c - r_c)^2, where P are the columns that both have. A missing x_c becomes
    the mean of r_c over the nearest ``donors[c]`` rows, weighted alike or by 1 / d; the mean of the column where x has
    no column in common with a row. Computed in float64.
    """

    rows: Tensor  # [n, width], fitted rows, 0 where missing
    known: Tensor  # [n, width], 0 where missing, else 1
    fill: Tensor  # [width], the mean of each column; 0 for those without a value, which are 0 in all rows
    missing: Tensor  # [], the value that stands for a missing one: NaN or a number
    # kept, flagged: int64 positions of input columns: those that are given, and those that get a flag
    kept: Tensor
    flagged: Tensor
    donors: list[int]  # how many neighbours each column takes; 0 for those without a value
    by_distance: bool  # whether nearer rows weigh more

    def cast(self, dtype: torch.dtype) -> None:
        """Take numbers of ``dtype``: the mark is rounded as they are; distances stay float64."""
        self.missing = self.missing.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(kept) + len(flagged)]."""
        absent = is_missing(x, self.missing)
        number = torch.where(absent, torch.zeros_like(x), x).double()
        count = self.rows.shape[0]
        parts: list[Tensor] = []
        for block, missing in zip(row_blocks(number, count), row_blocks(absent, count)):  # noqa: B905  TorchScript's takes no strict
            parts.append(self.filled(block, missing))
        filled = torch.cat(parts)
        return torch.cat([filled[:, self.kept], absent[:, self.flagged].to(filled.dtype)], dim=1).to(x.dtype)

    def filled(self, x: Tensor, absent: Tensor) -> Tensor:
        """Fill a few rows ``[b, width]``, which are 0 where ``absent``."""
        distance = self.distances(x, absent)
        columns: list[Tensor] = []
        for column in range(x.shape[1]):
            count = self.donors[column]
            if count == 0:
                columns.append(torch.zeros_like(x[:, column]))
                continue
            gives = self.known[:, column] > 0
            far = torch.full_like(distance, float("inf"))
            nearest, at = torch.topk(torch.where(gives, distance, far), count, dim=1, largest=False)
            reached = torch.isfinite(nearest)
            weight = reached.to(x.dtype)
            if self.by_distance:
                same = nearest == 0
                inverse = torch.where(same, torch.zeros_like(nearest), 1 / nearest)
                weight = torch.where(same.any(dim=1, keepdim=True), same.to(x.dtype), inverse)
            total = weight.sum(dim=1)
            lonely = total == 0
            mean = (weight * self.rows[:, column][at]).sum(dim=1) / torch.where(lonely, torch.ones_like(total), total)
            value = torch.where(lonely, self.fill[column], mean)
            columns.append(torch.where(absent[:, column], value, x[:, column]))
        return torch.stack(columns, dim=1)

    def distances(self, x: Tensor, absent: Tensor) -> Tensor:
        """``[b, width]`` -> ``[b, n]``; infinite where no column is in common."""
        missing, present, unknown = absent.to(x.dtype), (~absent).to(x.dtype), 1 - self.known
        squares = self.rows * self.rows
        # In the order of the source, whose rounding decides between donors that are equally far.
        d = -2 * x @ self.rows.t() + (x * x).sum(dim=1, keepdim=True) + squares.sum(dim=1)
        d = d.clamp_min(0) - (x * x) @ unknown.t() - missing @ squares.t()
        common = present @ self.known.t()
        d = torch.sqrt(d.clamp_min(0) / common.clamp_min(1) * x.shape[1])
        return torch.where(common > 0, d, torch.full_like(d, float("inf")))
