"""Training of the translation itself: its checks, what comes out of it, the test of that."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Self

from windtunnel.errors import BadInput
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.fit_record import JOINT
from windtunnel.program.softening import rescale_probabilities, soften, trainable_when_soft
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.candidates.candidate import Candidate
from windtunnel.trainers.data.collected_rows import MAX_RESIDUAL_ROWS, max_validation_rows
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import Evaluation, Evaluator, evaluate_program
from windtunnel.trainers.loop.training import TrainingResult
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.significance.significance_test import (
    SignificanceTest,
    compare_losses,
    compare_losses_and_metrics,
)
from windtunnel.trainers.significance.validation_halves import split_in_halves

SOFT_TREES = "soft trees"
"""The name of the candidate that has the soft trees of this fit, before their training."""


@dataclass(frozen=True)
class TrainedTranslation:
    """The translation before and after its training, with the metric and the epochs."""

    metric: Metric
    training: TrainingResult
    untrained: Candidate  # epoch 0, its trees soft
    source: Candidate | None  # the source pipeline with exact trees; None where nothing is soft
    # The translation of the best epoch, rejected if this is epoch 0; None if no epoch was trained.
    tuned: Candidate | None
    softened: bool  # whether this fit made the trees soft

    @classmethod
    def of(
        cls,
        net: TranslatedPipeline,
        metric: Metric,
        training: TrainingResult,
        source: Candidate | None,
        *,
        softened: bool,
    ) -> Self:
        """The candidates of a training that has left the translation with the best epoch."""
        epoch_0, state, tuned = training.epochs[0], net.state(), None
        if training.best_epoch:
            tuned = Candidate(JOINT, training.best, training.best_epoch, pipeline=state)
        elif len(training.epochs) > 1:
            tuned = Candidate(JOINT, None, rejected=f"no epoch improves {metric.name}")
        name = SOFT_TREES if softened else "translation"
        untrained = Candidate(name, Evaluation(epoch_0.val_loss, epoch_0.metric), epoch=0, pipeline=state)
        return cls(metric, training, untrained, source, tuned, softened)

    @property
    def initial(self) -> Candidate:
        """The model before the fit."""
        return self.candidates[0]

    @property
    def candidates(self) -> list[Candidate]:
        """All of them, the model before the fit first."""
        before = (self.source, self.untrained) if self.softened else (self.untrained, self.source)
        return [each for each in (*before, self.tuned) if each is not None]


def _is_trainable(net: TranslatedPipeline) -> bool:
    """Whether a parameter takes gradients, or will once trees are soft."""
    if net.softening is not None and net.softening_pending:
        return trainable_when_soft(net.program, net.softening)
    return any(parameter.requires_grad for parameter in net.parameters())


def check_trainable(net: TranslatedPipeline) -> None:
    """Raise ``BadInput`` if joint training has nothing to train."""
    if _is_trainable(net):
        return
    if net.history is not None:
        raise BadInput(
            "nothing in this translation is trainable: an earlier fit replaced its steps by the exact, frozen steps of "
            "the source. Translate the source again, or load a file that was saved before that fit."
        )
    raise BadInput(
        "nothing in this translation is trainable: its steps are frozen or have no parameters; translate with "
        'level="L1" to "L4", or set requires_grad on the parameters to train'
    )


def prepare_joint_training(net: TranslatedPipeline, calibration: CalibrationRows | None) -> None:
    """Make exact trees soft, and forget the exact modules, which no longer match once soft steps are trained.

    Probabilities are divided by their sum from now on. Raises ``BadInput`` if nothing is trainable. By default the
    calibration rows are those that ``translate`` was given.
    """
    soften(net, calibration)
    check_trainable(net)
    net.finish_softening()
    rescale_probabilities(net)


def source_candidate(net: TranslatedPipeline, data: DataModule, recipe: Recipe) -> Candidate | None:
    """The source pipeline with exact trees, evaluated before training; None where nothing has to become soft.

    Soft trees may start a little below the exact ones, and training may not make up for that.
    """
    if not (net.softening or net.exact_modules) or data.validates_on_training_rows:
        return None
    source = PipelineState.source(net)
    program = deepcopy(source.exact_program())
    evaluation = evaluate_program(net, program, recipe, data.valid)
    return Candidate("source pipeline", evaluation, pipeline=replace(source, program=program))


def compare_with_source(
    net: TranslatedPipeline, source: PipelineState, data: DataModule, recipe: Recipe
) -> SignificanceTest:
    """Test whether the trained translation is better than the source pipeline on the validation rows.

    The metric is compared only where it follows from raw scores.
    """
    validation = LabelledRows.of(data.valid.collect(min(MAX_RESIDUAL_ROWS, max_validation_rows(net))))
    programs = source.exact_program(), net.program
    before, after = (net.run_in_slices(program, validation.rows) for program in programs)
    split = split_in_halves(validation, recipe.seed)
    evaluator = Evaluator.of_scores(recipe, net.head, net.program)
    if evaluator.metric.method is not None:
        return compare_losses(evaluator.loss, split.shuffled, before, after, validation.targets)
    return compare_losses_and_metrics(evaluator, split, before, after, validation.targets)
