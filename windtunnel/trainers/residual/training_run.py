"""Training of the columns of a residual model, and of those models that test it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from windtunnel.progress import Phase, show_progress
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.module import Loaders
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training import TrainingResult, train
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.setup import ResidualSetup
from windtunnel.trainers.residual.training import ResidualFit
from windtunnel.trainers.residual.validation_rows import take


@dataclass(frozen=True)
class TrainedResidual:
    """The residual model with the columns of the best epoch, and the scores that test these."""

    fit: ResidualFit
    training: TrainingResult
    # ``[rows, K]``, scores of the columns for the validation rows. Those of a half are by a model whose columns and
    # epoch were selected on the other half, but for a training that an error ended: they are by ``fit`` itself.
    crossfitted: Tensor


def train_residual(
    setup: ResidualSetup, recipe: Recipe, lightning: TrainerOptions, checkpoints: CheckpointOptions
) -> TrainedResidual:
    """Train the residual model, and where that changed it the two models that test it."""
    fit = replace(setup.initial, model=deepcopy(setup.initial.model))
    training = train(fit.model, setup.loaders, recipe, lightning, checkpoints)
    scores = torch.zeros_like(setup.tests.interactions)
    if training.error is not None:
        scores = _column_scores(fit, setup, slice(None))
    elif training.best_epoch:
        scores = _crossfitted_scores(setup, recipe, lightning.without_callbacks())
    return TrainedResidual(fit, training, scores)


def _crossfitted_scores(setup: ResidualSetup, recipe: Recipe, lightning: TrainerOptions) -> Tensor:
    """Scores of the columns for the validation rows, for each half by the model of the other half.

    They are 0 where that half selected no column, or no epoch. Rows of a stream are not read again: these models are
    trained on a sample of it.
    """
    tests, mask, training = setup.tests, setup.mask, setup.train
    if training.rows is None:
        (sample, *rest), mask = setup.items[0], None
        training = EncodedRows(sample, *rest, batch_size=recipe.rows_per_step(len(rest[0])), seed=recipe.seed)
    scores = torch.zeros_like(tests.interactions)
    halves = tests.split.halves
    with Phase("training two residual models for the test", len(halves)) as phase, show_progress(False):
        for initial, selected_on, tested in zip(tests.fits, halves, reversed(halves), strict=True):
            if initial is not None:
                fit = replace(initial, model=deepcopy(initial.model))
                valid = EncodedRows(*take(tests.rows, selected_on), shuffle=False)
                loaders = Loaders(fit.training_batches(training, mask), fit.validation_batches(valid))
                result = train(fit.model, loaders, recipe, lightning, CheckpointOptions())
                if result.error is not None:
                    raise result.error
                if result.best_epoch:
                    scores[tested] = _column_scores(fit, setup, tested)
            phase.advance()
    return scores


def _column_scores(fit: ResidualFit, setup: ResidualSetup, index: Tensor | slice) -> Tensor:
    """Scores of the columns of a model for some of the validation rows."""
    rows, _ = split_scores(setup.tests.rows[0], fit.outputs)
    return fit.fitted.column_scores(rows.take(index))
