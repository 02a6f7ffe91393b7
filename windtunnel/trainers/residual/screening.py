"""Selection of the columns and interactions that explain residuals of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.modules.threads import run_parallel
from windtunnel.progress import Phase
from windtunnel.trainers.residual.mean_residuals import Interaction, MeanResiduals, Residuals

MAX_COLUMNS = 32
"""Columns that are combined with each other: 496 pairs."""
MAX_ORDER = 4
"""Columns of the largest interactions."""
MAX_INTERACTIONS = 24
"""The most interactions of each order that are tested for selection. From pairs on, these are also the ones that a
further column extends."""
TRAINING_THRESHOLD = 2.0
"""Least z statistic on the training rows."""
VALIDATION_THRESHOLD, VALIDATION_THRESHOLD_INTERACTION = 1.0, 3.0
"""Least z statistic on validation rows: for a single column, and for interactions, of which there are many."""


@dataclass(frozen=True)
class SelectedInteractions:
    """What ``select_interactions`` selects."""

    columns: list[int]  # the columns that the residual model reads
    interactions: list[Interaction]  # some of a single column


def select_interactions(
    train: Residuals, valid: Residuals, size: Sequence[int], columns: Sequence[int]
) -> SelectedInteractions:
    """Select interactions that are significant on training and validation rows, and columns with a validation z > 0.

    With r_i the residual of row i and m_i the mean residual of its cell, the statistic is

        z = sum_i r_i m_i / sqrt(sum_i (r_i m_i)^2),

    which is standard normal for an interaction that explains nothing. It is computed twice: on the training rows, with
    m_i fitted without row i, and on the validation rows, with r centred. The second rejects what holds for the training
    rows only, such as a calendar day that never comes again.

    Pairs are all pairs of the ``MAX_COLUMNS`` columns with the largest validation z. An interaction of order 3 or 4 is
    one of the ``MAX_INTERACTIONS`` strongest of the order below with a further column. Within an order, interactions
    are selected from the strongest to the weakest. Each must be significant on the residuals that those selected before
    it leave.

    ``size`` are the numbers of codes of all columns, ``columns`` those to select from.
    """
    rows = len(train.codes)
    single_z = {}
    for column in columns:
        single = Interaction.of((column,), size, rows)
        single_z[column] = _validation_z(single, single.mean_residuals(train), valid)
    combined = sorted(sorted(single_z, key=lambda column: -single_z[column])[:MAX_COLUMNS])
    selected: list[Interaction] = []
    column_sets: list[tuple[int, ...]] = [(column,) for column in columns]
    for order in range(1, MAX_ORDER + 1):
        candidates = [Interaction.of(column_set, size, rows) for column_set in column_sets]
        strongest = [*screen(order, candidates, train, valid)][:MAX_INTERACTIONS]
        for interaction in strongest:
            fitted = interaction.mean_residuals(train)
            if _significant_z(interaction, fitted, train, valid) is not None:
                selected.append(interaction)
                train = train.subtract(fitted.leave_one_out)
                valid = valid.subtract(fitted.of_cells(interaction.cells(valid.codes)))
        parents = [interaction.columns for interaction in strongest]
        if order == 1:
            parents = [(column,) for column in combined]
        column_sets = extended(parents, combined)
        if not column_sets:
            break
    read = {column for column in single_z if single_z[column] > 0}
    return SelectedInteractions(sorted(read.union(*(interaction.columns for interaction in selected))), selected)


def screen(
    order: int, candidates: Sequence[Interaction], train: Residuals, valid: Residuals | None = None
) -> dict[Interaction, float]:
    """The candidates with their z on the training rows, largest first; with ``valid`` only the significant ones."""
    kind = "columns" if order == 1 else f"interactions of {order} columns"
    with Phase(f"screening {len(candidates)} {kind}", len(candidates)) as phase:

        def z_of(candidate: Interaction) -> float | None:
            fitted = candidate.mean_residuals(train)
            z = _training_z(fitted, train) if valid is None else _significant_z(candidate, fitted, train, valid)
            phase.advance()
            return z

        values = run_parallel(z_of, candidates, single_thread=True)
    z = {candidate: value for candidate, value in zip(candidates, values, strict=True) if value is not None}
    return dict(sorted(z.items(), key=lambda item: -item[1]))


def extended(parents: Sequence[tuple[int, ...]], columns: Sequence[int]) -> list[tuple[int, ...]]:
    """Each combination of columns with one further column, each once and in order."""
    pairs = ((parent, column) for parent in parents for column in columns if column not in parent)
    return sorted({tuple(sorted((*parent, column))) for parent, column in pairs})


def _significant_z(interaction: Interaction, fitted: MeanResiduals, train: Residuals, valid: Residuals) -> float | None:
    """The z statistic on the training rows; None where one of the two statistics is too small."""
    z = _training_z(fitted, train)
    single = len(interaction.columns) == 1
    threshold = VALIDATION_THRESHOLD if single else VALIDATION_THRESHOLD_INTERACTION
    significant = z > TRAINING_THRESHOLD and _validation_z(interaction, fitted, valid) > threshold
    return z if significant else None


def _training_z(fitted: MeanResiduals, train: Residuals) -> float:
    return _z(fitted.leave_one_out * train.values)


def _validation_z(interaction: Interaction, fitted: MeanResiduals, valid: Residuals) -> float:
    predicted, mean = fitted.of_cells(interaction.cells(valid.codes)), valid.values.mean(dim=0)
    return _z(predicted * (valid.values - (mean if valid.weight is None else mean * valid.weight.unsqueeze(1))))


def _z(products: Tensor) -> float:
    """Sum over the rows in standard errors."""
    rows = products.sum(dim=1)
    return float(rows.sum() / rows.square().sum().sqrt().clamp_min(torch.finfo(rows.dtype).tiny))
