"""The models that ``fit`` evaluates on the validation rows, and the selection of one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.base import Module
from windtunnel.objectives.metrics import Metric
from windtunnel.program.records.history import CandidateResult
from windtunnel.program.records.number_text import estimate_text, value_text
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.program.translation_state import TranslationState
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import Evaluation, evaluate_program
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.boosted.fit_boosted import BoostedResidual
from windtunnel.trainers.residual.init_scores import InitScorer
from windtunnel.trainers.residual.installation import PipelineState
from windtunnel.trainers.residual.residual_stages import InstallableResidual
from windtunnel.trainers.residual.residual_training import NO_COLUMN, TrainedResidual
from windtunnel.trainers.residual.setup import ResidualSetup
from windtunnel.trainers.residual.significance import SignificanceTest
from windtunnel.trainers.residual.validation_halves import ValidationHalves

LEAST_PART = 0.5
"""The least part of the change of the scores that is installed of a candidate that is not rejected."""
FEWEST_ROWS = 100
"""With fewer validation rows a residual model is rejected unless it is significantly better."""


@dataclass(frozen=True)
class Candidate:
    """A model that ``fit`` may install."""

    name: str  # see ``CandidateResult``
    evaluation: Evaluation | None  # on all validation rows; None if it is rejected without one
    epoch: int | None = None  # the epoch whose model it is; None if no epoch has it
    # Test on the validation rows, against the pipeline that it extends, or the source pipeline for joint training.
    test: SignificanceTest | None = None
    rejected: str = ""  # why it cannot be selected; empty where it can
    # What to install before the residual models; None if it is rejected, as there is nothing to install.
    pipeline: PipelineState | TranslationState | None = None
    residual: InstallableResidual | None = None
    boosted: BoostedResidual | None = None
    installed_part: float = 1.0  # the factor with which the residual models' change of the scores is installed
    # ``[rows, K]``, scores of the validation rows that test it, for each half by a residual model of the other
    other_half_scores: Tensor | None = None
    installed: Evaluation | None = None  # with ``installed_part``, where it was about to be installed
    is_replaced: bool = False  # whether it is rejected because the boosted residual takes its place

    @property
    def metric(self) -> float:
        """The metric on all validation rows; NaN without an evaluation."""
        return math.nan if self.evaluation is None else self.evaluation.metric

    @property
    def shown(self) -> Evaluation:
        """What is reported: that of ``installed_part``, where it was about to be installed; NaN without any."""
        return self.installed or self.evaluation or Evaluation(math.nan, math.nan)

    def scores_of_part(self, pipeline: InitScorer, numbers: Tensor, ids: Tensor) -> Tensor:
        """Scores ``[N, K]`` of rows with init scores: these, and ``installed_part`` of what changes them."""
        rows, of_pipeline = pipeline.split(Batch(numbers, ids))
        scores = of_pipeline if self.residual is None else of_pipeline + self.residual.scores(rows)
        if self.boosted is not None:
            scores = self.boosted.scores(rows, scores)
        return of_pipeline + self.installed_part * (scores - of_pipeline)


def select(candidates: Sequence[Candidate], metric: Metric) -> Candidate:
    """The candidate with the best metric of those that are not rejected; of equal ones the first."""
    best, *others = candidates
    for candidate in others:
        if not candidate.rejected and metric.better(candidate.metric, best.metric):
            best = candidate
    return best


def candidate_results(candidates: Sequence[Candidate], best: Candidate, metric: Metric) -> list[CandidateResult]:
    """The numbers of all candidates, and the reason why each was kept or not."""
    return [
        CandidateResult(
            name=candidate.name,
            metric=_computed(candidate.shown.metric),
            loss=_computed(candidate.shown.loss),
            gain=None if candidate.test is None else candidate.test.gain,
            standard_error=None if candidate.test is None else candidate.test.standard_error,
            kept=candidate is best,
            reason=_reason(candidate, candidates, best, metric),
            rows=None if candidate.test is None else candidate.test.rows,
            epoch=candidate.epoch,
            installed_part=1.0 if candidate.installed is None else candidate.installed_part,
        )
        for candidate in candidates
    ]


def _computed(value: float) -> float | None:
    return None if math.isnan(value) else value


def _reason(candidate: Candidate, candidates: Sequence[Candidate], best: Candidate, metric: Metric) -> str:
    before = f" before shrinkage ({value_text(best.metric)})"
    if candidate is best:
        excluded_better = any(metric.better(each.metric, best.metric) for each in candidates)
        reason = f"best {metric.name}" + " of those not rejected or replaced" * excluded_better
        if any(_is_better_than_installed(each, best, metric) for each in candidates):
            reason += before
        if candidate.test is None or candidate.test.significant:
            return reason
        if candidate.boosted is not None:
            return f"{reason}, and not worse by more than 1 standard error"
        if candidate.installed_part < 1:
            return f"{reason}, and the loss gets lower on rows that had no part in fitting"
        return f"{reason}, whatever the test says"
    if candidate.rejected:
        return candidate.rejected
    if metric.better(best.metric, candidate.metric):
        reason = f"{best.name} has the better {metric.name}"
        return reason + before * _is_better_than_installed(candidate, best, metric)
    return f"no better {metric.name} than {best.name}, which is simpler"


def _is_better_than_installed(candidate: Candidate, best: Candidate, metric: Metric) -> bool:
    """Whether the metric of a candidate is better than that of the part of the best one that is installed."""
    if candidate is best or best.installed is None or candidate.rejected:
        return False
    return metric.better(candidate.metric, best.installed.metric)


def residual_candidates(
    net: TranslatedPipeline,
    data: DataModule,
    setup: ResidualSetup,
    trained: TrainedResidual,
    recipe: Recipe,
) -> list[Candidate]:
    """Candidates, simplest first: translation, source pipeline, tree-block weights, interactions, residual model."""
    of_model = [
        _interactions_candidate(setup),
        _residual_candidate(setup.validation_halves, trained, recipe),
    ]
    return _pipeline_candidates(net, data, setup, recipe) + [
        replace(candidate, pipeline=setup.pipeline, installed_part=part_to_install(candidate.test, recipe))
        for candidate in of_model
        if candidate is not None
    ]


def part_to_install(test: SignificanceTest | None, recipe: Recipe) -> float:
    """The factor of the change that is installed; 1 where the recipe overrules the test."""
    if test is None or recipe.select == "best_epoch":
        return 1.0
    return max(LEAST_PART, test.shrinkage) if test.significant else LEAST_PART


def _pipeline_candidates(
    net: TranslatedPipeline, data: DataModule, setup: ResidualSetup, recipe: Recipe
) -> list[Candidate]:
    """The candidates without a residual model."""
    source, weighted = PipelineState.source(net), setup.weighted
    base = setup.pipeline.program

    def candidate(name: str, modules: Mapping[int, Module]) -> Candidate:
        """The program with these modules in place of its own, evaluated."""
        if modules == setup.pipeline.modules:
            evaluation = setup.evaluator.evaluate(setup.initial.init_scores, setup.valid)
            # Epoch 0 has the interactions too, and the random factors of the columns.
            is_epoch_0 = not len(setup.initial.model.interactions) and not setup.initial.reads_columns
            epoch = 0 if is_epoch_0 else None
        else:
            scorer = InitScorer(net, base.with_modules(modules).eval())
            evaluation = setup.evaluator.evaluate(scorer.scores, data.valid)
            epoch = None
        if base is not net.program and setup.evaluator.metric.name != "loss":
            # Outputs of the source: clipping of probabilities alone lowers the log loss, and labels may differ.
            program = net.program.with_modules(modules).eval()
            evaluation = evaluation._replace(metric=evaluate_program(net, program, recipe, data.valid).metric)
        return Candidate(name, evaluation, epoch)

    candidates = [replace(candidate("translation", {}), pipeline=net.state())]
    if source.modules:
        candidates.append(replace(candidate("source pipeline", source.modules), pipeline=source))
    if weighted is not None:
        modules, test = {**source.modules, weighted.position: weighted.trees}, weighted.test
        trees = candidate("tree-block weights", modules)
        candidates.append(replace(trees, test=test, rejected=test.reason, pipeline=setup.pipeline))
    return candidates


def _interactions_candidate(setup: ResidualSetup) -> Candidate | None:
    """The interactions alone, where any were selected."""
    initial, halves = setup.initial, setup.validation_halves
    if halves.interaction_test is None:
        return None
    if not halves.interaction_test.significant:
        test, scores = halves.interaction_test, halves.pipeline_scores + halves.interaction_scores
        evaluation = setup.evaluator.evaluate_scores(scores, halves.rows.targets)
        return Candidate("interactions", evaluation, test=test, rejected=test.reason)
    test = halves.compare(halves.pipeline_scores, halves.scores_with_interactions)
    return Candidate(
        "interactions",
        setup.evaluator.evaluate(initial.init_scores, initial.validation_batches(setup.valid)),
        epoch=0,
        test=test,
        rejected=test.reason,
        residual=initial.interactions_alone,
        other_half_scores=halves.scores_with_interactions,
    )


def _residual_candidate(halves: ValidationHalves, trained: TrainedResidual, recipe: Recipe) -> Candidate:
    """The whole residual model, with the columns of the best epoch.

    It is rejected where the test rows show no gain, of the whole model or of its columns. A gain need not exceed its
    standard error: the models that are tested were selected on half of the rows, so that they are worse than this one.
    """
    training = trained.training
    if not training.best_epoch:
        change = "lowers the loss of epoch 0 and improves" if recipe.epoch_by_loss else "improves"
        reason = f"no epoch {change} {halves.evaluator.metric.name}" if trained.residual.reads_columns else NO_COLUMN
        return Candidate("residual model", None, rejected=reason)
    other_half_scores = halves.scores_with_interactions + trained.scores
    test = halves.compare(halves.pipeline_scores, other_half_scores)
    columns = halves.compare(halves.scores_with_interactions, other_half_scores)
    rejected = _why_rejected(test, trained)
    if not rejected and (reason := _why_rejected(columns, trained)):
        rejected = f"its columns alone: loss {estimate_text(-columns.gain, columns.standard_error)}; {reason}"
    return Candidate(
        "residual model",
        training.best,
        epoch=training.best_epoch,
        test=test,
        rejected="" if recipe.select == "best_epoch" else rejected,
        residual=trained.residual.installable,
        other_half_scores=other_half_scores,
    )


def _why_rejected(test: SignificanceTest, trained: TrainedResidual) -> str:
    """Why a residual model is rejected; empty where it is not."""
    may_gain = trained.is_tested_by_halves and test.gain > 0 and not test.worse and test.rows >= FEWEST_ROWS
    return "" if may_gain else test.reason
