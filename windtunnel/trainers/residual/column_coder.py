"""Codes of the encoded columns: what the interactions of residual models are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.encode import Batch, CategoryColumn
from windtunnel.modules.linear.residual_model import column_codes
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.residual.binning import bin_edges
from windtunnel.trainers.residual.init_scores import InputColumns, concat, in_slices


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
        sizes = [int(torch.isfinite(row).sum()) + 2 for row in edges]
        sizes += [len(category.vocabulary) for category in categories]
        count = len(edges)
        return cls(
            edges,
            sizes,
            [*range(count), *(count + at for at in one_per_raw_column(categories, range(len(categories))))],
        )

    def codes(self, rows: Batch) -> Tensor:
        """int64 ``[N, columns]``."""
        size = torch.tensor(self.sizes, dtype=torch.int64)
        return in_slices(lambda x: column_codes(x, self.edges, size), concat(rows))

    def inputs(self, columns: list[int]) -> InputColumns:
        """Positions among the numbers and among the ids of a batch."""
        count = len(self.edges)
        return InputColumns(
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
