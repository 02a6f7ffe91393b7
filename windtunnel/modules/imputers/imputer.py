"""Missing numbers replaced by one value per column."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.outputs.finite import Finite


def is_missing(x: Tensor, marker: Tensor) -> Tensor:
    """Where numbers equal the marker of a missing one, which may be NaN."""
    return (x == marker) | (torch.isnan(x) & torch.isnan(marker))


class Imputer(Module):
    """Fill the missing values of each kept column, and append flags that say where they were.

    y = [fill_k where x_k is missing, else x_k, for k in kept] + [1 where x_k is missing, else 0, for k in flagged]

    Examples
    --------
    >>> fill, nan = torch.tensor([5.0]), torch.tensor(float("nan"))
    >>> Imputer(fill, nan, torch.tensor([0]), torch.tensor([0]))(torch.tensor([[2.0], [float("nan")]])).tolist()
    [[2.0, 0.0], [5.0, 1.0]]
    """

    fill: Tensor = learned()  # [len(kept)]
    missing: Tensor  # [], the value that stands for a missing one: NaN or a number
    # kept, flagged: int64 indices of input columns: those that are kept, and those that get a flag
    kept: Tensor
    flagged: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(kept) + len(flagged)]."""
        absent = is_missing(x, self.missing)
        filled = torch.where(absent[:, self.kept], self.fill, x[:, self.kept])
        return torch.cat([filled, absent[:, self.flagged].to(x.dtype)], dim=1)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """The columns that the wanted values and flags are of."""
        return sorted(set(torch.cat([self.kept, self.flagged])[list(wanted)].tolist()))

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted values and flags, of the needed columns."""
        values = [column for column in wanted if column < len(self.kept)]
        flags = [column - len(self.kept) for column in wanted if column >= len(self.kept)]
        place = torch.zeros(width, dtype=torch.int64, device=self.kept.device)
        place[list(needed)] = torch.arange(len(needed), device=place.device)
        return Imputer(self.fill[values], self.missing, place[self.kept[values]], place[self.flagged[flags]])

    def has_bits_of_source(self) -> bool:
        """It computes in the order of the source."""
        return True

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Values with their column, whose NaN counts only where it is not filled; flags always."""
        kinds = ("inf",) if torch.isnan(self.missing) else ("nan", "inf")
        fine = torch.isfinite(self.fill).tolist()
        values = [Finite((column,), kinds) if ok else None for column, ok in zip(self.kept.tolist(), fine, strict=True)]
        return [*values, *(Finite() for _ in self.flagged)]


class MissingFlags(Module):
    """One flag per flagged column.

    y = [1 where x_k is missing, else 0, for k in flagged]
    """

    missing: Tensor  # [], the value that stands for a missing one: NaN or a number
    flagged: Tensor  # int64 positions of input columns
    never: Tensor  # int64 positions of columns in which the source rejects missing values

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with a missing value where fitting saw none, an infinite one, or NaN where it marks nothing."""
        non_finite = torch.isinf(x) | (torch.isnan(x) & ~torch.isnan(self.missing))
        return is_missing(x, self.missing)[:, self.never].any(dim=1) | non_finite.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, len(flagged)]."""
        return is_missing(x, self.missing).index_select(1, self.flagged).to(x.dtype)
