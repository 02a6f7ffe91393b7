"""Target statistics of the cells of interactions: tables for new rows, out-of-block features for training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.linear.residual_model import cell_keys, padded_columns
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.threads import run_parallel
from windtunnel.trainers.residual.mean_residuals import Interaction

TARGET_PRIOR_ROWS = 3
"""Rows with the mean target that are added to each cell."""
MAX_CELLS = 2**24
"""The most cells of an interaction. Only cells with rows are stored, so there may be many: hashes rarely collide."""
SORTED_FROM = 8
"""From so many possible numbers per row on, distinct ones are found by sorting: slower, but in less memory."""
ROW_BLOCKS = {"contiguous": 60, "random": 20}
"""A way to form blocks of training rows -> the number of blocks. The features of a row come from all other blocks."""


@dataclass(frozen=True)
class TargetRows:
    """Rows to compute target statistics of."""

    codes: Tensor  # int64 ``[N, columns]``
    target: NDArray[np.float64]  # ``[N, K]``, the columns whose means are target statistics
    weight: NDArray[np.float64]  # ``[N]``

    @property
    def mean(self) -> NDArray[np.float64]:
        """Weighted mean target ``[K]``."""
        mean: NDArray[np.float64] = np.average(self.target, axis=0, weights=self.weight)
        return mean


@dataclass(frozen=True)
class CellSums:
    """Sums over the training rows of each cell, for the cells of an interaction that have any."""

    interaction: Interaction
    cells: NDArray[np.int64]  # ``[n]``, the cells that have training rows, ascending
    places: NDArray[np.int64]  # ``[N]``, the place of each training row's cell among these
    # targets, weights: sums ``[n + 1, K]`` and ``[n + 1]`` by place; the last is 0, that of any other cell
    targets: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, interaction: Interaction, rows: TargetRows) -> CellSums:
        """The sums over these rows."""
        cells, places = _distinct(interaction.cells(rows.codes).numpy(), interaction.cell_count)
        count = len(cells) + 1
        weights = np.bincount(places, rows.weight, count).astype(np.float64)
        return cls(interaction, cells, places, _sums(places, rows.target * rows.weight[:, None], count), weights)

    def places_of(self, codes: Tensor) -> NDArray[np.int64]:
        """The place of each row's cell, int64 ``[N]``."""
        wanted = self.interaction.cells(codes).numpy()
        places = np.searchsorted(self.cells, wanted).clip(max=len(self.cells) - 1)
        return np.where(self.cells[places] == wanted, places, len(self.cells))


@dataclass(frozen=True)
class CellTables:
    """Target statistics and weights of the training rows of each cell, by interaction.

    With G_c and W_c the sums of a cell, m the mean target and p = ``TARGET_PRIOR_ROWS``, its target statistic is
    (G_c + p m) / (W_c + p), and its second feature is W_c. A training row's features are those of the sums over all
    other blocks of rows.
    """

    mean: NDArray[np.float64]  # ``[K]``
    sums: list[CellSums]

    @classmethod
    def of(cls, columns: Sequence[tuple[int, ...]], size: Sequence[int], rows: TargetRows) -> CellTables:
        """The tables of interactions of these columns; ``size`` are the numbers of codes."""
        interactions = [Interaction.hashed_into(each, size, MAX_CELLS) for each in columns]
        return cls(rows.mean, run_parallel(lambda interaction: CellSums.of(interaction, rows), interactions))

    @property
    def interactions(self) -> list[Interaction]:
        """The interaction of each table."""
        return [sums.interaction for sums in self.sums]

    def take(self, positions: Sequence[int]) -> CellTables:
        """The tables of some interactions."""
        return CellTables(self.mean, [self.sums[position] for position in positions])

    def features(self, codes: Tensor) -> NDArray[np.float32]:
        """Features of rows that are no training rows, float32 ``[N, P (K + 1)]``."""
        places = ((sums, sums.places_of(codes)) for sums in self.sums)
        return np.hstack([self._columns(sums.targets[place], sums.weights[place]) for sums, place in places])

    def out_of_block_features(self, rows: TargetRows, block: NDArray[np.int64], sample: Tensor) -> NDArray[np.float32]:
        """Features of some training rows, each without the rows of its block; float32 ``[sample, P (K + 1)]``."""
        weighted, blocks, chosen = rows.target * rows.weight[:, None], int(block.max()) + 1, sample.numpy()
        columns = []
        for sums in self.sums:
            distinct, part = _distinct(sums.places * blocks + block, len(sums.cells) * blocks)
            place, part_of = sums.places[chosen], part[chosen]
            targets = sums.targets[place] - _sums(part, weighted, len(distinct))[part_of]
            columns.append(self._columns(targets, sums.weights[place] - np.bincount(part, rows.weight)[part_of]))
        return np.hstack(columns)

    def module(
        self,
        columns: Sequence[int],
        edges: Tensor,
        size: Sequence[int],
        borders: Sequence[NDArray[np.float64]],
    ) -> CellStatistics:
        """The module that computes the features in bins, followed by the codes of the numbers.

        ``columns`` are those that it reads, ascending, by their positions among the codes; ``edges`` and ``size`` are
        of these columns, as in ``CellStatistics``. ``borders`` are those of each feature, ascending, at most 255.
        """
        place = {column: position for position, column in enumerate(columns)}
        count = torch.tensor([each.cell_count for each in self.interactions])
        bins = [self._bins(position, borders) for position in range(len(self.sums))]
        return CellStatistics(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            interactions=padded_columns([tuple(map(place.__getitem__, each.columns)) for each in self.interactions]),
            cell_count=count,
            keys=cell_keys(count, [torch.from_numpy(sums.cells) for sums in self.sums]),
            bins=torch.from_numpy(np.concatenate([*(table[:-1] for table in bins), *(table[-1:] for table in bins)])),
            number_codes=True,
        )

    def _bins(self, position: int, borders: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        """The bins of the cells of an interaction: the number of borders below each feature, ``[n + 1, K + 1]``."""
        features = self._columns(self.sums[position].targets, self.sums[position].weights)
        first = position * features.shape[1]
        bins = [np.searchsorted(borders[first + k], column) for k, column in enumerate(features.T)]
        return np.stack(bins, axis=1).astype(np.uint8)

    def _columns(self, targets: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Statistics and weights of cells, ``[n, K + 1]``; float32, so that all precisions find the same bins."""
        weights = weights.clip(min=0)[:, None]
        statistics = (targets + TARGET_PRIOR_ROWS * self.mean) / (weights + TARGET_PRIOR_ROWS)
        return np.hstack([statistics, weights]).astype(np.float32)


def block_of_rows(kind: str, rows: int, seed: int) -> NDArray[np.int64]:
    """The block of each row, int64 ``[rows]``: neighbouring rows ("contiguous"), or random ones."""
    block = np.arange(rows) * ROW_BLOCKS[kind] // rows
    return block if kind == "contiguous" else np.random.default_rng(seed).permutation(block)


def _distinct(numbers: NDArray[np.int64], bound: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct numbers, ascending, and the place of each number among them; all are from 0 to below ``bound``."""
    if bound > SORTED_FROM * len(numbers):
        return np.unique(numbers, return_inverse=True)
    occurs = np.zeros(bound, dtype=bool)
    occurs[numbers] = True
    distinct, place = np.flatnonzero(occurs), np.empty(bound, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[numbers]


def _sums(cells: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Sums of the values ``[N, K]`` of each cell, ``[count, K]``."""
    return np.stack([np.bincount(cells, column, count) for column in values.T], axis=1)
