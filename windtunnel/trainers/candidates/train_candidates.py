"""Training of the candidates of a fit: a residual model, the translation itself, or both."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, replace

from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.objectives.metrics import Metric
from windtunnel.program.installed_residuals import without_residuals
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.fit_record import JOINT
from windtunnel.program.translate_options import FEWEST_CALIBRATION_ROWS, MAX_CALIBRATION_ROWS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.translation_state import TranslationState
from windtunnel.progress import announce
from windtunnel.trainers.candidates.boosted_candidate import add_boosted
from windtunnel.trainers.candidates.candidate import Candidate
from windtunnel.trainers.candidates.joint_training import (
    TrainedTranslation,
    check_trainable,
    compare_with_source,
    prepare_joint_training,
    source_candidate,
)
from windtunnel.trainers.candidates.residual_candidates import residual_candidates
from windtunnel.trainers.data.encoded_rows import EncodedRows
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.float32_sums import float32_sums
from windtunnel.trainers.interrupts import despite_interrupt
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import Evaluator, evaluate_program
from windtunnel.trainers.loop.net_to_train import NetToTrain
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training import TrainingResult, train as train_net
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.residual.preparation import NoResidual, prepare_residual, why_impossible
from windtunnel.trainers.residual.residual_training import train_residual

UNTESTABLE = "without validation rows no change can be tested"
UNBOOSTED = "the translation holds the best model without a boosted residual, whose training ended here"


@dataclass(frozen=True)
class FitRun:
    """A translation, its rows, and how to train it, by a recipe for each of the two trainings."""

    net: TranslatedPipeline
    data: DataModule
    recipe: Recipe
    joint_recipe: Recipe
    lightning: TrainerOptions
    checkpoints: CheckpointOptions


@dataclass(frozen=True)
class TrainedCandidates:
    """The candidates, the source or the translation first, with their metric and the epochs of the training."""

    metric: Metric
    training: TrainingResult
    candidates: list[Candidate]
    initial: Candidate  # the model before the fit; not among ``candidates`` if training has changed its soft trees


def train_candidates(run: FitRun) -> TrainedCandidates:
    """Train the candidates of a fit, and evaluate them on the same validation rows.

    They are the translation as it is; the source pipeline with exact trees; that pipeline with tree-block weights, with
    interactions, with the residual model of the best epoch, or with the boosted residual on top of the best of these;
    and the jointly trained translation. Epoch 0 of a residual model has exact trees, tree-block weights and
    interactions.

    The residual models of an earlier fit are a candidate too. New ones are trained without them, so that the size stays
    the same.
    """
    net = run.net
    earlier = _evaluate_and_remove_residuals(net, run.data, run.recipe) if run.recipe.residual else None
    if earlier is None:
        return _train_by_recipe(run)
    pipeline = net.state()
    net.replace_program(deepcopy(net.program))  # training would change modules that the earlier model has too
    trained = _train_by_recipe(run)
    source, *others = trained.candidates
    if isinstance(source.pipeline, TranslationState):
        source = replace(source, name="source pipeline", pipeline=pipeline)
    return replace(trained, candidates=[earlier, source, *others], initial=earlier)


def _evaluate_and_remove_residuals(net: TranslatedPipeline, data: DataModule, recipe: Recipe) -> Candidate | None:
    """Remove the residual models of an earlier fit; the translation with them, evaluated, or None without any."""
    pipeline = without_residuals(net.program)
    if pipeline is None:
        return None
    evaluation = evaluate_program(net, net.program, recipe, data.valid)
    earlier = Candidate("translation", evaluation, pipeline=net.state())
    net.replace_program(pipeline, origins=net.origins[: len(pipeline.steps)])
    return earlier


def _train_by_recipe(run: FitRun) -> TrainedCandidates:
    """Train what the recipe asks for: a residual model, the translation itself, or both.

    If no residual model is possible, the translation is trained and tested. Nothing is trained without rows that can
    test a change. Members of ``crossfit``, which have out-of-fold scores, are never trained: they have seen all rows
    that could test it.
    """
    net, recipe = run.net, run.recipe
    if not recipe.residual:
        return _train_untested_translation(run)
    if recipe.joint:
        check_trainable(net)
    if run.data.validates_on_training_rows:
        return _train_nothing(run, UNTESTABLE)
    if recipe.joint:
        return _train_both(run)
    trained = _train_residual(run)
    if not isinstance(trained, NoResidual):
        return trained
    has_out_of_fold_scores = run.data.train.scores is not None
    if trained.only_rows_prevent_it or has_out_of_fold_scores:
        return _train_nothing(run, trained.reason)
    return _train_tested_translation(run, why_no_residual=trained.reason)


def _train_nothing(run: FitRun, reason: str) -> TrainedCandidates:
    """The translation as it is, as epoch 0."""
    net, data, recipe = run.net, run.data, run.recipe
    began, evaluator = time.perf_counter(), Evaluator.of_translation(recipe, net)
    valid = data.valid
    if isinstance(valid, EncodedRows) and valid.scores is not None and valid.target is not None:
        evaluation = evaluator.evaluate_scores(valid.scores, Targets(valid.target, valid.weight))
    else:
        evaluation = evaluate_program(net, net.program, recipe, valid)
    metric = evaluator.metric
    result = TrainingResult.without_training(metric, evaluation, began, reason)
    translation = Candidate("translation", evaluation, epoch=0, pipeline=net.state())
    source = source_candidate(net, data, recipe) if net.exact_modules else None
    return TrainedCandidates(metric, result, [translation, *([] if source is None else [source])], translation)


def _train_residual(run: FitRun) -> TrainedCandidates | NoResidual:
    """Train a residual model, where there is one to train."""
    net, data, recipe = run.net, run.data, run.recipe
    setup = prepare_residual(net, data, recipe)
    if isinstance(setup, NoResidual):
        return setup
    trained = train_residual(setup, recipe, run.lightning, run.checkpoints)
    candidates, interrupt = despite_interrupt(lambda: residual_candidates(net, data, setup, trained, recipe))
    training = replace(trained.training, error=trained.training.error or interrupt)
    if training.error is None:
        try:
            candidates = add_boosted(setup, candidates, recipe)
        except BaseException as error:  # such as an interrupt: the best of the others is kept, then it is raised again
            error.add_note(UNBOOSTED)
            training = replace(training, error=error)
    return TrainedCandidates(setup.evaluator.metric, training, candidates, initial=candidates[0])


def _train_translation(run: FitRun) -> TrainedTranslation:
    """Train the translation itself, its trees made soft."""
    net, data = run.net, run.data.batched(run.joint_recipe)
    softened = net.softening_pending
    source = source_candidate(net, data, run.joint_recipe)
    prepare_joint_training(net, _calibration_rows(net, data, run.lightning.processes))
    trained = NetToTrain.of(net, run.joint_recipe)
    with float32_sums(net.program):
        result = train_net(trained, data, run.joint_recipe, run.lightning, run.checkpoints)
    return TrainedTranslation.of(net, trained.metric, result, source, softened=softened)


def _train_untested_translation(run: FitRun) -> TrainedCandidates:
    """Train the translation itself; it is kept if its metric is the best."""
    trained = _train_translation(run)
    return TrainedCandidates(trained.metric, trained.training, trained.candidates, trained.initial)


def _train_tested_translation(run: FitRun, why_no_residual: str = "") -> TrainedCandidates:
    """Train the translation itself; it is rejected unless it is significantly better than the source.

    Where it takes no residual model, the candidates say why.
    """
    net = run.net
    source, state = PipelineState.source(net), net.state()
    net.replace_program(deepcopy(net.program))
    trained = _train_translation(run)
    before = trained.source or replace(trained.untrained, pipeline=state)
    tuned = _with_test(run, source, trained)
    candidates = [before, *([] if tuned is None else [tuned])]
    if why_no_residual:
        candidates.append(Candidate("residual model", None, rejected=why_no_residual))
    return TrainedCandidates(trained.metric, trained.training, candidates, trained.initial)


def _with_test(run: FitRun, source: PipelineState, trained: TrainedTranslation) -> Candidate | None:
    """The trained translation, with its test against the source; None if no epoch was trained."""
    tuned = trained.tuned
    if tuned is None or tuned.rejected:
        return tuned
    test = compare_with_source(run.net, source, run.data, run.recipe)
    return replace(tuned, test=test, rejected="" if run.recipe.select == "best_epoch" else test.reason)


def _train_both(run: FitRun) -> TrainedCandidates:
    """Train a residual model on top of the source pipeline, the translation, and a residual model on top of that.

    The epochs are those of the translation; callbacks, loggers and checkpoints see its training alone.
    """
    net, residual_recipe = run.net, run.recipe.residual_recipe()
    if reason := why_impossible(net, residual_recipe):
        return _train_tested_translation(run, why_no_residual=reason)
    announce(f"fit: a residual model on top of the source pipeline, then {JOINT}, then a residual model on top of that")
    source = PipelineState.source(net)
    residual_run = replace(
        run,
        data=run.data.batched(residual_recipe) if run.recipe.batch_size is None else run.data,
        recipe=residual_recipe,
        lightning=run.lightning.hardware_only(),
        checkpoints=CheckpointOptions(),
    )
    on_source = _train_residual(residual_run)
    if isinstance(on_source, NoResidual):
        return _train_tested_translation(run)
    if on_source.training.error is not None:
        return on_source
    untrained, *candidates = on_source.candidates
    if not source.modules:  # else the first of the others is the source pipeline, with its exact trees
        candidates.insert(0, untrained)
    candidates = [replace(candidate, epoch=None) for candidate in candidates]

    net.replace_program(deepcopy(net.program))
    trained = _train_translation(run)
    training = trained.training
    try:
        if (tuned := _with_test(run, source, trained)) is not None:
            candidates.append(tuned)
        if tuned is not None and not tuned.rejected and training.error is None:
            on_tuned = _train_residual(residual_run)
            if not isinstance(on_tuned, NoResidual):
                candidates += [_on_top_of_joint(each, tuned.epoch) for each in on_tuned.candidates[1:]]
                training = replace(training, error=on_tuned.training.error)
    except BaseException as error:  # such as an interrupt: the best so far is kept, then it is raised again
        training = replace(training, error=error)
    return TrainedCandidates(trained.metric, training, candidates, untrained)


def _on_top_of_joint(candidate: Candidate, epoch: int | None) -> Candidate:
    """A candidate that extends the jointly trained translation of an epoch."""
    base = f"{JOINT} + {candidate.tested_against}" if candidate.tested_against else JOINT
    return replace(candidate, name=f"{JOINT} + {candidate.name}", tested_against=base, epoch=epoch)


def _calibration_rows(net: TranslatedPipeline, data: DataModule, processes: int) -> CalibrationRows | None:
    """Training rows to make trees soft with, where ``translate`` was given none; a loaded file has none.

    None for rows that are not in memory, and where several processes must get the same soft trees.
    """
    rows = data.encoded_rows
    if not net.softening_pending or net.calibration is not None or rows is None or processes > 1:
        return None
    if len(rows.ids) < FEWEST_CALIBRATION_ROWS:
        return None
    batch = rows.take(evenly_spaced(len(rows.ids), MAX_CALIBRATION_ROWS))
    return CalibrationRows.of(batch, net.head.methods, net, batch)
