"""Fine-tuning: rows, candidates, selection on the validation rows, installation, history."""

from __future__ import annotations

import time
import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.objectives.losses import pick
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import by_blocks, of_any_rows
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.fit_details import Calibration, Reliability, TermSummary
from windtunnel.program.records.history import Epoch, History
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.translate_options import FEWEST_CALIBRATION_ROWS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.progress import announce
from windtunnel.trainers.data.encoded_rows import EncodedRows, LazilyEncodedRows
from windtunnel.trainers.data.loader import DENSE_BYTES, dense_bytes
from windtunnel.trainers.fit_details import reliability, summarise_terms
from windtunnel.trainers.float32_sums import float32_sums
from windtunnel.trainers.joint_training import (
    JOINT,
    check_trainable,
    is_trainable,
    joint_candidates,
    prepare_joint_training,
    source_candidate,
    test_joint_training,
)
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.evaluation import evaluate_both
from windtunnel.trainers.loop.module import DataModule
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.loop.training import TrainingResult, train as train_module
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.boosted.candidates import add_boosted
from windtunnel.trainers.residual.candidates import Candidate, candidate_results, residual_candidates, select, value_of
from windtunnel.trainers.residual.installation import (
    FrozenPipeline,
    install_boosted,
    install_pipeline,
    install_residual,
    without_residual,
)
from windtunnel.trainers.residual.setup import prepare_residual, why_no_residual
from windtunnel.trainers.residual.validation_rows import MAX_ROWS

MAX_CALIBRATION_ROWS = 5000
"""The most training rows that trees are made soft with."""
RANKER_WARNING = (
    "the source ranks rows within their groups (queries), which fit does not know: it fits the relevance of each row "
    "by the squared error, after which ranks may be worse, whatever net.history says. To tune ranks give loss= a "
    "custom function, residual=False, and loaders for training and validation whose batches are whole groups. "
    "Compare NDCG before and after; loss='squared' is this fit without the warning."
)


def finetune(
    net: TranslatedPipeline,
    train: Any,
    valid: Any,
    options: Recipe,
    joint: Recipe,
    lightning: TrainerOptions,
    checkpoints: CheckpointOptions,
) -> History:
    """Fine-tune a translation in place, and leave it with the best model on the validation rows, in eval mode.

    ``options`` is the recipe of ``fit``, ``joint`` that of joint training where no residual model is trained. The
    candidates are the translation as it is, the source pipeline with exact trees, the same with tree-block weights, or
    with the residual model of the best epoch or its interactions alone, the boosted residual on top of the best of
    these, and the jointly trained translation. With a residual model, epoch 0 has exact trees, tree-block weights and
    interactions.
    """
    _check_source(net, options)
    began, pending = time.perf_counter(), net.softening_pending

    # Rows. A loop of the caller may have trained soft steps, which have no exact form any more.
    net.drop_trained_exact_modules()
    data = DataModule(net, train, valid, options, lightning.processes)
    checkpoints.check_loader(data.train)
    most = MAX_ROWS if net.takes_residual_model() else DENSE_BYTES // dense_bytes(net, 1)
    validation = None if data.valid.rows is None else data.valid.collect(most)
    reliability_before = reliability(net, validation) if validation is not None else None

    # Candidates, evaluated on the same validation rows.
    whole, origins = net.program, net.origins
    try:
        trained = _train_candidates(FitRun(net, data, options, joint, lightning, checkpoints))
    except BaseException:
        net.replace_program(whole, origins=origins)
        raise
    metric, result, candidates = trained.metric, trained.result, trained.candidates

    # Selection and installation.
    best = select(candidates, metric)
    if best is trained.earlier:
        net.replace_program(whole, origins=origins)
    _install(net, best)
    if result.error is not None:
        raise result.error
    _record_profile(net, data)
    return History(
        epochs=result.epochs,
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=value_of(_initial(candidates, pending)),
        best=value_of(best),
        best_epoch=best.epoch or 0,
        validated_on=data.validated_on,
        seconds=time.perf_counter() - began,
        candidates=candidate_results(candidates, best, metric),
        validation_rows=getattr(data.valid, "size", None),
        epoch_rule=result.epoch_rule,
        stopped=result.stopped,
        terms=_terms(net, data, validation, options),
        calibration=_calibration(net, validation, reliability_before),
    )


def _train_candidates(run: FitRun) -> RunResult:
    """The candidates of a fit; without the residual models of an earlier one, so that the size stays the same."""
    net = run.net
    earlier = _remove_residual(net, run.data, run.options) if run.options.residual else None
    trained = _train(run)
    if earlier is None:
        return trained
    source, *others = trained.candidates
    pipeline = source.pipeline or FrozenPipeline(net.program, {}, net.head)
    source = replace(source, name="source pipeline", pipeline=pipeline)
    return replace(trained, candidates=[earlier, source, *others], earlier=earlier)


def _remove_residual(net: TranslatedPipeline, data: DataModule, options: Recipe) -> Candidate | None:
    """Remove the residual models of an earlier fit; the translation with them, evaluated, or None without any."""
    pipeline = without_residual(net.program)
    if pipeline is None:
        return None
    loss, value = _evaluate_translation(net, data, options)
    net.replace_program(pipeline, origins=net.origins[: len(pipeline.steps)])
    return Candidate("translation", value, loss)


def _initial(candidates: list[Candidate], softened: bool) -> Candidate:
    """What ``History.start`` is of: the translation, or the exact source pipeline if this fit made its trees soft."""
    exact = [each for each in candidates if softened and each.pipeline and each.pipeline.softening]
    return exact[0] if exact else candidates[0]


def _install(net: TranslatedPipeline, best: Candidate) -> None:
    if best.pipeline is not None:
        install_pipeline(net, best.pipeline)
    if best.boosted is not None:
        install_boosted(net, best.boosted)
    if best.residual is not None:
        install_residual(net, best.residual, 1.0 if best.boosted is None else best.boosted.weight)


@dataclass(frozen=True)
class FitRun:
    """What a training works with; ``options`` are those of a residual model, ``joint`` those of joint training."""

    net: TranslatedPipeline
    data: DataModule
    options: Recipe
    joint: Recipe
    lightning: TrainerOptions
    checkpoints: CheckpointOptions


@dataclass(frozen=True)
class RunResult:
    """What a training run gives: its metric, its result, and candidates, the untrained one first.

    ``earlier`` is the candidate with the residual models of an earlier fit, if there are any.
    """

    metric: Metric
    result: TrainingResult
    candidates: list[Candidate]
    earlier: Candidate | None = None


def _train(run: FitRun) -> RunResult:
    """Train a residual model, or the translation itself where there is none, or both."""
    net, options = run.net, run.options
    if options.residual and options.joint:
        check_trainable(net)
        return _train_both(run)
    trained = _train_residual(run) if options.residual else None
    if trained is not None:
        return trained
    if options.residual and net.takes_residual_model() and not is_trainable(net):
        return _without_training(run)
    return _train_translation(run)


def _without_training(run: FitRun) -> RunResult:
    """The translation as it is, as epoch 0, where nothing can be trained."""
    began, metric = time.perf_counter(), run.options.metric_for(run.net)
    loss, value = _evaluate_translation(run.net, run.data, run.options)
    epoch_0 = Epoch(0, None, loss, value, 0.0, time.perf_counter() - began)
    result = TrainingResult([epoch_0], 0, value, stopped=f"before it began: {why_no_residual(run.data)}")
    return RunResult(metric, result, joint_candidates(result, None, metric))


def _train_residual(run: FitRun) -> RunResult | None:
    """Train a residual model; None where ``prepare_residual`` has none."""
    net, data, options = run.net, run.data, run.options
    setup = prepare_residual(net, data, options)
    if setup is None:
        return None
    model = deepcopy(setup.initial.model)
    metric = options.metric_for(model)
    result = train_module(model, setup.loaders, options, run.lightning, run.checkpoints)
    candidates = residual_candidates(net, data, setup, model, result, options)
    if result.error is None:
        candidates = add_boosted(net, setup, candidates, options, metric)
    return RunResult(metric, result, candidates)


def _train_translation(run: FitRun) -> RunResult:
    """Train the translation itself, its trees made soft."""
    net, data = run.net, run.data
    source = source_candidate(net, data, run.joint)
    prepare_joint_training(net, _calibration_rows(net, data, run.lightning.processes))
    metric = run.joint.metric_for(net)
    with float32_sums(net.program):
        result = train_module(net, data, run.joint, run.lightning, run.checkpoints)
    return RunResult(metric, result, joint_candidates(result, source, metric))


def _train_both(run: FitRun) -> RunResult:
    """Train a residual model on top of the source pipeline, the translation, and a residual model on top of that.

    The epochs are those of the translation; callbacks, loggers and checkpoints see its training alone.
    """
    announce(f"fit: a residual model on top of the source pipeline, then {JOINT}, then a residual model on top of that")
    net, residual_recipe = run.net, run.options.residual_recipe()
    source = FrozenPipeline(net.program, dict(net.exact_modules), net.head, net.softening, net.calibration)
    residual_run = replace(
        run,
        data=_rows_of_residual(run.data, run.options, residual_recipe),
        options=residual_recipe,
        lightning=run.lightning.without_callbacks(),
        checkpoints=CheckpointOptions(),
    )
    on_source = _train_residual(residual_run)
    if on_source is None or on_source.result.error is not None:
        return on_source or _train_translation(run)
    untrained, *others = on_source.candidates
    candidates = others if source.modules else [replace(untrained, pipeline=source), *others]
    candidates = [replace(candidate, epoch=None) for candidate in candidates]

    net.replace_program(deepcopy(net.program))
    trained = _train_translation(run)
    tuned = trained.candidates[-1]
    if tuned.name != JOINT:
        return replace(trained, candidates=candidates)
    if not tuned.rejected:
        test = test_joint_training(net, source, run.data, residual_recipe)
        tuned = replace(tuned, test=test, rejected=test.reason)
    candidates.append(tuned)
    if not tuned.rejected and trained.result.error is None:
        on_tuned = _train_residual(residual_run)
        further = [] if on_tuned is None else on_tuned.candidates[1:]
        candidates += [replace(each, name=f"{JOINT} + {each.name}", epoch=tuned.epoch) for each in further]
    return replace(trained, candidates=candidates)


def _rows_of_residual(data: DataModule, options: Recipe, residual_recipe: Recipe) -> DataModule:
    """The rows in batches for a residual model, where ``fit`` chose those of joint training."""
    train = data.train
    if not isinstance(train, EncodedRows) or options.batch_size is not None:
        return data
    if train.batch_size != options.rows_per_step(train.size):
        return data
    rebatched = copy(data)
    rebatched.train = replace(train, batch_size=residual_recipe.rows_per_step(train.size))
    return rebatched


def _calibration_rows(net: TranslatedPipeline, data: DataModule, processes: int) -> CalibrationRows | None:
    """Training rows to make trees soft with, where ``translate`` was given none; a loaded file has none.

    None for rows that are not in memory, and where several processes must get the same soft trees.
    """
    rows = _rows_in_memory(data)
    if not net.softening_pending or net.calibration is not None or rows is None or processes > 1:
        return None
    if len(rows.ids) < FEWEST_CALIBRATION_ROWS:
        return None
    index = torch.linspace(0, len(rows.ids) - 1, min(len(rows.ids), MAX_CALIBRATION_ROWS), dtype=torch.float64).long()
    batch = rows.take(index)
    return CalibrationRows.of(batch, net.head.methods, net, batch)


def _terms(net: TranslatedPipeline, data: DataModule, validation: Any, options: Recipe) -> list[TermSummary]:
    """The strongest terms of the residual models, where training and validation rows are in memory."""
    if validation is None or data.train.rows is None:
        return []
    loss = by_blocks(of_any_rows(pick(options.loss, net.head)))
    return summarise_terms(net, data.train.collect(MAX_ROWS), validation, loss)


def _record_profile(net: TranslatedPipeline, data: DataModule) -> None:
    """Keep the profile of training rows in memory."""
    if (rows := _rows_in_memory(data)) is not None:
        net.record(profile=TrainingProfile.of(net.encoder, net.hosts, rows))


def _rows_in_memory(data: DataModule) -> Batch | None:
    """Encoded training rows in memory; None if they are streamed, or encoded batch by batch."""
    return None if isinstance(data.train, LazilyEncodedRows) else data.train.rows


def _calibration(net: TranslatedPipeline, validation: Any, before: Reliability | None) -> Calibration | None:
    after = None if before is None else reliability(net, validation)
    return None if before is None or after is None else Calibration(before, after, len(validation[1]))


def _check_source(net: TranslatedPipeline, options: Recipe) -> None:
    """Warn of a ranker, and reject class probabilities without the labels of the classes."""
    if options.loss is not None:
        return
    if net.head.loss == "relevance":
        warnings.warn(RANKER_WARNING, UserWarning, stacklevel=4)
    if net.head.task == "regression" and net.head.loss == "softmax":
        source = next(origin.estimator for origin in reversed(net.origins) if origin.estimator)
        raise BadInput(
            f"the source is a {source} of several classes, which outputs probabilities without their labels. "
            "To fine-tune it, fit a classifier (LGBMClassifier, XGBClassifier) and translate that; or give a custom "
            "loss="
        )


def _evaluate_translation(net: TranslatedPipeline, data: DataModule, options: Recipe) -> tuple[float, float]:
    """The loss and the metric of the program as it is."""

    def scores(numbers: Tensor, ids: Tensor) -> Tensor:
        return net.run_in_slices(net.program, Batch(numbers, ids))

    return evaluate_both(options.metric_for(net), pick(options.loss, net.head), scores, data.valid)
