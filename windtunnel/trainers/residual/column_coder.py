"""Codes of the encoded columns, bins of numbers and ids: what the interactions of residual models are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from windtunnel.encode import Batch, CategoryColumn
from windtunnel.modules.linear.residual_model import column_codes, edge_shift
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.residual.init_scores import ResidualInputs, concat, in_row_blocks

ROWS_PER_BIN = 200
MIN_BINS, MAX_BINS = 16, 64
"""The fewest and the most bins of a number. Few rows get few bins, or a pair of columns has more cells than rows."""
FEW_VALUES = 32
"""A number with no more distinct values than this has a bin for each, with few rows too."""


@dataclass(frozen=True)
class ColumnCoder:
    """Turns encoded rows into codes: numbers into bins, categories into ids."""

    edges: Tensor  # ``[numbers, E]``, as in ``ResidualModel``
    sizes: list[int]  # the number of codes of each column, numbers before categories
    columns: list[int]  # the columns to combine; of several ids of one raw column the one with the most categories

    @classmethod
    def of(cls, net: TranslatedPipeline, rows: Batch) -> ColumnCoder:
        """Bins for the numbers of these rows, and the ids of the translation."""
        edges, categories = bin_edges(rows.numbers), net.encoder.categories
        sizes = [*code_counts(edges), *(len(category.vocabulary) for category in categories)]
        ids = one_per_raw_column(categories, range(len(categories)))
        return cls(edges, sizes, [*range(len(edges)), *(len(edges) + position for position in ids)])

    def codes(self, rows: Batch) -> Tensor:
        """int64 ``[N, columns]``."""
        size = torch.tensor(self.sizes, dtype=torch.int64)
        return in_row_blocks(lambda x: column_codes(x, self.edges, size), concat(rows))

    def is_category(self, columns: Sequence[int]) -> bool:
        """Whether these columns are a single category."""
        return len(columns) == 1 and columns[0] >= len(self.edges)

    def inputs(self, columns: list[int]) -> ResidualInputs:
        """Positions among the numbers and among the ids of a batch."""
        count = len(self.edges)
        return ResidualInputs(
            [column for column in columns if column < count],
            [column - count for column in columns if column >= count],
        )


def one_per_raw_column(categories: Sequence[CategoryColumn], positions: Iterable[int]) -> list[int]:
    """For each raw column of the ids at these positions, the position of its ids with the most categories."""
    largest: dict[int, int] = {}
    for position in positions:
        other = largest.setdefault(categories[position].column, position)
        if len(categories[position].vocabulary) > len(categories[other].vocabulary):
            largest[categories[position].column] = position
    return sorted(largest.values())


def bin_edges(numbers: Tensor) -> Tensor:
    """Edges between the bins of each number ``[n, E]``, padded with infinity.

    They lie a little above values of these rows, so that rounding, such as to float32, does not change the bin of one.
    """
    edges = [_column_edges(column[torch.isfinite(column)]) for column in numbers.t()]
    return pad_sequence(edges, batch_first=True, padding_value=torch.inf) if edges else numbers.new_zeros(0, 0)


def code_counts(edges: Tensor) -> list[int]:
    """The number of codes of each number with these edges ``[n, E]``: one for missing values, one for each bin."""
    counts: list[int] = (edges.isfinite().sum(dim=1) + 2).tolist()
    return counts


def _column_edges(column: Tensor) -> Tensor:
    """Edges at values of a column, moved up by a little, at most half of the way to the next greater value."""
    values: Tensor
    values, counts = torch.unique(column, return_counts=True)
    edges = _edge_values(values, counts)
    if not len(edges):
        return edges
    greater = torch.cat([values, values.new_full((1,), torch.inf)])[torch.searchsorted(values, edges) + 1]
    moved = torch.minimum(edges + edge_shift(edges, edges.abs().max()), edges + (greater - edges) / 2)
    return torch.where(moved < greater, moved, edges)


def _edge_values(values: Tensor, counts: Tensor) -> Tensor:
    """Quantiles of a column, for a bin per ``ROWS_PER_BIN`` values, from ``MIN_BINS`` to ``MAX_BINS`` bins.

    ``values`` are its distinct ones, ascending. A value that alone fills a bin gets one, and the other values share the
    rest; with ``FEW_VALUES`` distinct values or fewer, and with no more than there are bins, each has its own.
    """
    rows = int(counts.sum())
    bins = min(max(rows // ROWS_PER_BIN, MIN_BINS), MAX_BINS)
    if len(values) <= max(bins, FEW_VALUES):
        return values
    frequent = counts * bins >= rows
    rest = torch.repeat_interleave(values[~frequent], counts[~frequent])
    shared = max(bins - int(frequent.sum()), 2)
    place = torch.linspace(0, len(rest) - 1, shared + 1, dtype=torch.float64)[1:-1]
    below = values[:-1][frequent[1:]]  # lower edges of the bins of frequent values
    edges: Tensor = torch.unique(torch.cat([rest[place.round().long()], values[frequent], below]))
    return edges
