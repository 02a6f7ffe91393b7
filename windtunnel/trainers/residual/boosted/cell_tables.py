"""Target statistics of the cells of interactions: tables for new rows, out-of-block features for training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.trainers.residual.mean_residuals import Interaction

PRIOR_ROWS = 3
"""Rows with the mean target that are added to each cell."""
BLOCKS = {"contiguous": 60, "random": 20}
"""How training rows are drawn into blocks, and into how many. A row's features leave its block out."""


@dataclass(frozen=True)
class TargetRows:
    """Rows to compute target statistics of.

    Attributes
    ----------
    codes : Tensor
        int64 ``[N, columns]``.
    target : ndarray
        float64 ``[N, K]``, the columns whose means are target statistics.
    weight : ndarray
        float64 ``[N]``.
    """

    codes: Tensor
    target: NDArray[np.float64]
    weight: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Weighted mean target ``[K]``."""
        mean: NDArray[np.float64] = np.average(self.target, axis=0, weights=self.weight)
        return mean


@dataclass(frozen=True)
class CellTables:
    """Sums of targets and of weights of the training rows of each cell, by interaction.

    With G_c and W_c the sums of a cell, m the mean target and p = ``PRIOR_ROWS``, its target statistic is
    (G_c + p m) / (W_c + p), and its second feature is W_c. A training row's features are those of the sums over all
    other blocks of rows.
    """

    interactions: list[Interaction]
    mean: NDArray[np.float64]
    targets: list[NDArray[np.float64]]
    weights: list[NDArray[np.float64]]

    @classmethod
    def of(cls, interactions: Sequence[Interaction], rows: TargetRows) -> CellTables:
        """The sums over these rows."""
        targets: list[NDArray[np.float64]] = []
        weights: list[NDArray[np.float64]] = []
        for interaction in interactions:
            cells = interaction.cells(rows.codes).numpy()
            targets.append(_sums(cells, rows.target * rows.weight[:, None], interaction.cell_count))
            weights.append(np.bincount(cells, rows.weight, interaction.cell_count).astype(np.float64))
        return cls(list(interactions), rows.mean, targets, weights)

    def features(self, codes: Tensor) -> NDArray[np.float32]:
        """Features of rows that are no training rows, float32 ``[N, P (K + 1)]``."""
        return np.hstack(
            [
                self._columns(targets[cells], weights[cells])
                for cells, targets, weights in zip(self._cells(codes), self.targets, self.weights, strict=True)
            ]
        )

    def out_of_block_features(self, rows: TargetRows, block: NDArray[np.int64], sample: Tensor) -> NDArray[np.float32]:
        """Features of some training rows, each without the rows of its block; float32 ``[sample, P (K + 1)]``."""
        weighted, blocks = rows.target * rows.weight[:, None], int(block.max()) + 1
        columns = []
        for cells, targets, weights in zip(self._cells(rows.codes), self.targets, self.weights, strict=True):
            distinct, place = np.unique(cells * blocks + block, return_inverse=True)
            chosen, cells = place[sample.numpy()], cells[sample.numpy()]
            of_block = _sums(place, weighted, len(distinct))[chosen], np.bincount(place, rows.weight)[chosen]
            columns.append(self._columns(targets[cells] - of_block[0], weights[cells] - of_block[1]))
        return np.hstack(columns)

    def module(
        self,
        used: Sequence[int],
        columns: Sequence[int],
        edges: Tensor,
        size: Sequence[int],
        thresholds: Sequence[NDArray[np.float64]],
    ) -> CellStatistics:
        """The module that computes the features of some interactions, in bins.

        Parameters
        ----------
        used : sequence of int
            Positions of the interactions.
        columns : sequence of int
            The columns that it reads, ascending, by their positions among the codes.
        edges, size
            Of these columns, as in ``CellStatistics``.
        thresholds : sequence of ndarray
            Of each feature of all interactions, ascending, at most 255.
        """
        place = {column: position for position, column in enumerate(columns)}
        interactions = [self.interactions[position] for position in used]
        order = max(len(each.columns) for each in interactions)
        padded = [[*(place[column] for column in each.columns), *[-1] * order][:order] for each in interactions]
        bins = [self._bins(position, thresholds) for position in used]
        return CellStatistics(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            interactions=torch.tensor(padded),
            cell_count=torch.tensor([each.cell_count for each in interactions]),
            bins=torch.from_numpy(np.concatenate(bins)),
        )

    def _bins(self, position: int, thresholds: Sequence[NDArray[np.float64]]) -> NDArray[np.uint8]:
        """The bins of the cells of an interaction: the number of thresholds below each feature, ``[cells, K + 1]``."""
        features = self._columns(self.targets[position], self.weights[position])
        first = position * features.shape[1]
        bins = [np.searchsorted(thresholds[first + k], column) for k, column in enumerate(features.T)]
        return np.stack(bins, axis=1).astype(np.uint8)

    def _cells(self, codes: Tensor) -> list[NDArray[np.int64]]:
        return [interaction.cells(codes).numpy() for interaction in self.interactions]

    def _columns(self, targets: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float32]:
        """Target statistics and weights of cells, ``[n, K + 1]``; float32, so that both precisions decide alike."""
        weights = weights.clip(min=0)[:, None]
        statistics = (targets + PRIOR_ROWS * self.mean) / (weights + PRIOR_ROWS)
        return np.hstack([statistics, weights]).astype(np.float32)


def row_blocks(kind: str, rows: int, seed: int) -> NDArray[np.int64]:
    """The block of each row, int64 ``[rows]``: neighbouring rows ("contiguous"), or random ones."""
    block = np.arange(rows) * BLOCKS[kind] // rows
    return block if kind == "contiguous" else np.random.default_rng(seed).permutation(block)


def _sums(cells: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Sums of the values ``[N, K]`` of each cell, ``[count, K]``."""
    return np.stack([np.bincount(cells, column, count) for column in values.T], axis=1)
