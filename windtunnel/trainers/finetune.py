"""Fine-tuning: rows, candidates, selection on the validation rows, installation, history."""

from __future__ import annotations

import time
import warnings
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch

from windtunnel.encode import Batch
from windtunnel.errors import BadInput
from windtunnel.objectives.losses import pick
from windtunnel.objectives.metrics import Metric
from windtunnel.objectives.row_blocks import by_blocks, of_any_rows
from windtunnel.program.records.fidelity import CalibrationRows
from windtunnel.program.records.fit_details import Calibration, Reliability, TermSummary
from windtunnel.program.records.history import Epoch, History
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.softening import soften
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
from windtunnel.trainers.loop.evaluation import evaluate
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
from windtunnel.trainers.residual.setup import prepare_residual
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

    Epoch 0 is the model before the first step; with a residual model it has the source's exact trees, tree-block
    weights and interactions. Installed is the candidate with the best metric on the validation rows: the translation
    as it is, the source pipeline with exact trees, the same with tree-block weights, or with the residual model of the
    best epoch (its interactions alone if no more of it is significant). Tree-block weights, interactions and the
    residual model must be significant on validation rows that had no part in fitting them.

    Parameters
    ----------
    net, train, valid
        See ``windtunnel.trainers.fit``.
    options, joint : Recipe
        That of ``fit``, and that of joint training where no residual model is trained.
    lightning : TrainerOptions
    checkpoints : CheckpointOptions
    """
    _check_source(net, options)
    began, pending = time.perf_counter(), net.pending
    # Rows. A loop of the caller may have trained soft steps, which have no exact form any more.
    net.drop_trained_exact_modules()
    data = DataModule(net, train, valid, options, lightning.processes)
    checkpoints.check_loader(data.train)
    most = MAX_ROWS if net.takes_residual_model() else DENSE_BYTES // dense_bytes(net, 1)
    validation = None if data.valid.rows is None else data.valid.collect(most)
    reliability_before = reliability(net, validation) if validation is not None else None

    # A new residual model replaces that of an earlier fit, so that the size stays the same.
    whole, origins, earlier = net.program, net.origins, None
    if options.residual and (pipeline := without_residual(net.program)) is not None:
        scored = _evaluate_translation(net, data, options, options.metric_for(net), began)
        earlier = Candidate("translation", scored.best_metric, scored.best_loss)
        net.replace_program(pipeline, origins=origins[: len(pipeline.steps)])

    # Candidates, evaluated on the same validation rows.
    try:
        trained = _train(Training(net, data, options, joint, lightning, checkpoints))
    except BaseException:
        net.replace_program(whole, origins=origins)
        raise
    metric, training, candidates = trained.metric, trained.training, trained.candidates
    if earlier is not None:
        base = candidates[0].pipeline or FrozenPipeline(net.program, {}, net.head)
        candidates = [earlier, replace(candidates[0], name="source pipeline", pipeline=base), *candidates[1:]]

    # Trees that this fit has made soft were exact before.
    sources = [each for each in candidates if pending and each.pipeline and each.pipeline.softening]
    before = sources[0] if sources else candidates[0]

    # Selection and installation.
    best = select(candidates, metric)
    if best is earlier:
        net.replace_program(whole, origins=origins)
    if best.pipeline is not None:
        install_pipeline(net, best.pipeline)
    if best.boosted is not None:
        install_boosted(net, best.boosted)
    if best.residual is not None:
        install_residual(net, best.residual, 1.0 if best.boosted is None else best.boosted.weight)
    if training.error is not None:
        raise training.error
    _record_profile(net, data)
    return History(
        epochs=training.epochs,
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=value_of(before),
        best=value_of(best),
        best_epoch=best.epoch or 0,
        validated_on=data.validated_on,
        seconds=time.perf_counter() - began,
        candidates=candidate_results(candidates, best, metric),
        validation_rows=getattr(data.valid, "size", None),
        epoch_rule=training.epoch_rule,
        stopped=training.stopped,
        terms=_terms(net, data, validation, options),
        calibration=_calibration(net, validation, reliability_before),
    )


@dataclass(frozen=True)
class Training:
    """What a training works with; ``options`` are those of a residual model, ``joint`` those of joint training."""

    net: TranslatedPipeline
    data: DataModule
    options: Recipe
    joint: Recipe
    lightning: TrainerOptions
    checkpoints: CheckpointOptions


@dataclass(frozen=True)
class Trained:
    """What a training run gives: its metric, its result, and candidates, the untrained one first."""

    metric: Metric
    training: TrainingResult
    candidates: list[Candidate]


def _train(run: Training) -> Trained:
    """Train a residual model, or the translation itself where there is none, or both."""
    began, net, options = time.perf_counter(), run.net, run.options
    if options.residual and options.joint:
        check_trainable(net)
        return _train_both(run)
    trained = _train_residual(run) if options.residual else None
    if trained is not None:
        return trained
    if options.residual and net.takes_residual_model() and not is_trainable(net):
        metric = options.metric_for(net)
        training = _evaluate_translation(net, run.data, options, metric, began)
        return Trained(metric, training, joint_candidates(training, None, metric))
    return _train_translation(run)


def _train_residual(run: Training) -> Trained | None:
    """Train a residual model; None where ``prepare_residual`` has none."""
    net, data, options = run.net, run.data, run.options
    setup = prepare_residual(net, data, options)
    if setup is None:
        return None
    model = deepcopy(setup.initial.model)
    metric = options.metric_for(model)
    training = train_module(model, setup.loaders, options, run.lightning, run.checkpoints)
    candidates = residual_candidates(net, data, setup, model, training, options)
    if training.error is None:
        candidates = add_boosted(net, setup, candidates, options, metric)
    return Trained(metric, training, candidates)


def _train_translation(run: Training) -> Trained:
    """Train the translation itself, its trees made soft."""
    net, data = run.net, run.data
    source = source_candidate(net, data, run.joint)
    soften(net, _calibration_rows(net, data, run.lightning.processes))
    prepare_joint_training(net)
    metric = run.joint.metric_for(net)
    with float32_sums(net.program):
        training = train_module(net, data, run.joint, run.lightning, run.checkpoints)
    return Trained(metric, training, joint_candidates(training, source, metric))


def _train_both(run: Training) -> Trained:
    """Train a residual model on top of the source pipeline, the translation, and a residual model on top of that.

    The epochs are those of the translation; callbacks, loggers and checkpoints see its training alone.
    """
    announce(f"fit: a residual model on top of the source pipeline, then {JOINT}, then a residual model on top of that")
    net, residual = run.net, run.options.of_residual()
    source = FrozenPipeline(net.program, dict(net.exact_modules), net.head, net.softening, net.calibration)
    of_residual = replace(
        run,
        data=_rows_of_residual(run.data, run.options, residual),
        options=residual,
        lightning=run.lightning.without_callbacks(),
        checkpoints=CheckpointOptions(),
    )
    on_source = _train_residual(of_residual)
    if on_source is None or on_source.training.error is not None:
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
        test = test_joint_training(net, source, run.data, residual)
        tuned = replace(tuned, test=test, rejected=test.reason)
    candidates.append(tuned)
    if not tuned.rejected and trained.training.error is None:
        on_tuned = _train_residual(of_residual)
        further = [] if on_tuned is None else on_tuned.candidates[1:]
        candidates += [replace(each, name=f"{JOINT} + {each.name}", epoch=tuned.epoch) for each in further]
    return replace(trained, candidates=candidates)


def _rows_of_residual(data: DataModule, options: Recipe, residual: Recipe) -> DataModule:
    """The rows in batches for a residual model, where ``fit`` chose those of joint training."""
    train = data.train
    if not isinstance(train, EncodedRows) or options.batch_size is not None:
        return data
    if train.batch_size != options.rows_per_step(train.size):
        return data
    rebatched = copy(data)
    rebatched.train = train.in_batches_of(residual.rows_per_step(train.size))
    return rebatched


def _calibration_rows(net: TranslatedPipeline, data: DataModule, processes: int) -> CalibrationRows | None:
    """Training rows to make trees soft with, where ``translate`` was given none; a loaded file has none.

    None for rows that are not in memory, and where several processes must get the same soft trees.
    """
    rows = _rows_in_memory(data)
    if not net.pending or net.calibration is not None or rows is None or processes > 1:
        return None
    if len(rows.ids) < FEWEST_CALIBRATION_ROWS:
        return None
    index = torch.linspace(0, len(rows.ids) - 1, min(len(rows.ids), MAX_CALIBRATION_ROWS), dtype=torch.float64).long()
    batch = Batch(rows.numbers[index], rows.ids[index])
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


def _evaluate_translation(
    net: TranslatedPipeline, data: DataModule, options: Recipe, metric: Metric, began: float
) -> TrainingResult:
    """Epoch 0 of a translation with nothing to train, on top of which no column is significant."""
    loss = pick(options.loss, net.head)
    # The scores are computed already; score() passes them through.
    scored = [((net.run_in_slices(net.program, rows),), *rest) for rows, *rest in data.valid]
    val_loss, value = (
        evaluate(each, loss, lambda scores: scores, scored) for each in (Metric("loss", net.head), metric)
    )
    epoch_0 = Epoch(0, None, val_loss, value, 0.0, time.perf_counter() - began)
    return TrainingResult([epoch_0], 0, value, stopped="before it began: no column is significant")
