"""The initial residual model: selection of its columns, and fit of its interactions."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals, fit_in_sequence, part_weights
from windtunnel.trainers.residual.screening import select_interactions
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


def fit_interactions(
    net: TranslatedPipeline,
    train: Items,
    valid: Items,
    split: SplitRows,
    loss: Loss,
    rank: int,
    generator: torch.Generator,
) -> ResidualFit | None:
    """Select the columns of a residual model and fit its interactions; None where no column is significant.

    Interactions are selected and weighed on all validation rows. For their test, each half of these rows has the scores
    of interactions that were selected and weighed on the other half.

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

    def fit(index: Tensor) -> FittedInteractions:
        selected = select_interactions(sample, of_valid.take(index), sizes, coder.columns)
        tables = [fitted.table for fitted in fit_in_sequence(of_train, selected.interactions)]
        codes, rest = of_valid.codes[index], [block[index] for block in valid[1:]]
        values = [table[each.cells(codes)] for each, table in zip(selected.interactions, tables, strict=True)]
        weights = _weights(values, unit, loss, init_scores[index], *rest)
        return FittedInteractions(selected.columns, selected.interactions, tables, weights)

    fitted = fit(split.shuffled.sort().values)
    if not fitted.columns:
        return None
    crossfitted = torch.zeros_like(init_scores)
    if fitted.interactions:
        for selected_on, tested in (split.halves, split.halves[::-1]):
            crossfitted[tested] = fit(selected_on).scores(of_valid.codes[tested]) * unit
    inputs = coder.inputs(fitted.columns)
    size = [sizes[column] for column in fitted.columns]
    model = ResidualModel.zero(coder.edges[inputs.numbers], size, unit, rank=rank, generator=generator)
    initial = ResidualFit(
        ResidualOnScores(model, head, gradient=float(gradient.square().mean().sqrt())),
        inputs,
        coder,
        loss,
        offset=torch.zeros_like(scores),
        test_rows=valid,
        split=split,
        crossfitted=crossfitted,
    )
    return _with_interactions(initial, fitted, of_train) if fitted.interactions else initial


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


def _with_interactions(initial: ResidualFit, fitted: FittedInteractions, train: Residuals) -> ResidualFit:
    """Add the interactions where they decrease the loss of the validation rows by more than its standard error."""
    test = initial.test_loss_of_interactions()
    initial = replace(initial, interaction_test=test)
    if not test.significant:
        return initial
    place = {column: position for position, column in enumerate(fitted.columns)}
    cells = [each.occurring_cells(train.codes) for each in fitted.interactions]
    initial.residual.set_interactions(
        [tuple(place[column] for column in each.columns) for each in fitted.interactions],
        [each.cell_count for each in fitted.interactions],
        cells,
        [b * table[index] for b, table, index in zip(fitted.weights, fitted.tables, cells, strict=True)],
    )
    offset = torch.zeros_like(train.values)
    for b, means in zip(fitted.weights, fit_in_sequence(train, fitted.interactions), strict=True):
        offset += b * means.leave_one_out
    return replace(initial, offset=offset * initial.residual.unit)


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
