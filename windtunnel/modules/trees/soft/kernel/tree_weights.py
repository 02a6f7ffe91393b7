"""Weights of a layer for a group of trees: dense matrix products, or sums over the nonzero weights where few are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

SPARSE = 0.4
"""Share of weights that are not 0 up to which adding up is faster than a product (measured)."""
NARROW = 256
"""Columns up to which a GPU multiplies in less time than it looks one of them up (measured with 112)."""
LONG = 64
"""Rows of the batch from which on adding up is worth looking for those weights."""


@dataclass(frozen=True)
class SparseWeights:
    """A matrix whose row i holds ``factor`` at the columns ``entry``, both from ``start[i]`` to ``start[i + 1]``."""

    entry: Tensor  # int64 [nonzero]
    start: Tensor  # int64 [rows + 1]
    factor: Tensor  # [nonzero]
    columns: int

    def times(self, units: Tensor) -> Tensor:
        """``[columns, R] -> [rows, R]``: weighted sums of whole rows, which torch has as sums of embeddings."""
        return embedding_bag(
            self.entry, units, self.start, mode="sum", per_sample_weights=self.factor, include_last_offset=True
        )

    def transposed(self) -> SparseWeights:
        """``[columns, rows]``."""
        row = torch.repeat_interleave(self.start.diff())
        entry, order = self.entry.sort(stable=True)
        return by_rows(entry, row[order], self.factor[order], (self.columns, len(self.start) - 1))


def by_rows(row: Tensor, column: Tensor, factor: Tensor, shape: tuple[int, int]) -> SparseWeights:
    """From the places of its values, rows ascending."""
    start = torch.searchsorted(row, torch.arange(shape[0] + 1, device=row.device))
    return SparseWeights(column, start, factor, shape[1])


def one_column_each(column: Tensor, slope: Tensor, shift: Tensor, last: int) -> SparseWeights:
    """Row i is ``slope_i`` times column ``column_i``, plus ``shift_i`` times the column ``last``."""
    entry = torch.stack([column, torch.full_like(column, last)], dim=1).flatten()
    start = torch.arange(0, len(entry) + 1, 2, device=column.device)
    return SparseWeights(entry, start, torch.stack([slope, shift], dim=1).flatten(), last + 1)


@dataclass(frozen=True)
class TreeWeights:
    """Weights ``[G, to, from]`` of G trees, each over its own units."""

    dense: Tensor
    few: SparseWeights | None

    @classmethod
    def of(cls, dense: Tensor, *, add_up: bool) -> TreeWeights:
        """Of a contiguous tensor; added up, if that is allowed, where few weights are not 0."""
        if not add_up:
            return cls(dense, None)
        trees, to, units = dense.shape
        flat = dense.view(-1)
        at = flat.nonzero().flatten()
        if len(at) > SPARSE * len(flat):
            return cls(dense, None)
        row = at // units
        column = (row // to) * units + at % units  # the units of a tree come after those of the trees before it
        return cls(dense, by_rows(row, column, flat.index_select(0, at), (trees * to, trees * units)))

    def transposed(self, but: int) -> TreeWeights:
        """``[G, from, to]``; nothing goes to the unit ``but`` where weights are added up."""
        if self.few is None:
            return TreeWeights(self.dense.transpose(1, 2), None)
        dense = self.dense.transpose(1, 2).contiguous()
        dense[:, but] = 0
        return TreeWeights.of(dense, add_up=True)

    def times(self, units: Tensor, into: Tensor) -> Tensor:
        """``[G * from, R] -> [G * to, R]``, in ``into`` or in a new tensor."""
        if self.few is not None:
            return self.few.times(units)
        trees, to, many = self.dense.shape
        torch.bmm(self.dense, units.view(trees, many, -1), out=into.view(trees, to, -1))
        return into


def favours_dense(batch: Tensor) -> bool:
    """Whether a product may be faster than reading one column per row: on a GPU, for a narrow batch ``[B, width]``."""
    return batch.device.type == "cuda" and batch.shape[1] <= NARROW


def favours_sparse(batch: Tensor) -> bool:
    """Whether sums over nonzero weights may be faster than a product: on a CPU, for a large batch ``[B, ...]``."""
    return batch.device.type == "cpu" and len(batch) >= LONG
