"""Features of the boosted residual: target statistics of categories and interactions, and codes of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.threads import run_parallel
from windtunnel.objectives.losses import Loss
from windtunnel.program.head import Head
from windtunnel.progress import Phase
from windtunnel.trainers.data.collected_rows import MAX_RESIDUAL_ROWS
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.residual.boosted.cell_tables import ROW_BLOCKS, CellTables, TargetRows, block_of_rows
from windtunnel.trainers.residual.column_coder import ColumnCoder
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.interactions import residuals_of
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals
from windtunnel.trainers.residual.screening import MAX_COLUMNS, MAX_ORDER, extended, screen

MAX_FEATURES = 240
"""Target statistics and row counts; with K scores a table has K + 1 of them."""
EXTENDED_INTERACTIONS = 48
"""Interactions of each order that are extended by a further column."""


@dataclass(frozen=True)
class BoostedFeatures:
    """The features of training rows, by the way in which blocks are drawn, and of validation rows.

    They are the target statistics and row counts of P categories and interactions, and the codes of the numbers.
    """

    coder: ColumnCoder
    tables: CellTables
    sample: Tensor  # positions of the training rows that trees are boosted on, ascending
    train: dict[str, NDArray[np.float32]]  # ``[sample, P (K + 1) + numbers]`` by the names in ``ROW_BLOCKS``
    valid: NDArray[np.float32]  # ``[validation rows, P (K + 1) + numbers]``

    @cached_property
    def width(self) -> int:
        """Features of a table."""
        return len(self.tables.mean) + 1

    @property
    def table_feature_count(self) -> int:
        """The number of features before the codes of the numbers, P (K + 1)."""
        return len(self.tables.sums) * self.width

    def take(self, positions: Sequence[int]) -> BoostedFeatures:
        """The features of some tables, and all numbers."""
        columns = [position * self.width + k for position in positions for k in range(self.width)]
        columns += range(self.table_feature_count, self.valid.shape[1])
        train = {blocks: features[:, columns] for blocks, features in self.train.items()}
        return replace(self, tables=self.tables.take(positions), train=train, valid=self.valid[:, columns])


def fit_features(
    head: Head, coder: ColumnCoder, train: LabelledRows, valid: LabelledRows, loss: Loss, seed: int
) -> BoostedFeatures | None:
    """Select interactions on the training rows, and compute the features; None without a category or interaction.

    ``train`` and ``valid`` are rows with init scores, training rows none of weight 0. ``seed`` is that of random blocks
    and of the sample.
    """
    outputs = train.rows.numbers.shape[1] - len(coder.edges)
    rows, scores = split_scores(train.rows, outputs)
    generator, codes = torch.Generator().manual_seed(seed), coder.codes(rows)
    columns, row_weight = target_columns(head, train.targets.target, outputs), train.targets.weight
    residuals = residuals_of(codes, loss, scores, train.targets, scores.new_ones(outputs))
    tables_at_most = MAX_FEATURES // (columns.shape[1] + 1)
    column_sets = columns_of_tables(residuals.sample(MAX_RESIDUAL_ROWS, generator), coder, tables_at_most)
    if not column_sets:
        return None
    weight = np.ones(len(codes)) if row_weight is None else (row_weight.double() / row_weight.double().mean()).numpy()
    target_rows = TargetRows(codes, columns, weight)
    numbers = len(coder.edges)
    valid_codes = coder.codes(split_scores(valid.rows, outputs)[0])
    with Phase(f"target statistics of {len(column_sets)} columns and interactions"):
        tables = CellTables.of(column_sets, coder.sizes, target_rows)
        sample = torch.arange(len(codes))
        if len(codes) > MAX_RESIDUAL_ROWS:
            sample = torch.randperm(len(codes), generator=generator)[:MAX_RESIDUAL_ROWS].sort().values
        blocks = {kind: block_of_rows(kind, len(codes), seed) for kind in ROW_BLOCKS}
        of_kinds = run_parallel(
            lambda kind: tables.out_of_block_features(target_rows, blocks[kind], sample), list(ROW_BLOCKS)
        )
        train_tables = dict(zip(ROW_BLOCKS, of_kinds, strict=True))
    return BoostedFeatures(
        coder,
        tables,
        sample,
        {kind: _with_numbers(features, codes[sample, :numbers]) for kind, features in train_tables.items()},
        _with_numbers(tables.features(valid_codes), valid_codes[:, :numbers]),
    )


def _with_numbers(features: NDArray[np.float32], codes: Tensor) -> NDArray[np.float32]:
    """Features followed by the codes of the numbers."""
    return np.hstack([features, codes.numpy().astype(np.float32)])


def columns_of_tables(train: Residuals, coder: ColumnCoder, count: int) -> list[tuple[int, ...]]:
    """The columns of each table, at most ``count``: single categories, then the strongest interactions.

    Those are the interactions of up to four columns whose mean residuals explain most of the training rows. Both are
    ordered by the z statistic of ``select_interactions`` on the training rows, which is above 0 for interactions. A
    further column extends each of the ``MAX_COLUMNS`` strongest columns, and the ``EXTENDED_INTERACTIONS`` strongest
    interactions of each order from 2 on.
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
    ordered = sorted(z, key=lambda each: (not coder.is_category(each.columns), -z[each]))
    return [each.columns for each in ordered if z[each] > 0 or coder.is_category(each.columns)][:count]


def target_columns(head: Head, target: Tensor, outputs: int) -> NDArray[np.float64]:
    """The columns whose means are target statistics, float64 ``[N, K]``: 0 or 1 for each class, or the values."""
    if head.task == "multiclass":
        return functional.one_hot(target, outputs).double().numpy()
    columns: NDArray[np.float64] = target.double().numpy().reshape(len(target), -1)
    return columns
