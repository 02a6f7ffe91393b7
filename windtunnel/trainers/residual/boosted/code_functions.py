"""Functions of the codes of columns, of which the first layer of a network makes tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.trainers.residual.boosted.feature_layout import FeatureLayout

PIECES = 8
"""Pieces of a number, with about as many training rows each."""
MAX_CODES = 512
"""A category with more codes has no table: each code would have a row in every file, whether it occurs or not."""
MAX_FREQUENT, MIN_ROWS = 64, 20
"""The most categories of a column that have a function each, and the fewest training rows of such a category."""


@dataclass(frozen=True)
class CodeFunctions:
    """Functions of the codes of some columns.

    Those of a number are piecewise linear: each rises from -1 to 1 within its piece, and is constant elsewhere
    (Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022). A number with one
    piece has none, as it is linear already. A category has a function for each frequent value, 1 there and 0 elsewhere.
    """

    positions: list[int]  # of the codes among the features
    values: list[Tensor]  # ``[codes, functions]`` of each column

    @classmethod
    def of(cls, features: Tensor, layout: FeatureLayout) -> CodeFunctions:
        """Functions that fit the codes of training rows ``[N, F]``."""
        positions, values = list[int](), list[Tensor]()
        for position, size in zip(layout.codes, layout.sizes, strict=True):
            is_category = position >= layout.numeric
            if is_category and size > MAX_CODES:
                continue
            rows = torch.bincount(features[:, position].long(), minlength=size)
            found = _indicators(rows) if is_category else _pieces(rows)
            if found.shape[1] > (0 if is_category else 1):
                positions.append(position)
                values.append(found)
        if not positions:  # a table of zeros: a step of a program reads one column at least
            size, position = min(zip(layout.sizes, layout.codes, strict=True))
            return cls([position], [torch.zeros(size, 0)])
        return cls(positions, values)

    @property
    def width(self) -> int:
        """The number of functions."""
        return sum(each.shape[1] for each in self.values)

    def __call__(self, features: Tensor) -> Tensor:
        """The values of all functions ``[N, width]``, for features ``[N, F]``."""
        codes = features[:, self.positions].long()
        return torch.cat([each[codes[:, place]] for place, each in enumerate(self.values)], dim=1)

    def tables(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of functions times weights ``[H, width]`` as tables: their rows ``[codes, H]``, and their starts.

        The rows are rounded to float32, in which files store what it holds.
        """
        weights = torch.split(weight, [each.shape[1] for each in self.values], dim=1)
        rows = [each.to(weight) @ of_column.t() for each, of_column in zip(self.values, weights, strict=True)]
        count = torch.tensor([len(each) for each in rows], dtype=torch.int64)
        return torch.cat(rows).float().to(weight), count.cumsum(0) - count


def _pieces(rows: Tensor) -> Tensor:
    """Piecewise linear functions between quantiles of the codes, whose numbers of training rows are ``rows``."""
    cumulated = rows.cumsum(0)
    places = torch.linspace(0, int(cumulated[-1]) - 1, PIECES + 1, dtype=torch.float64).round()
    knots = torch.unique(torch.searchsorted(cumulated, places.long(), right=True)).float()
    codes = torch.arange(len(rows)).float().unsqueeze(1)
    values: Tensor = ((codes - knots[:-1]) / (knots[1:] - knots[:-1])).clamp(0, 1) * 2 - 1
    return values


def _indicators(rows: Tensor) -> Tensor:
    """A function for each of the most frequent codes."""
    frequent = rows.argsort(descending=True, stable=True)[:MAX_FREQUENT]
    frequent = frequent[rows[frequent] >= MIN_ROWS]
    return torch.nn.functional.one_hot(frequent, len(rows)).t().float()
