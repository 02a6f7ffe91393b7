"""What the values of columns have to say: mean residuals, shrunk, and how much of them counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from windtunnel.modules.linear.residual_model import cells
from windtunnel.objectives.losses import Loss

PRIOR_ROWS = 20
"""The effect of a value is its mean residual, shrunk as if as many further rows had had a residual of 0."""
RATE = 0.2
"""The part of an effect that later ones need not explain any more: low, as combinations of much the same columns
together say more than the best of them."""
CELLS_PER_ROW = 8
MOST_CELLS = 2**20
STEPS = 100


@dataclass(frozen=True)
class Rows:
    """Codes int64 ``[N, C]`` and residuals ``[N, K]``, the loss's descent by the scores in a unit of one's own."""

    codes: Tensor
    residual: Tensor

    def some(self, most: int, generator: torch.Generator) -> Rows:
        """At most so many of them, at random."""
        if len(self.codes) <= most:
            return self
        index = torch.randperm(len(self.codes), generator=generator)[:most]
        return Rows(self.codes[index], self.residual[index])

    def without(self, explained: Tensor) -> Rows:
        """The same rows with ``RATE`` of what is explained ``[N, K]`` taken from the residuals."""
        return replace(self, residual=self.residual - RATE * explained)


@dataclass(frozen=True)
class Combination:
    """Columns whose values count together, as positions and numbers of codes, and how many cells they have."""

    columns: tuple[int, ...]
    size: tuple[int, ...]
    cells: int

    @classmethod
    def of(cls, columns: tuple[int, ...], size: Sequence[int], rows: int) -> Combination:
        """With a cell for each combination of values, or hashed into eight times as many as there are rows."""
        sizes = tuple(size[column] for column in columns)
        # An odd number of cells has no factor in common with most sizes, so that no digit drops out of the hash.
        return cls(columns, sizes, min(math.prod(sizes), CELLS_PER_ROW * rows + 1, MOST_CELLS + 1))

    def at(self, codes: Tensor) -> Tensor:
        """The cell of each row."""
        here, digits = torch.tensor([range(len(self.columns))]), codes[:, list(self.columns)]
        return cells(digits, torch.tensor(self.size), here, torch.tensor([self.cells]))[:, 0]

    def effect(self, rows: Rows) -> Effect:
        """What its values have to say.

        With G_c the sum of the residuals of the n_c rows of a cell and p = ``PRIOR_ROWS``: G_c / (n_c + p), and for
        row i itself, as if it had not been there, (G_c - r_i) / (n_c - 1 + p).
        """
        at = self.at(rows.codes)
        total = rows.residual.new_zeros(self.cells, rows.residual.shape[1]).index_add_(0, at, rows.residual)
        shrunk = torch.bincount(at, minlength=self.cells).unsqueeze(1) + PRIOR_ROWS
        return Effect(total / shrunk, (total[at] - rows.residual) / (shrunk[at] - 1))


@dataclass(frozen=True)
class Effect:
    """The effect of each cell ``[cells, K]``, and of each row that it was learned on without that row ``[N, K]``."""

    table: Tensor
    own: Tensor


def effects(rows: Rows, combinations: Sequence[Combination]) -> Iterator[Effect]:
    """One effect after the other, each of what the ones before have left over."""
    for combination in combinations:
        effect = combination.effect(rows)
        yield effect
        rows = rows.without(effect.own)


def shares(
    loss: Loss, unit: float, scores: Tensor, parts: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    """How much each of P parts ``[N, K, P]`` has to count, ``[P]``.

    b >= 0 with the least loss(scores + parts . b) / unit + |b|^2 / 2 N, the mean over N rows of a loss with a standard
    normal prior: few rows can be told apart without an error, and would ask for infinite b.

    The rows must not be those that the parts were learned on: there the source, which has seen the answers, leaves
    residuals that are too small. b is searched for as a square, by L-BFGS.
    """
    root = torch.full((parts.shape[2],), 0.3, dtype=parts.dtype, requires_grad=True)
    search = torch.optim.LBFGS([root], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        search.zero_grad()
        b = root.square()
        value = loss(scores + parts @ b, target, weight) / unit + b.square().sum() / (2 * len(scores))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(closure)  # type: ignore[no-untyped-call]
    return root.detach().square()
