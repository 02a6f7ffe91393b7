"""Shrunken mean residuals of the cells of an interaction (target statistics), and the weights of interactions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.trainers.data.labelled_rows import Targets

PRIOR_ROWS = 20
"""Rows with a residual of 0 that are added to each cell, which shrinks its mean residual."""
SUBTRACTED_PART = 0.2
"""Fraction of an interaction's mean residuals that is subtracted before the next one is fitted. Low, so that
overlapping interactions can share a signal."""
CELLS_PER_ROW = 8
MAX_CELLS = 2**20
MAX_ITERATIONS = 100


@dataclass(frozen=True)
class Residuals:
    """Codes and residuals of rows."""

    codes: Tensor  # int64 ``[N, C]``; a column lies together in memory, as interactions read single ones
    values: Tensor  # ``[N, K]``, negative gradients of the loss by the scores, rescaled, times ``weight``
    weight: Tensor | None = None  # ``[N]``, with a mean of 1; None if each row counts once

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", self.codes.t().contiguous().t())

    def sample(self, size: int, generator: torch.Generator) -> Residuals:
        """At most ``size`` random rows."""
        if len(self.codes) <= size:
            return self
        return self.take(torch.randperm(len(self.codes), generator=generator)[:size])

    def take(self, index: Tensor) -> Residuals:
        """The rows at these indices."""
        return Residuals(self.codes[index], self.values[index], None if self.weight is None else self.weight[index])

    def subtract(self, fitted: Tensor) -> Residuals:
        """The same rows, with ``SUBTRACTED_PART`` times ``fitted`` ``[N, K]`` subtracted from the residuals."""
        weighted = fitted if self.weight is None else fitted * self.weight.unsqueeze(1)
        return replace(self, values=self.values - SUBTRACTED_PART * weighted)


@dataclass(frozen=True)
class Interaction:
    """Columns of codes whose values count together; a single column is an interaction of order 1."""

    columns: tuple[int, ...]  # positions of the columns
    sizes: tuple[int, ...]  # the number of codes of each column
    cell_count: int

    @classmethod
    def of(cls, columns: tuple[int, ...], size: Sequence[int], rows: int) -> Interaction:
        """The interaction of these columns, with a cell per combination of codes.

        Combinations are hashed if that gives more than ``CELLS_PER_ROW`` cells per row or more than ``MAX_CELLS``.
        """
        return cls.hashed_into(columns, size, min(CELLS_PER_ROW * rows, MAX_CELLS))

    @classmethod
    def hashed_into(cls, columns: tuple[int, ...], size: Sequence[int], max_cells: int) -> Interaction:
        """The interaction of these columns, with a cell per combination of codes.

        If these would be more than ``max_cells`` (even), combinations are hashed into ``max_cells`` + 1 cells (odd).
        """
        sizes = tuple(size[column] for column in columns)
        # Most sizes have no factor in common with an odd count, so the hash depends on every digit.
        return cls(columns, sizes, min(math.prod(sizes), max_cells + 1))

    def cells(self, codes: Tensor) -> Tensor:
        """Cell of each row, int64 ``[N]``, as ``interaction_cells`` computes it; small numbers need no remainder."""
        number, bound = codes.new_zeros(()), 1  # numbers are below the bound
        for column, size in zip(self.columns, self.sizes, strict=True):
            number, bound = number * size + codes[:, column], bound * size
            if bound > self.cell_count:
                number %= self.cell_count
                bound = self.cell_count
        return number

    def occurring_cells(self, codes: Tensor) -> Tensor:
        """The cells with a row, int64, ascending."""
        return torch.bincount(self.cells(codes), minlength=self.cell_count).nonzero()[:, 0]

    def mean_residuals(self, residuals: Residuals) -> MeanResiduals:
        """Shrunken mean residual of each cell.

        With G_c the sum of the residuals of the n_c rows of cell c and p = ``PRIOR_ROWS``: G_c / (n_c + p), and
        without row i, (G_c - r_i) / (n_c - 1 + p). A row of weight w counts as w rows.
        """
        cell, weight = self.cells(residuals.codes), residuals.weight
        total = residuals.values.new_zeros(self.cell_count, residuals.values.shape[1])
        total.index_add_(0, cell, residuals.values)
        rows = torch.bincount(cell, weight, minlength=self.cell_count).unsqueeze(1)
        other_rows = rows[cell] + PRIOR_ROWS - (1 if weight is None else weight.unsqueeze(1))
        return MeanResiduals(total, rows, (total[cell] - residuals.values) / other_rows.to(total.dtype))


@dataclass(frozen=True)
class MeanResiduals:
    """Shrunken mean residuals of the cells of an interaction."""

    total: Tensor  # ``[cells, K]``, the sum of the residuals of each cell
    rows: Tensor  # ``[cells, 1]``, the rows of each cell, or the sum of their weights
    leave_one_out: Tensor  # ``[N, K]``, for each training row that of its cell without that row

    @property
    def table(self) -> Tensor:
        """Those of all cells ``[cells, K]``."""
        return self.total / (self.rows + PRIOR_ROWS)

    def of_cells(self, cell: Tensor) -> Tensor:
        """Those of some cells, int64 ``[N]`` -> ``[N, K]``; there are often many more cells than rows."""
        return self.total[cell] / (self.rows[cell] + PRIOR_ROWS)


def fit_in_sequence(residuals: Residuals, interactions: Sequence[Interaction]) -> Iterator[MeanResiduals]:
    """Mean residuals of each interaction, fitted on the residuals that the interactions before it leave."""
    for interaction in interactions:
        fitted = interaction.mean_residuals(residuals)
        yield fitted
        residuals = residuals.subtract(fitted.leave_one_out)


def summand_weights(loss: Loss, unit: Tensor, scores: Tensor, summands: Tensor, targets: Targets) -> Tensor:
    """Weight of each of P summands ``[N, K, P]`` of the scores, ``[P]``.

    The weights b >= 0 minimise loss(scores + summands . b) / s + |b|^2 / (2 N), the mean loss of N rows with a standard
    normal prior. Without the prior, few rows that can be separated without an error would need infinite b. s is 1 if
    the scores are log-odds, whose unit ``[K]`` is 1; if they are values, it is their loss before the change.

    The summands must be fitted on other rows: the source pipeline fits its own training rows too well, so that their
    residuals are too small. L-BFGS searches for the square roots of b.
    """
    scale = 1.0
    if not bool((unit == 1).all()):
        scale = max(float(loss(scores, *targets)), torch.finfo(scores.dtype).tiny)
    root = torch.full((summands.shape[2],), 0.3, dtype=summands.dtype, requires_grad=True)
    search = torch.optim.LBFGS([root], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        b = root.square()
        value = loss(scores + summands @ b, *targets) / scale + b.square().sum() / (2 * len(scores))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(closure)  # type: ignore[no-untyped-call]
    return root.detach().square()
