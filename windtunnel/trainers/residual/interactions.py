"""The initial residual model: selection of its columns, and fit of its interactions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.objectives.losses import Loss
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.data.collected_rows import MAX_RESIDUAL_ROWS
from windtunnel.trainers.data.labelled_rows import LabelledRows, Targets
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.recipe import LARGEST_BATCH
from windtunnel.trainers.residual.column_coder import ColumnCoder
from windtunnel.trainers.residual.half_models import HalfModels
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals, fit_in_sequence, summand_weights
from windtunnel.trainers.residual.residual_stages import ResidualForTraining, ResidualOnInitScores
from windtunnel.trainers.residual.screening import select_interactions
from windtunnel.trainers.significance.significance_test import compare_losses
from windtunnel.trainers.significance.validation_halves import ValidationHalves


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

    def columns_alone(self) -> FittedInteractions:
        """The columns without interactions."""
        return FittedInteractions(self.columns, [], [], self.weights.new_zeros(0))


def fit_interactions(
    rows: RowsWithResiduals, valid: LabelledRows, split: ValidationHalves, rank: int, generator: torch.Generator
) -> tuple[ResidualForTraining, HalfModels]:
    """Select the columns of a residual model, maybe none, and fit its interactions.

    Columns, interactions and the weights of these come from all validation rows, for the two models of the test from
    one half each. No model has interactions unless those of the halves decrease the loss of the other half by more than
    its standard error.

    ``valid`` are the validation rows with init scores, ``split`` their halves. ``rank`` is the width of the factors.
    """
    selected = rows.select(split.all_rows)
    of_halves = [rows.select(half) for half in split.halves]
    init_scores = rows.scored_valid.rows
    interaction_scores, test = torch.zeros_like(init_scores), None
    if selected.interactions:
        for each, (_, tested) in zip(of_halves, split.tested_on(), strict=True):
            interaction_scores[tested] = each.scores(rows.valid.codes[tested]) * rows.unit
        after = init_scores + interaction_scores
        test = compare_losses(rows.evaluator.loss, split.shuffled, init_scores, after, rows.scored_valid.targets)
    if test is None or not test.significant:
        selected, *of_halves = (each.columns_alone() for each in (selected, *of_halves))
    residual = rows.residual_of(selected, rank, generator)
    residuals = [rows.residual_of(half, rank, generator) if half.columns else None for half in of_halves]
    return residual, HalfModels(valid, split, residuals, rows.evaluator, interaction_scores, test)


@dataclass(frozen=True)
class RowsWithResiduals:
    """Training and validation rows as codes and residuals, on which interactions are selected and fitted."""

    coder: ColumnCoder  # codes of all columns, also of those that a residual model does not read
    head: Head  # of the pipeline with the residual model
    evaluator: Evaluator
    unit: Tensor  # ``[K]``, raw scores per unit of the residual model
    gradient: Tensor  # ``[K]``, root mean square of the training rows' gradients, by which residuals are divided
    train: Residuals
    sample: Residuals  # at most ``MAX_RESIDUAL_ROWS`` training rows, on which interactions are screened
    valid: Residuals
    scored_valid: LabelledRows  # init scores of the validation rows ``[N, K]``

    @classmethod
    def of(
        cls,
        net: TranslatedPipeline,
        head: Head,
        train: LabelledRows,
        valid: LabelledRows,
        evaluator: Evaluator,
        generator: torch.Generator,
    ) -> RowsWithResiduals:
        """Compute the residuals of rows with init scores, by the loss; training rows have none of weight 0."""
        outputs = train.rows.numbers.shape[1] - len(net.encoder.numbers)
        rows, scores = split_scores(train.rows, outputs)
        coder, unit = ColumnCoder.of(net, rows), _unit_of_residuals(head, scores, train.targets.target)
        residuals = [_residuals(coder, evaluator.loss, unit, each) for each in (train, valid)]
        gradient = residuals[0].values.square().mean(dim=0).sqrt().clamp_min(torch.finfo(unit.dtype).tiny)
        on_train, on_valid = (replace(each, values=each.values / gradient) for each in residuals)
        sample = on_train.sample(MAX_RESIDUAL_ROWS, generator)
        scored = valid.with_rows(split_scores(valid.rows, outputs)[1])
        return cls(coder, head, evaluator, unit, gradient, on_train, sample, on_valid, scored)

    def select(self, index: Tensor) -> FittedInteractions:
        """Columns and interactions, selected and weighed on the validation rows at these indices."""
        selected = select_interactions(self.sample, self.valid.take(index), self.coder.sizes, self.coder.columns)
        tables = [fitted.table for fitted in fit_in_sequence(self.train, selected.interactions)]
        codes, scored = self.valid.codes[index], self.scored_valid.take(index)
        values = [table[each.cells(codes)] for each, table in zip(selected.interactions, tables, strict=True)]
        weights = _weights(values, self.unit, self.evaluator.averaged_loss, scored)
        return FittedInteractions(selected.columns, selected.interactions, tables, weights)

    def residual_of(self, selected: FittedInteractions, rank: int, generator: torch.Generator) -> ResidualForTraining:
        """The residual model of these columns and interactions, before its training."""
        inputs, sizes = self.coder.inputs(selected.columns), [self.coder.sizes[each] for each in selected.columns]
        edges = self.coder.edges[inputs.numbers]
        model = ResidualModel.zero(edges, sizes, self.unit, rank=rank, generator=generator)
        offset = torch.zeros_like(self.train.values)
        if selected.interactions:
            offset = _set_interactions(model, selected, self.train)
        gradient = float(self.gradient.square().mean().sqrt())
        return ResidualForTraining(ResidualOnInitScores(model), inputs, self.head, self.evaluator, gradient, offset)


def _residuals(coder: ColumnCoder, loss: Loss, unit: Tensor, labelled: LabelledRows) -> Residuals:
    """Codes of the columns, and residuals in units of the residual model, of rows with init scores."""
    rows, scores = split_scores(labelled.rows, len(unit))
    return residuals_of(coder.codes(rows), loss, scores, labelled.targets, unit)


def residuals_of(codes: Tensor, loss: Loss, scores: Tensor, targets: Targets, unit: Tensor) -> Residuals:
    """Codes, and the negative gradients of the loss at these scores, times ``unit``; weights with a mean of 1."""
    weight = None if targets.weight is None else targets.weight.to(scores) / targets.weight.mean()
    return Residuals(codes, negative_gradient(loss, scores, targets) * unit, weight)


def _weights(values: list[Tensor], unit: Tensor, loss: Loss, scored: LabelledRows) -> Tensor:
    """The weights of tables with these values of validation rows, ``[N, K]`` each; ``scored`` has their scores."""
    if not values:
        return unit.new_zeros(0)
    parts = torch.stack(values, dim=2) * unit.unsqueeze(1)
    return summand_weights(loss, unit, scored.rows, parts, scored.targets)


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


def _unit_of_residuals(head: Head, scores: Tensor, target: Tensor) -> Tensor:
    """Raw scores per unit of the residual model: 1, or for values the standard deviation of the residuals."""
    # The loss rejects targets that do not fit the scores.
    if head.task != "regression" or head.link != "identity" or len(scores) < 2 or target.numel() != scores.numel():
        return scores.new_ones(scores.shape[1])
    deviation = (target.reshape(scores.shape) - scores).std(dim=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def negative_gradient(loss: Loss, scores: Tensor, targets: Targets) -> Tensor:
    """Negative gradient of each row's loss by its scores, times its weight over the mean weight, ``[N, K]``.

    Computed in batches, because a custom loss may compare every row with every other.
    """
    parts, mean_weight = [], 1.0 if targets.weight is None else float(targets.weight.mean())
    for first in range(0, len(scores), LARGEST_BATCH):
        rows = slice(first, first + LARGEST_BATCH)
        part = scores[rows].detach().clone().requires_grad_()
        of_part = targets.take(rows)
        gradient = torch.autograd.grad(loss(part, *of_part), part)[0]
        parts.append(-gradient * (len(part) if of_part.weight is None else of_part.weight.sum() / mean_weight))
    return torch.cat(parts)
