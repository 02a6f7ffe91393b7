"""Refresh: new rows move the values of a fitted translation, if that lowers the loss of validation rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.strategies import choose
from windtunnel.objectives.losses import Loss, pick
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.fit_details import Calibration
from windtunnel.program.records.history import CandidateResult, History
from windtunnel.program.records.refresh_details import RefreshDetails, ScoreChange
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.fit_details import reliability, summarise_terms
from windtunnel.trainers.loop.evaluation import evaluate_both
from windtunnel.trainers.refresh.movable_values import MovableValues, MovedValues
from windtunnel.trainers.refresh.refresh_rows import RefreshData, read_input
from windtunnel.trainers.refresh.residual_columns import add_new_categories, extend_residual
from windtunnel.trainers.residual.installation import FrozenPipeline, install_pipeline, mark_initial_residual_weights
from windtunnel.trainers.residual.significance import SignificanceTest, compare_losses
from windtunnel.trainers.residual.validation_rows import split_rows


@dataclass(frozen=True)
class Attempt:
    """Moved values, the rows that they are fitted on, and the position among the candidates of the history."""

    number: int
    anchor: float
    replays: bool
    moved: MovedValues


@dataclass(frozen=True)
class Scoring:
    """Losses and metrics of scores ``[N, K]`` of the rows of a refresh."""

    data: RefreshData
    metric: Metric
    loss: Loss

    def evaluate(self, scores: Tensor, rows: Tensor) -> tuple[float, float]:
        """Loss and metric of some rows."""
        data = self.data
        part = (scores[rows],), data.target[rows], data.weight[rows].double()
        return evaluate_both(self.metric, self.loss, lambda scores: scores, [part])

    def compare(self, before: Tensor, after: Tensor, rows: Tensor) -> SignificanceTest:
        """Test on some rows whether the loss of ``after`` is lower."""
        batch, target, weight = self.data.take(rows)
        shuffled = split_rows((batch, target, weight), seed=0).shuffled
        return compare_losses(self.loss, shuffled, before[rows], after[rows], target, weight.double())

    def harms_old_rows(self, before: Tensor, after: Tensor) -> bool:
        """Whether the loss of the held-out old rows is significantly higher."""
        old = self.data.held_out_old
        return bool(old.any()) and self.compare(after, before, old).significant

    def result(
        self, name: str, scores: Tensor, test: SignificanceTest | None = None, reason: str = ""
    ) -> CandidateResult:
        """The numbers of a candidate on the tested rows."""
        loss, metric = self.evaluate(scores, self.data.tested)
        return CandidateResult(
            name=name,
            metric=metric,
            loss=loss,
            gain=None if test is None else test.gain,
            standard_error=None if test is None else test.standard_error,
            kept=False,
            reason=reason,
            rows=int(self.data.tested.sum()),
        )


def update(
    net: TranslatedPipeline,
    inputs: Mapping[str, Any],
    anchors: Sequence[float],
    *,
    keep_old: bool,
    seed: int,
) -> History:
    """Try the anchors, install the best attempt that passes, and return the history; see ``refresh``.

    ``inputs`` are the arguments "new", "valid" and "replay".
    """
    began = time.perf_counter()
    parts = {name: read_input(net, name, data) for name, data in inputs.items()}
    validated = inputs["valid"] is not None
    trial = _trial(net, parts["new"])
    data = RefreshData.of(trial, parts["new"], parts["valid"], parts["replay"], seed)
    extend_residual(trial, data.rows.numbers[data.new], _unit(trial, data))
    values = MovableValues.of(trial, data.rows)
    scoring = Scoring(data, Metric(None, trial.head), pick(None, trial.head))

    results, passed = _attempts(values, scoring, anchors, keep_old=keep_old)
    kept = min(passed, key=lambda attempt: results[attempt.number].loss or 0.0) if passed else None
    scores = values.scores if kept is None else kept.moved.scores
    history = replace(
        _history(results, 0 if kept is None else kept.number, scoring.metric, validated=validated),
        refresh=_details(net, trial, scoring, values.scores, scores),
    )
    if kept is not None:
        tested = deepcopy(trial)
        values.install(tested, kept.moved)
        history = _describe(history, trial, tested, scoring)
        moved = kept.moved
        if not validated:
            last = values.fit(data.target, _weights(data, replays=kept.replays, tested=True), scoring.loss, kept.anchor)
            moved = moved if keep_old and scoring.harms_old_rows(values.scores, last.scores) else last
        values.install(trial, moved)
        _install(net, trial)
        net.record(profile=net.profile or TrainingProfile.of(trial.encoder, trial.hosts, data.take(data.all_new)[0]))
    return replace(history, seconds=time.perf_counter() - began)


def _attempts(
    values: MovableValues, scoring: Scoring, anchors: Sequence[float], *, keep_old: bool
) -> tuple[list[CandidateResult], list[Attempt]]:
    """The results of the translation and of every attempt, and the attempts that pass."""
    data = scoring.data
    results, passed = [scoring.result("translation", values.scores)], list[Attempt]()
    for anchor in anchors:
        for replays in (False, True) if data.old.any() else (False,):
            moved = values.fit(data.target, _weights(data, replays=replays), scoring.loss, anchor)
            test = scoring.compare(values.scores, moved.scores, data.tested)
            reason = "" if test.significant else "the loss is not lower by more than one standard error"
            if not reason and keep_old and scoring.harms_old_rows(values.scores, moved.scores):
                reason = "the loss of old rows is higher by more than one standard error"
            name = f"anchor {anchor:g}" + " with replay" * replays
            results.append(scoring.result(name, moved.scores, test, reason))
            if not reason:
                passed.append(Attempt(len(results) - 1, anchor, replays, moved))
    return results, passed


def _trial(net: TranslatedPipeline, new: Any) -> TranslatedPipeline:
    """A copy on the CPU, with the exact trees where the soft ones are untrained, and ids for new categories."""
    trial = deepcopy(net).cpu()
    if trial.exact_modules:
        install_pipeline(trial, FrozenPipeline(trial.program, dict(trial.exact_modules), trial.head))
    add_new_categories(trial, new[0])
    choose(trial.program, "tree_traversal")  # a few passes take less time than making the tables of other forms
    return trial


def _install(net: TranslatedPipeline, trial: TranslatedPipeline) -> None:
    program = trial.program.to(net.device())
    net.replace_program(program, origins=trial.origins, encoder=trial.encoder, head=trial.head)
    net.set_exact_modules({})
    net.configure(strategy_choices=choose(net.program, "auto"))
    mark_initial_residual_weights(net)
    net.eval()


def _unit(net: TranslatedPipeline, data: RefreshData) -> Tensor:
    """Raw score per unit of a new residual model: 1, or for values the standard deviation of the target."""
    outputs = net.run_in_slices(net.program, data.rows.take(slice(1))).shape[1]
    if net.head.task != "regression" or net.head.link != "identity" or data.target.ndim != 1:
        return torch.ones(outputs)
    return torch.full((outputs,), float(data.target[data.new].std()) or 1.0)


def _weights(data: RefreshData, *, replays: bool, tested: bool = False) -> Tensor:
    """Weights of the rows to fit, 0 for the others."""
    fitted = data.new | (data.old if replays else torch.zeros_like(data.old)) | (data.tested & tested)
    return data.weight * fitted


def _history(results: list[CandidateResult], kept: int, metric: Metric, *, validated: bool) -> History:
    reason = "lowest validation loss" if kept else "no attempt passed"
    other = f"{results[kept].name} has the lower validation loss"
    return History(
        epochs=[],
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=float(results[0].metric or 0.0),
        best=float(results[kept].metric or 0.0),
        best_epoch=0,
        validated_on="validation rows" if validated else "held-out rows",
        seconds=0.0,
        candidates=[
            replace(result, kept=number == kept, reason=reason if number == kept else result.reason or other)
            for number, result in enumerate(results)
        ],
        validation_rows=results[0].rows,
    )


def _details(
    net: TranslatedPipeline, trial: TranslatedPipeline, scoring: Scoring, before: Tensor, after: Tensor
) -> RefreshDetails:
    """Scores of new and old rows before and after, and the drift of the new rows."""
    data, changes = scoring.data, []
    held_out = bool((data.all_new & data.tested).any())
    for name, rows in (
        ("held-out rows" if held_out else "validation rows", data.tested),
        ("held-out old rows", data.held_out_old),
    ):
        if rows.any():
            (old_loss, old), (new_loss, new) = (scoring.evaluate(scores, rows) for scores in (before, after))
            changes.append(ScoreChange(name, int(rows.sum()), old_loss, new_loss, old, new))
    profile = net.profile
    return RefreshDetails(
        new_rows=int(data.all_new.sum()),
        old_rows=int((data.old | data.held_out_old).sum()),
        changes=tuple(changes),
        profile_rows=None if profile is None else profile.rows,
        drift=() if profile is None else profile.drift(trial.encoder, trial.hosts, data.take(data.all_new)[0]),
    )


def _describe(history: History, before: TranslatedPipeline, after: TranslatedPipeline, scoring: Scoring) -> History:
    """The history with the terms of the residual model, and the calibration before and after."""
    data = scoring.data
    tested = data.take(data.tested)
    old, new = (reliability(net, tested) for net in (before, after))
    return replace(
        history,
        terms=summarise_terms(after, data.take(data.new), tested, scoring.loss),
        calibration=None if old is None or new is None else Calibration(old, new, len(tested[1])),
    )
