"""Features of the boosted residual as whole numbers: the bins of target statistics, the codes of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.trainers.residual.boosted.features import BoostedFeatures
from windtunnel.trainers.residual.init_scores import ResidualInputs

BINS = 255
"""The most bins of a target statistic or row count, whose numbers have one byte in the tables."""


@dataclass(frozen=True)
class BinnedFeatures:
    """The features of training rows, by the way in which blocks are drawn, and of validation rows, in bins.

    The bin of a target statistic or row count is the number of its borders below it. Trees and networks read bins, so
    that a table for scoring needs one byte for each feature of a cell.
    """

    features: BoostedFeatures
    borders: list[NDArray[np.float64]]  # of each target statistic and row count, ascending
    train: dict[str, NDArray[np.float32]]  # ``[sample, F]``
    valid: NDArray[np.float32]  # ``[validation rows, F]``

    @classmethod
    def of(cls, features: BoostedFeatures, kinds: Sequence[str]) -> BinnedFeatures:
        """The features with blocks of these kinds, in bins with about as many training rows of the first kind each."""
        borders = [bin_borders(column) for column in features.train[kinds[0]][:, : features.table_feature_count].T]
        train = {kind: _in_bins(borders, features.train[kind]) for kind in kinds}
        return cls(features, borders, train, _in_bins(borders, features.valid))

    def module(self) -> tuple[CellStatistics, ResidualInputs]:
        """The module that computes these features, and the columns that it reads: all numbers, and those of tables."""
        features, coder = self.features, self.features.coder
        numbers = range(len(coder.edges))
        columns = sorted({*numbers, *(column for each in features.tables.interactions for column in each.columns)})
        sizes = [coder.sizes[column] for column in columns]
        return features.tables.module(columns, coder.edges, sizes, self.borders), coder.inputs(columns)

    @property
    def largest(self) -> list[int]:
        """The largest number that each feature can be."""
        coder = self.features.coder
        return [*map(len, self.borders), *(size - 1 for size in coder.sizes[: len(coder.edges)])]


def bin_borders(column: NDArray[np.float32]) -> NDArray[np.float64]:
    """Borders between neighbouring values; if there are too many, those next to the quantiles."""
    values = np.unique(column.astype(np.float64))
    middles: NDArray[np.float64] = (values[1:] + values[:-1]) / 2
    if len(values) <= BINS:
        return middles
    quantiles = np.quantile(column, np.arange(1, BINS) / BINS, method="lower")
    places = np.unique(np.searchsorted(values, quantiles))
    return middles[places[places < len(middles)]]


def _in_bins(borders: list[NDArray[np.float64]], features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features ``[N, F]``, target statistics and row counts in bins."""
    binned = features.copy()
    for column, of_column in enumerate(borders):
        binned[:, column] = np.searchsorted(of_column, features[:, column])
    return binned
