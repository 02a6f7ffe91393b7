"""Training of the columns of a residual model, and of those models that test it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from windtunnel.modules.threads import one_thread
from windtunnel.objectives.losses import CustomLoss
from windtunnel.progress import Phase, show_progress
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.data_module import Loaders
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training import TrainingResult, train
from windtunnel.trainers.processes import world
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.preparation import ResidualSetup
from windtunnel.trainers.residual.residual_stages import ResidualForTraining

NO_COLUMN = "no column explains the residuals"
UNTESTED = "the translation holds the best epoch, which is not tested any more"


@dataclass(frozen=True)
class TrainedResidual:
    """The residual model with the columns of the best epoch, and the scores that test these."""

    residual: ResidualForTraining
    training: TrainingResult
    # ``[rows, K]``, scores of the columns for the validation rows. The model that was selected on one half scores the
    # other half. Without such models, ``residual`` scores both.
    scores: Tensor
    is_tested_by_halves: bool = True  # whether there are such models


@one_thread()
def train_residual(
    setup: ResidualSetup, recipe: Recipe, lightning: TrainerOptions, checkpoints: CheckpointOptions
) -> TrainedResidual:
    """Train the columns of the residual model, if it has any.

    If an epoch improved it, the two models that test it are trained too. They are left out after an error, for a
    caller's Trainer on several processes, and for a custom loss over a streamed loader, as its batches cannot be formed
    of half of the rows.

    The steps are small, so each operation has one thread.
    """
    residual = setup.initial.copy()
    if not residual.reads_columns:
        began = time.perf_counter()
        initial = setup.evaluator.evaluate(residual.init_scores, setup.valid)
        training = TrainingResult.without_training(setup.evaluator.metric, initial, began, NO_COLUMN)
        return TrainedResidual(residual, training, torch.zeros_like(setup.half_models.interaction_scores))
    training = train(residual.net_to_train, setup.training_loaders(), recipe, lightning, checkpoints)
    if training.error is None and not training.best_epoch:
        return TrainedResidual(residual, training, torch.zeros_like(setup.half_models.interaction_scores))
    several_processes = lightning.trainer is not None and world() > 1
    needs_own_batches = setup.train.rows is None and isinstance(setup.evaluator.loss, CustomLoss)
    if training.error is None and not several_processes and not needs_own_batches:
        if lightning.trainer is not None:
            epochs, clip = len(training.epochs) - 1, lightning.trainer.gradient_clip_val
            recipe = replace(recipe, epochs=epochs, max_steps=None, val_check_interval=None, clip=clip or None)
        scores, error = _other_half_scores(setup, recipe, lightning.hardware_only())
        if error is None:
            return TrainedResidual(residual, training, scores)
        training = replace(training, error=error)
    return TrainedResidual(residual, training, _column_scores(residual, setup, slice(None)), is_tested_by_halves=False)


def _other_half_scores(
    setup: ResidualSetup, recipe: Recipe, lightning: TrainerOptions
) -> tuple[Tensor, BaseException | None]:
    """Scores of the columns for the validation rows, for each half by the model of the other half.

    They are 0 where that half selected no column or no epoch, or has no defined metric, such as AUROC over one class.
    Rows of a stream are not read again: these models are trained on a sample of it. The error is one that ended a
    training, such as an interrupt.
    """
    halves, training = setup.half_models, setup.train
    if training.rows is None:
        sample = setup.train_rows
        batch_size = recipe.rows_per_step(len(sample))
        training = EncodedRows(sample.rows, *sample.targets, batch_size=batch_size, seed=recipe.seed)
    scores = torch.zeros_like(halves.interaction_scores)
    with Phase("training two residual models for the test", 2) as phase, show_progress(False):
        for initial, (half, tested) in zip(halves.residuals, halves.split.tested_on(), strict=True):
            if initial is not None:
                residual, of_half = initial.copy(), halves.rows.take(halves.split.subsets[half])
                valid = residual.validation_batches(EncodedRows(of_half.rows, *of_half.targets).in_order())
                loaders = Loaders(residual.training_batches(training), valid)
                result = _train_where_defined(residual, loaders, recipe, lightning)
                if result is not None and result.error is not None:
                    notes = getattr(result.error, "__notes__", [])[:-1]  # the last one is about this model
                    result.error.__notes__ = [*notes, UNTESTED]
                    return scores, result.error
                if result is not None and result.best_epoch:
                    scores[tested] = _column_scores(residual, setup, tested)
            phase.advance()
    return scores, None


def _train_where_defined(
    residual: ResidualForTraining, loaders: Loaders, recipe: Recipe, lightning: TrainerOptions
) -> TrainingResult | None:
    """Train a model; None if the metric or the loss of its validation rows is not finite."""
    evaluation = residual.evaluator.evaluate(residual.module, loaders.valid)
    if not all(map(math.isfinite, evaluation)):
        return None
    return train(residual.net_to_train, loaders, recipe, lightning, CheckpointOptions())


def _column_scores(residual: ResidualForTraining, setup: ResidualSetup, index: Tensor | slice) -> Tensor:
    """Scores of the columns of a model for some of the validation rows."""
    rows, _ = split_scores(setup.half_models.rows.rows, residual.outputs)
    return residual.installable.column_scores(rows.take(index))
