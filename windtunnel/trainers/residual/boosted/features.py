"""Features of the boosted residual: the strongest interactions of training rows, and their target statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.objectives.losses import Loss
from windtunnel.program.head import Head
from windtunnel.progress import Phase
from windtunnel.trainers.residual.boosted.cell_tables import BLOCKS, CellTables, TargetRows, row_blocks
from windtunnel.trainers.residual.column_coder import ColumnCoder
from windtunnel.trainers.residual.init_scores import ResidualInputs, split_scores
from windtunnel.trainers.residual.interactions import negative_gradient
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals
from windtunnel.trainers.residual.screening import MAX_COLUMNS, MAX_ORDER, extended, screen
from windtunnel.trainers.residual.validation_rows import MAX_ROWS, Items

MAX_FEATURES = 240
"""Target statistics and row counts; with K scores an interaction has K + 1 of them."""
EXTENDED_INTERACTIONS = 48
"""Interactions of each order that are extended by a further column."""


@dataclass(frozen=True)
class BoostedFeatures:
    """The features of training rows, by the way in which blocks are drawn, and of validation rows."""

    coder: ColumnCoder
    tables: CellTables
    sample: Tensor  # numbers of the training rows that trees are boosted on, ascending
    train: dict[str, NDArray[np.float32]]  # ``[sample, P (K + 1)]`` by the names in ``BLOCKS``
    valid: NDArray[np.float32]  # ``[validation rows, P (K + 1)]``

    @cached_property
    def width(self) -> int:
        """Features of an interaction."""
        return len(self.tables.mean) + 1

    def take(self, positions: Sequence[int]) -> BoostedFeatures:
        """The features of some interactions."""
        columns = [position * self.width + k for position in positions for k in range(self.width)]
        train = {blocks: features[:, columns] for blocks, features in self.train.items()}
        return replace(self, tables=self.tables.take(positions), train=train, valid=self.valid[:, columns])

    def with_trees(self, trees: TreeEnsemble) -> tuple[CellStatistics, TreeEnsemble, ResidualInputs]:
        """The module of the interactions that trees read, the trees over its bins, and the columns that it reads."""
        used = sorted({feature // self.width for feature in trees.feature.tolist()})
        tables = self.tables.take(used)
        columns = sorted({column for interaction in tables.interactions for column in interaction.columns})
        inputs = self.coder.inputs(columns)
        sizes = [self.coder.sizes[column] for column in columns]
        kept = np.array([position * self.width + k for position in used for k in range(self.width)])
        feature = np.searchsorted(kept, trees.feature)
        thresholds = [np.unique(trees.threshold[feature == column]) for column in range(len(kept))]
        module = tables.module(columns, self.coder.edges[inputs.numbers], sizes, thresholds)
        bins = [np.searchsorted(thresholds[f], t) for f, t in zip(feature, trees.threshold, strict=True)]
        of_bins = replace(
            trees,
            width=len(kept),
            feature=feature,
            threshold=np.array(bins) + 0.5,
            feature_range=np.array([[0.0, len(each)] for each in thresholds]),
        )
        return module, of_bins, inputs


def fit_features(
    head: Head, coder: ColumnCoder, train: Items, valid: Items, loss: Loss, seed: int
) -> BoostedFeatures | None:
    """Select interactions on the training rows, and compute their target statistics; None without an interaction.

    ``train`` and ``valid`` are rows with init scores, training rows none of weight 0. ``seed`` is that of random blocks
    and of the sample.
    """
    outputs = train[0].numbers.shape[1] - len(coder.edges)
    rows, scores = split_scores(train[0], outputs)
    generator, codes = torch.Generator().manual_seed(seed), coder.codes(rows)
    columns = target_columns(head, train[1], outputs)
    residuals = Residuals(codes, negative_gradient(loss, scores, *train[1:], *[None] * (3 - len(train))))
    interactions = strongest_interactions(
        residuals.sample(MAX_ROWS, generator), coder, MAX_FEATURES // (columns.shape[1] + 1)
    )
    if not interactions:
        return None
    weight = train[2].double().numpy() if len(train) == 3 else np.ones(len(codes))
    target_rows = TargetRows(codes, columns, weight)
    with Phase(f"target statistics of {len(interactions)} combinations of columns"):
        tables = CellTables.of(interactions, coder.sizes, target_rows)
        sample = torch.arange(len(codes))
        if len(codes) > MAX_ROWS:
            sample = torch.randperm(len(codes), generator=generator)[:MAX_ROWS].sort().values
        return BoostedFeatures(
            coder,
            tables,
            sample,
            {
                kind: tables.out_of_block_features(target_rows, row_blocks(kind, len(codes), seed), sample)
                for kind in BLOCKS
            },
            tables.features(coder.codes(split_scores(valid[0], outputs)[0])),
        )


def strongest_interactions(train: Residuals, coder: ColumnCoder, count: int) -> list[tuple[int, ...]]:
    """The columns of the interactions of up to four columns whose mean residuals explain most of the training rows.

    They are ordered by the z statistic of ``select_interactions`` on the training rows. A further column extends each
    of the ``MAX_COLUMNS`` strongest columns, and the ``EXTENDED_INTERACTIONS`` strongest interactions of each order
    from 2 on.
    """
    train = replace(train, values=train.values / train.values.square().mean(dim=0).sqrt().clamp_min(1e-30))
    z: dict[Interaction, float] = {}
    column_sets: list[tuple[int, ...]] = [(column,) for column in coder.columns]
    combined = coder.columns
    for order in range(1, MAX_ORDER + 1):
        candidates = [Interaction.of(column_set, coder.sizes, len(train.codes)) for column_set in column_sets]
        z_of_order = screen(order, candidates, train)
        strongest = [interaction.columns for interaction in z_of_order]
        if order == 1:
            combined = sorted(column for (column,) in strongest[:MAX_COLUMNS])
        parents = [(column,) for column in combined] if order == 1 else strongest[:EXTENDED_INTERACTIONS]
        column_sets = extended(parents, combined)
        z |= z_of_order
    return [each.columns for each in sorted(z, key=lambda interaction: -z[interaction])[:count] if z[each] > 0]


def target_columns(head: Head, target: Tensor, outputs: int) -> NDArray[np.float64]:
    """The columns whose means are target statistics, float64 ``[N, K]``: 0 or 1 for each class, or the values."""
    if head.task == "multiclass":
        return functional.one_hot(target, outputs).double().numpy()
    columns: NDArray[np.float64] = target.double().numpy().reshape(len(target), -1)
    return columns
