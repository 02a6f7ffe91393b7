"""The initial residual model: selection of its columns, and fit of its interactions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.objectives.losses import Loss
from windtunnel.objectives.row_blocks import average_over_blocks
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.recipe import LARGEST_BATCH
from windtunnel.trainers.residual.column_coder import ColumnCoder
from windtunnel.trainers.residual.cross_fitting import CrossFitting
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals, fit_in_sequence, part_weights
from windtunnel.trainers.residual.screening import select_interactions
from windtunnel.trainers.residual.significance import compare_losses
from windtunnel.trainers.residual.training import ResidualFit, ResidualOnScores, residual_head
from windtunnel.trainers.residual.validation_rows import MAX_ROWS, Items, SplitRows


@dataclass(frozen=True)
class FittedInteractions:
    """Interactions with weights, which were selected and learned on some of the validation rows."""

    columns: list[int]  # the columns that the residual model reads
    interactions: list[Interaction]
    tables: list[Tensor]  # ``[cells, K]``, shrunken mean residuals of the training rows
    weights: Tensor  # ``[P]``, weight of each table

    def scores(self, codes: Tensor) -> Tensor:
        """Weighted sums of the tables ``[N, K]``, in units of the residual model."""
        total = codes.new_zeros(len(codes), 1, dtype=self.weights.dtype)
        for interaction, table, weight in zip(self.interactions, self.tables, self.weights, strict=True):
            total = total + weight * table[interaction.cells(codes)]
        return total


@dataclass(frozen=True)
class InitialResidual:
    """The residual model before its training, and what tests it."""

    fit: ResidualFit  # selected on all validation rows
    tests: CrossFitting
    coder: ColumnCoder  # codes of all columns, also of those that the model does not read


def fit_interactions(
    net: TranslatedPipeline,
    train: Items,
    valid: Items,
    split: SplitRows,
    loss: Loss,
    rank: int,
    generator: torch.Generator,
) -> InitialResidual | None:
    """Select the columns of a residual model and fit its interactions; None where no column is selected.

    Columns and interactions are selected, and interactions are weighed, on all validation rows; for the tests, on each
    half of them. A model has interactions only where those of the halves decrease the loss of the other half by more
    than its standard error.

    ``train`` and ``valid`` are rows with init scores, training rows none of weight 0; ``split`` are halves of the
    validation rows. ``rank`` is the width of the factors.
    """
    head = residual_head(net.head)
    outputs = train[0].numbers.shape[1] - len(net.encoder.numbers)
    rows, scores = split_scores(train[0], outputs)
    coder = ColumnCoder.of(net, rows)
    sizes, unit = coder.sizes, _unit(head, scores, train[1])

    of_train, of_valid = (_residuals(coder, loss, unit, *items) for items in (train, valid))
    gradient = of_train.values.square().mean(dim=0).sqrt().clamp_min(torch.finfo(unit.dtype).tiny)
    of_train, of_valid = (Residuals(each.codes, each.values / gradient) for each in (of_train, of_valid))
    sample = of_train.sample(MAX_ROWS, generator)
    init_scores = split_scores(valid[0], outputs)[1]

    def select(index: Tensor) -> FittedInteractions:
        selected = select_interactions(sample, of_valid.take(index), sizes, coder.columns)
        tables = [fitted.table for fitted in fit_in_sequence(of_train, selected.interactions)]
        codes, rest = of_valid.codes[index], [block[index] for block in valid[1:]]
        values = [table[each.cells(codes)] for each, table in zip(selected.interactions, tables, strict=True)]
        weights = _weights(values, unit, loss, init_scores[index], *rest)
        return FittedInteractions(selected.columns, selected.interactions, tables, weights)

    selected = select(split.shuffled.sort().values)
    if not selected.columns:
        return None
    of_halves = [select(half) for half in split.halves]
    crossfitted, test = torch.zeros_like(init_scores), None
    if selected.interactions:
        for each, tested in zip(of_halves, reversed(split.halves), strict=True):
            crossfitted[tested] = each.scores(of_valid.codes[tested]) * unit
        test = compare_losses(loss, split.shuffled, init_scores, init_scores + crossfitted, *valid[1:])
    significant = test is not None and test.significant

    def initial(selected: FittedInteractions) -> ResidualFit:
        inputs, size = coder.inputs(selected.columns), [sizes[column] for column in selected.columns]
        model = ResidualModel.zero(coder.edges[inputs.numbers], size, unit, rank=rank, generator=generator)
        on_scores = ResidualOnScores(model, head, gradient=float(gradient.square().mean().sqrt()))
        offset = torch.zeros_like(scores)
        if significant and selected.interactions:
            offset = _set_interactions(model, selected, of_train)
        return ResidualFit(on_scores, inputs, offset)

    fit = initial(selected)
    halves = [initial(each) if each.columns else None for each in of_halves]
    return InitialResidual(fit, CrossFitting(valid, split, halves, loss, crossfitted, test), coder)


def _residuals(
    coder: ColumnCoder, loss: Loss, unit: Tensor, rows: Batch, target: Tensor, weight: Tensor | None = None
) -> Residuals:
    """Codes of the columns, and residuals in units of the residual model, of rows with init scores."""
    rows, scores = split_scores(rows, len(unit))
    return Residuals(coder.codes(rows), negative_gradient(loss, scores, target, weight) * unit)


def _weights(values: list[Tensor], unit: Tensor, loss: Loss, scores: Tensor, *rest: Tensor) -> Tensor:
    """The weights of tables with these values of validation rows, ``[N, K]`` each; target and maybe weight are last."""
    if not values:
        return unit.new_zeros(0)
    parts = torch.stack(values, dim=2) * unit.unsqueeze(1)
    return part_weights(average_over_blocks(loss), unit, scores, parts, *rest)


def _set_interactions(model: ResidualModel, selected: FittedInteractions, train: Residuals) -> Tensor:
    """Give a model its interactions; their scores ``[N, K]`` of the training rows, for each fitted without that row."""
    place = {column: position for position, column in enumerate(selected.columns)}
    cells = [each.occurring_cells(train.codes) for each in selected.interactions]
    model.set_interactions(
        [tuple(place[column] for column in each.columns) for each in selected.interactions],
        [each.cell_count for each in selected.interactions],
        cells,
        [b * table[index] for b, table, index in zip(selected.weights, selected.tables, cells, strict=True)],
    )
    offset = torch.zeros_like(train.values)
    for b, means in zip(selected.weights, fit_in_sequence(train, selected.interactions), strict=True):
        offset += b * means.leave_one_out
    return offset * model.unit


def _unit(head: Head, scores: Tensor, target: Tensor) -> Tensor:
    """Raw scores per unit of the residual model: 1, or for values the standard deviation of the residuals."""
    # The loss rejects targets that do not fit the scores.
    if head.task != "regression" or head.link != "identity" or len(scores) < 2 or target.numel() != scores.numel():
        return scores.new_ones(scores.shape[1])
    deviation = (target.reshape(scores.shape) - scores).std(dim=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def negative_gradient(loss: Loss, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Negative gradient of each row's loss by its scores, times its weight over the mean weight, ``[N, K]``.

    Computed in batches, because a custom loss may compare every row with every other.
    """
    parts, mean_weight = [], 1.0 if weight is None else float(weight.mean())
    for first in range(0, len(scores), LARGEST_BATCH):
        rows = slice(first, first + LARGEST_BATCH)
        part = scores[rows].detach().clone().requires_grad_()
        part_weight = None if weight is None else weight[rows]
        gradient = torch.autograd.grad(loss(part, target[rows], part_weight), part)[0]
        parts.append(-gradient * (len(part) if part_weight is None else part_weight.sum() / mean_weight))
    return torch.cat(parts)
