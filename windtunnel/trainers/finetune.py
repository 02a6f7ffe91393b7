"""Fine-tuning: rows, candidates, selection on the validation rows, installation, history."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from windtunnel.errors import BadInput, warn_caller
from windtunnel.objectives.losses import loss_text
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.records.fit_details import TermSummary
from windtunnel.program.records.history import History
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.calibration import calibration, reliability
from windtunnel.trainers.candidates.candidate import Candidate
from windtunnel.trainers.candidates.candidate_results import candidate_results
from windtunnel.trainers.candidates.installed_part import select_as_installed
from windtunnel.trainers.candidates.train_candidates import FitRun, train_candidates
from windtunnel.trainers.data.class_weights import named_weights
from windtunnel.trainers.data.collected_rows import MAX_RESIDUAL_ROWS, max_validation_rows
from windtunnel.trainers.data.encoded_rows import LazilyEncodedRows
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.interrupts import despite_interrupt
from windtunnel.trainers.loop.checkpoints import CheckpointOptions
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.loop.trainer_options import TrainerOptions
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.init_scores import InitScorer, append_scores
from windtunnel.trainers.residual.installation import install_boosted, install_residual
from windtunnel.trainers.term_summaries import summarise_terms

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
    recipe: Recipe,
    joint_recipe: Recipe,
    lightning: TrainerOptions,
    checkpoints: CheckpointOptions,
    began: float,
) -> None:
    """Fine-tune a translation in place, and leave it with the best model on the validation rows, in eval mode.

    Its history is recorded, also where an error or an interrupt ended the training and is raised again.

    ``recipe`` has the options of ``fit``, ``joint_recipe`` those with which the translation itself is trained, if it
    is. ``train_candidates`` says which models are candidates. ``began`` is the time from which the history counts its
    seconds, by ``time.perf_counter``: importing the libraries of training is part of them.
    """
    _check_source(net, recipe)

    # Rows. A custom training loop may have trained soft steps, which have no exact form any more.
    net.drop_trained_exact_modules()
    data = DataModule(net, train, valid, recipe, lightning.processes)
    checkpoints.check_loader(data.train)
    validation = _validation_rows(net, data)
    reliability_before = None if validation is None else reliability(net, validation, data.valid.scores)

    # Candidates, evaluated on the same validation rows.
    with net.unchanged_on_error():
        trained = train_candidates(FitRun(net, data, recipe, joint_recipe, lightning, checkpoints))
        metric, training = trained.metric, trained.training
        (best, candidates), interrupt = despite_interrupt(
            lambda: select_as_installed(net, trained.candidates, metric, recipe, data)
        )
        scores = None if validation is None else _changed_scores(net, best, data)
        _install(net, best)
    history = History(
        epochs=training.epochs,
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=trained.initial.shown.metric,
        start_loss=trained.initial.shown.loss,
        best=best.shown.metric,
        best_epoch=best.epoch or 0,
        validated_on=data.validated_on,
        seconds=time.perf_counter() - began,
        candidates=candidate_results(candidates, best, metric),
        validation_rows=getattr(data.valid, "size", None),
        shared_fraction=data.shared_fraction,
        loss_name=loss_text(recipe.loss, net.head),
        class_weights=named_weights(net, data.class_weights),
        epoch_rule=training.epoch_rule,
        stopped=training.stopped,
    )
    net.record(history=history)  # what is installed stays, whatever interrupts the rest

    # What the history says about it.
    if data.encoded_rows is not None:
        net.keep_profile(TrainingProfile.of(net.encoder, net.hosts, data.encoded_rows))
    terms = _terms(net, data, validation, scores, recipe)
    calibrated = calibration(reliability_before, net, validation, scores)
    net.record(history=replace(history, terms=terms, calibration=calibrated, seconds=time.perf_counter() - began))
    if (error := training.error or interrupt) is not None:
        raise error


def _validation_rows(net: TranslatedPipeline, data: DataModule) -> LabelledRows | None:
    """The validation rows to summarise a fit on; None if they are not in memory.

    None, too, for out-of-fold scores of rows that are encoded batch by batch, of which a part would be collected.
    """
    if data.valid.rows is None or (data.valid.scores is not None and isinstance(data.valid, LazilyEncodedRows)):
        return None
    return LabelledRows.of(data.valid.collect(max_validation_rows(net)))


def _changed_scores(net: TranslatedPipeline, candidate: Candidate, data: DataModule) -> Tensor | None:
    """Out-of-fold scores of the validation rows, changed as the candidate changes scores; None where there are none."""
    rows, scores = data.valid.rows, data.valid.scores
    if rows is None or scores is None or (candidate.residual is None and candidate.boosted is None):
        return scores
    scorer = InitScorer(net, net.program)
    with torch.no_grad():
        return candidate.scores_of_part(scorer, *append_scores(rows, scores))


def _install(net: TranslatedPipeline, best: Candidate) -> None:
    """Give the translation the pipeline of the selected candidate, and ``installed_part`` of its residual models."""
    assert best.pipeline is not None  # it is not rejected
    best.pipeline.install(net)
    if best.boosted is not None:
        install_boosted(net, best.boosted.shrunken(best.installed_part))
    if best.residual is not None:
        # What is installed is pipeline + installed_part (f - pipeline). With a boosted residual,
        # f = weight (pipeline + residual) + ...
        weight = 1.0 if best.boosted is None else best.boosted.weight
        install_residual(net, best.residual.shrunken(best.installed_part * weight))


def _terms(
    net: TranslatedPipeline, data: DataModule, validation: LabelledRows | None, scores: Tensor | None, recipe: Recipe
) -> list[TermSummary]:
    """The strongest terms of the residual models, where training and validation rows are in memory."""
    if validation is None or data.train.rows is None or not InstalledResiduals.of(net.program):
        return []
    loss = Evaluator.of_scores(recipe, net.head, net.program).averaged_loss
    return summarise_terms(net, LabelledRows.of(data.train.collect(MAX_RESIDUAL_ROWS)), validation, loss, scores)


def _check_source(net: TranslatedPipeline, recipe: Recipe) -> None:
    """Warn of a ranker, and reject class probabilities without the labels of the classes."""
    if recipe.loss is not None:
        return
    if net.head.loss == "relevance":
        warn_caller(RANKER_WARNING)
    if net.head.task == "regression" and net.head.loss == "softmax":
        source = next(origin.estimator for origin in reversed(net.origins) if origin.estimator)
        raise BadInput(
            f"the source is a {source} of several classes, which outputs probabilities without their labels. "
            "To fine-tune it, fit a classifier (LGBMClassifier, XGBClassifier) and translate that; or give a custom "
            "loss="
        )
