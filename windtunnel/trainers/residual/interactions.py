"""The initial residual model: selection of its columns, and fit of its interactions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from windtunnel.encode import Batch, CategoryColumn
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.objectives.losses import Loss
from windtunnel.objectives.row_blocks import by_blocks
from windtunnel.program.head import Head
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.recipe import LARGEST_BATCH
from windtunnel.trainers.residual.binning import bin_edges
from windtunnel.trainers.residual.init_scores import InputColumns, concat, in_slices, select_columns, split_scores
from windtunnel.trainers.residual.mean_residuals import Interaction, Residuals, fit_in_sequence, interaction_weights
from windtunnel.trainers.residual.screening import select_interactions
from windtunnel.trainers.residual.significance import compare_losses
from windtunnel.trainers.residual.training import InitialResidual, ResidualOnScores, residual_head
from windtunnel.trainers.residual.validation_rows import MAX_ROWS, Items


def fit_interactions(
    net: TranslatedPipeline, train: Items, halves: list[Items], loss: Loss, rank: int, generator: torch.Generator
) -> InitialResidual | None:
    """Select the columns of a residual model and fit its interactions; None where no column is significant.

    Parameters
    ----------
    net : TranslatedPipeline
    train : Items
        Training rows with init scores, none of weight 0.
    halves : pair of Items
        Validation rows with init scores: the first half selects columns and weighs interactions, the second tests them.
    loss : callable
    rank : int
        Width of the factors.
    generator : torch.Generator
    """
    head = residual_head(net.head)
    first, second = halves
    outputs = train[0].numbers.shape[1] - len(net.encoder.numbers)
    rows, scores = split_scores(train[0], outputs)
    edges = bin_edges(rows.numbers)
    sizes = [int(torch.isfinite(row).sum()) + 2 for row in edges]
    sizes += [len(category.vocabulary) for category in net.encoder.categories]
    unit = _unit(head, scores, train[1])
    coder = ResidualModel.zero(edges, sizes, unit, rank=0, generator=generator)

    def residuals(rows: Batch, target: Tensor, weight: Tensor | None = None) -> Residuals:
        rows, scores = split_scores(rows, outputs)
        return Residuals(in_slices(coder.codes, concat(rows)), _negative_gradient(loss, scores, target, weight) * unit)

    count = len(edges)
    columns = [*range(count), *(count + position for position in _one_per_raw_column(net.encoder.categories))]
    of_train, of_valid = residuals(*train), residuals(*first)
    gradient = of_train.values.square().mean(dim=0).sqrt().clamp_min(torch.finfo(unit.dtype).tiny)
    of_train, of_valid = (Residuals(each.codes, each.values / gradient) for each in (of_train, of_valid))
    selected = select_interactions(of_train.sample(MAX_ROWS, generator), of_valid, sizes, columns)
    if not selected.columns:
        return None
    inputs = InputColumns(
        [column for column in selected.columns if column < count],
        [column - count for column in selected.columns if column >= count],
    )
    size = [sizes[column] for column in selected.columns]
    initial = InitialResidual(
        ResidualOnScores(
            ResidualModel.zero(edges[inputs.numbers], size, unit, rank=rank, generator=generator),
            head,
            float(gradient.square().mean().sqrt()),
        ),
        inputs,
        loss,
        torch.zeros_like(scores),
        (select_columns(second[0], inputs, outputs), *second[1:]),
    )
    place = {column: position for position, column in enumerate(selected.columns)}
    interactions = [replace(each, columns=tuple(place[at] for at in each.columns)) for each in selected.interactions]
    if not interactions:
        return initial
    of_train = Residuals(of_train.codes[:, selected.columns], of_train.values)
    return _add_interactions(initial, interactions, of_train, (initial.select_columns(first[0]), *first[1:]))


def _add_interactions(
    initial: InitialResidual, interactions: list[Interaction], train: Residuals, half: Items
) -> InitialResidual:
    """Add the interactions where they decrease the loss of the test rows by more than its standard error.

    Their tables are fitted on the training rows, their weights on ``half`` of the validation rows.
    """
    unit, loss = initial.residual.unit, initial.loss
    tables = [fitted.table for fitted in fit_in_sequence(train, interactions)]

    def scores_and_parts(rows: Batch) -> tuple[Tensor, Tensor]:
        rows, scores = split_scores(rows, initial.outputs)
        codes = in_slices(initial.residual.codes, concat(rows))
        parts = [table[each.cells(codes)] for each, table in zip(interactions, tables, strict=True)]
        return scores, torch.stack(parts, dim=2) * unit.unsqueeze(1)

    scores, parts = scores_and_parts(half[0])
    scale = _loss_scale(by_blocks(loss), unit, scores, *half[1:])
    weights = interaction_weights(by_blocks(loss), scale, scores, parts, *half[1:])
    scores, parts = scores_and_parts(initial.test_rows[0])
    with torch.no_grad():
        test = compare_losses(loss, scores, scores + parts @ weights, *initial.test_rows[1:])
    if not test.significant:
        return replace(initial, interaction_test=test)
    initial.residual.set_interactions(
        [each.columns for each in interactions], [b * table for b, table in zip(weights, tables, strict=True)]
    )
    offset = torch.zeros_like(train.values)
    for b, fitted in zip(weights, fit_in_sequence(train, interactions), strict=True):
        offset += b * fitted.leave_one_out
    return replace(initial, offset=offset * unit, interaction_test=test)


def _one_per_raw_column(categories: list[CategoryColumn]) -> list[int]:
    """Of several ids of one raw column, the position of the one with the most categories."""
    largest: dict[int, int] = {}
    for position, category in enumerate(categories):
        other = largest.setdefault(category.column, position)
        if len(category.vocabulary) > len(categories[other].vocabulary):
            largest[category.column] = position
    return sorted(largest.values())


def _unit(head: Head, scores: Tensor, target: Tensor) -> Tensor:
    """Raw scores per unit of the residual model: 1, or for values the standard deviation of the residuals."""
    # The loss rejects targets that do not fit the scores.
    if head.task != "regression" or head.link != "identity" or len(scores) < 2 or target.numel() != scores.numel():
        return scores.new_ones(scores.shape[1])
    deviation = (target.reshape(scores.shape) - scores).std(dim=0)
    return torch.where(deviation > 0, deviation, torch.ones_like(deviation))


def _loss_scale(loss: Loss, unit: Tensor, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> float:
    """1 for losses of log-odds; where scores are values, the loss itself."""
    if bool((unit == 1).all()):
        return 1.0
    return max(float(loss(scores, target, weight)), torch.finfo(scores.dtype).tiny)


def _negative_gradient(loss: Loss, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Negative gradient of the loss of each row by its scores, ``[N, K]``.

    Computed in batches, because a custom loss may compare every row with every other.
    """
    parts = []
    for first in range(0, len(scores), LARGEST_BATCH):
        rows = slice(first, first + LARGEST_BATCH)
        part = scores[rows].detach().clone().requires_grad_()
        value = loss(part, target[rows], None if weight is None else weight[rows])
        parts.append(-torch.autograd.grad(value, part)[0] * len(part))
    return torch.cat(parts)
