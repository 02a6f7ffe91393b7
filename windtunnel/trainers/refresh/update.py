"""Refresh: new rows move the values of a fitted translation, if that lowers the loss of validation rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.strategies import convert_trees, use_fastest_forms
from windtunnel.objectives.losses import loss_text
from windtunnel.program.records.fit_details import Calibration, TermSummary
from windtunnel.program.records.fit_record import HARMS_OLD_ROWS, HELD_OUT
from windtunnel.program.records.history import CandidateResult, History
from windtunnel.program.records.refresh_details import RefreshDetails, ScoreChange
from windtunnel.program.records.training_profile import TrainingProfile
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.progress import Phase
from windtunnel.trainers.calibration import calibration, reliability
from windtunnel.trainers.data.class_weights import named_weights
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.loop.evaluation import Evaluation, Evaluator, check_initial_value
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.refresh.movable_values import MovableValues, MovedValues
from windtunnel.trainers.refresh.refresh_data import RefreshData, read_input
from windtunnel.trainers.refresh.residual_columns import add_new_categories, extend_residual
from windtunnel.trainers.residual.installation import mark_initial_residual_weights
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.significance.significance_test import SignificanceTest, compare_losses
from windtunnel.trainers.significance.validation_halves import split_in_halves
from windtunnel.trainers.term_summaries import summarise_terms


@dataclass(frozen=True)
class Attempt:
    """Moved values, the rows that they are fitted on, and the numbers on the tested rows."""

    anchor: float
    replays: bool  # whether old rows are among these
    moved: MovedValues
    evaluation: Evaluation
    test: SignificanceTest  # against the translation as it was
    rejected: str  # why the attempt does not pass; empty where it does

    @property
    def name(self) -> str:
        """That of ``CandidateResult``."""
        return f"anchor {self.anchor:g}" + " with replay" * self.replays


@dataclass(frozen=True)
class RefreshScoring:
    """Losses and metrics of scores ``[N, K]`` of the rows of a refresh."""

    data: RefreshData
    evaluator: Evaluator

    def evaluate(self, scores: Tensor, rows: Tensor) -> Evaluation:
        """Loss and metric of some rows."""
        return self.evaluator.evaluate_scores(scores[rows], self._targets(rows))

    def compare(self, before: Tensor, after: Tensor, rows: Tensor) -> SignificanceTest:
        """Test on some rows whether the loss of ``after`` is lower."""
        shuffled = split_in_halves(self.data.take(rows), seed=0).shuffled
        return compare_losses(self.evaluator.loss, shuffled, before[rows], after[rows], self._targets(rows))

    def _targets(self, rows: Tensor) -> Targets:
        """The targets of some rows, with weights in float64, as the scores are."""
        return Targets(self.data.target[rows], self.data.weight[rows].double())

    def harms_old_rows(self, before: Tensor, after: Tensor) -> bool:
        """Whether the loss of the held-out old rows is significantly higher."""
        old = self.data.held_out_old
        return bool(old.any()) and self.compare(after, before, old).significant


def update(
    net: TranslatedPipeline,
    inputs: Mapping[str, Any],
    anchors: Sequence[float],
    *,
    keep_old: bool,
    loss: str | None,
    seed: int,
) -> History:
    """Try the anchors, install the best attempt that passes, and return the history; see ``refresh``.

    ``inputs`` are the arguments "new", "valid" and "replay".
    """
    began = time.perf_counter()
    parts = {name: read_input(net, name, data) for name, data in inputs.items()}
    validated_on = HELD_OUT if inputs["valid"] is None else "validation rows"
    trial = _trial(net, parts["new"])
    data = RefreshData.of(trial, parts["new"], parts["valid"], parts["replay"], seed)
    extend_residual(trial, data.rows.numbers[data.new], _unit_of_target(trial, data))
    values = MovableValues.of(trial, data.rows)
    scoring = RefreshScoring(data, Evaluator.of_scores(Recipe(loss=loss), trial.head, trial.program))
    metric = scoring.evaluator.metric
    before = scoring.evaluate(values.scores, data.tested)
    check_initial_value(metric, before.metric)
    attempts = _try_anchors(values, scoring, anchors, keep_old=keep_old)
    passed = [attempt for attempt in attempts if not attempt.rejected]
    kept = min(passed, key=lambda attempt: attempt.evaluation.loss) if passed else None
    after, scores = (before, values.scores) if kept is None else (kept.evaluation, kept.moved.scores)
    details = _details(net, trial, scoring, values.scores, scores, validated_on)

    terms, calibrated = list[TermSummary](), None
    if kept is not None:
        terms, calibrated = _summaries(trial, values, kept, scoring)
        held_out = inputs["valid"] is None
        moved = _fit_tested_rows_too(values, kept, scoring, keep_old=keep_old) if held_out else kept.moved
        values.install(trial, moved)
        _install(net, trial)
        if net.profile is None:
            net.keep_profile(TrainingProfile.of(trial.encoder, trial.hosts, data.take(data.all_new).rows))
    tested_rows = int(data.tested.sum())
    return History(
        epochs=[],
        metric=metric.name,
        greater_is_better=metric.greater_is_better,
        start=before.metric,
        start_loss=before.loss,
        best=after.metric,
        best_epoch=0,
        validated_on=validated_on,
        seconds=time.perf_counter() - began,
        candidates=_candidates(before, attempts, kept, tested_rows),
        validation_rows=tested_rows,
        loss_name=loss_text(loss, trial.head),
        class_weights=named_weights(trial, data.class_weights),
        terms=terms,
        calibration=calibrated,
        refresh=details,
    )


def _try_anchors(
    values: MovableValues, scoring: RefreshScoring, anchors: Sequence[float], *, keep_old: bool
) -> list[Attempt]:
    """An attempt with each anchor, without the old rows and, if there are some, with them."""
    replays = (False, True) if scoring.data.old.any() else (False,)
    attempts = []
    with Phase("trying anchors", total=len(anchors) * len(replays)) as phase:
        for anchor, replayed in product(anchors, replays):
            attempts.append(_attempt(values, scoring, anchor, replayed, keep_old=keep_old))
            phase.advance()
    return attempts


def _attempt(
    values: MovableValues, scoring: RefreshScoring, anchor: float, replays: bool, *, keep_old: bool
) -> Attempt:
    """Fit the values, and test them on the rows that are not fitted."""
    data = scoring.data
    moved = values.fit(data.target, _weights(data, replays=replays), scoring.evaluator.loss, anchor)
    test = scoring.compare(values.scores, moved.scores, data.tested)
    reason = "" if test.significant else "the loss is not lower by more than one standard error"
    if not reason and keep_old and scoring.harms_old_rows(values.scores, moved.scores):
        reason = HARMS_OLD_ROWS
    return Attempt(anchor, replays, moved, scoring.evaluate(moved.scores, data.tested), test, reason)


def _summaries(
    trial: TranslatedPipeline, values: MovableValues, kept: Attempt, scoring: RefreshScoring
) -> tuple[list[TermSummary], Calibration | None]:
    """The terms of a residual model, and the calibration before and after, with the values of an attempt."""
    data, tested = scoring.data, deepcopy(trial)
    values.install(tested, kept.moved)
    rows = data.take(data.tested)
    terms = summarise_terms(tested, data.take(data.new), rows, scoring.evaluator.loss)
    return terms, calibration(reliability(trial, rows), tested, rows)


def _fit_tested_rows_too(
    values: MovableValues, kept: Attempt, scoring: RefreshScoring, *, keep_old: bool
) -> MovedValues:
    """The values of an attempt, fitted on the held-out rows as well; as they are if that would harm old rows."""
    weights = _weights(scoring.data, replays=kept.replays, tested=True)
    last = values.fit(scoring.data.target, weights, scoring.evaluator.loss, kept.anchor)
    return kept.moved if keep_old and scoring.harms_old_rows(values.scores, last.scores) else last


def _candidates(
    before: Evaluation, attempts: Sequence[Attempt], kept: Attempt | None, tested_rows: int
) -> list[CandidateResult]:
    """The translation as it was, and the attempts, with the reason why each was kept or not."""
    worse = "" if kept is None else f"{kept.name} has the lower validation loss"
    unchanged = CandidateResult(
        name="translation",
        metric=before.metric,
        loss=before.loss,
        gain=None,
        standard_error=None,
        kept=kept is None,
        reason=worse or "no attempt passed",
        rows=tested_rows,
    )
    results = [
        CandidateResult(
            name=attempt.name,
            metric=attempt.evaluation.metric,
            loss=attempt.evaluation.loss,
            gain=attempt.test.gain,
            standard_error=attempt.test.standard_error,
            kept=attempt is kept,
            reason="lowest validation loss of those not rejected" if attempt is kept else attempt.rejected or worse,
            rows=tested_rows,
        )
        for attempt in attempts
    ]
    return [unchanged, *results]


def _trial(net: TranslatedPipeline, new: Any) -> TranslatedPipeline:
    """A copy on the CPU, with the exact trees where the soft ones are untrained, and ids for new categories."""
    trial = deepcopy(net).cpu()
    trial.drop_trained_exact_modules()
    base = trial.residual_base()
    assert base is not None  # ``refresh`` has checked it
    if trial.exact_modules or base.program is not trial.program:
        PipelineState(base.program, dict(trial.exact_modules), base.head).install(trial)
    add_new_categories(trial, new[0])
    convert_trees(trial.program, "tree_traversal")  # a few passes take less time than making the tables of other forms
    return trial


def _install(net: TranslatedPipeline, trial: TranslatedPipeline) -> None:
    program = trial.program.to(net.device())
    net.replace_program(program, origins=trial.origins, encoder=trial.encoder, head=trial.head)
    net.finish_softening()
    use_fastest_forms(net)
    mark_initial_residual_weights(net)
    net.eval()


def _unit_of_target(net: TranslatedPipeline, data: RefreshData) -> Tensor:
    """Raw score per unit of a new residual model: 1, or for values the standard deviation of the target."""
    outputs = net.run_in_slices(net.program, data.rows.take(slice(1))).shape[1]
    if net.head.task != "regression" or net.head.link != "identity" or data.target.ndim != 1:
        return torch.ones(outputs)
    new = data.target[data.new]
    return torch.full((outputs,), (float(new.std()) if len(new) > 1 else 0.0) or 1.0)


def _weights(data: RefreshData, *, replays: bool, tested: bool = False) -> Tensor:
    """Weights of the rows to fit, 0 for the others."""
    fitted = data.new | (data.old if replays else torch.zeros_like(data.old)) | (data.tested & tested)
    return data.weight * fitted


def _details(
    net: TranslatedPipeline,
    trial: TranslatedPipeline,
    scoring: RefreshScoring,
    before: Tensor,
    after: Tensor,
    validated_on: str,
) -> RefreshDetails:
    """Scores of new and old rows before and after, and the drift of the new rows."""
    data, changes = scoring.data, []
    for name, rows in ((validated_on, data.tested), ("held-out old rows", data.held_out_old)):
        if rows.any():
            old, new = (scoring.evaluate(scores, rows) for scores in (before, after))
            changes.append(ScoreChange(name, int(rows.sum()), old.loss, new.loss, old.metric, new.metric))
    profile = net.profile
    return RefreshDetails(
        new_rows=int(data.all_new.sum()),
        old_rows=int((data.old | data.held_out_old).sum()),
        changes=tuple(changes),
        profile_rows=None if profile is None else profile.rows,
        drift=() if profile is None else profile.drift(trial.encoder, trial.hosts, data.take(data.all_new).rows),
    )
