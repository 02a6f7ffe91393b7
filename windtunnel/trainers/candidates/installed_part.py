"""The part of the change of a candidate that is installed, and the selection with that part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from windtunnel.objectives.metrics import Metric
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.trainers.candidates.candidate import Candidate, select
from windtunnel.trainers.loop.data_module import DataModule
from windtunnel.trainers.loop.evaluation import Evaluation, Evaluator
from windtunnel.trainers.recipe import Recipe
from windtunnel.trainers.residual.init_scores import InitScorer
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.significance.significance_test import SignificanceTest

LEAST_PART = 0.5
"""The least part of the change of the scores that is installed of a candidate that is not rejected."""


def part_to_install(test: SignificanceTest | None, recipe: Recipe) -> float:
    """The factor of the change that is installed; 1 where the recipe overrules the test."""
    if test is None or recipe.select == "best_epoch":
        return 1.0
    return max(LEAST_PART, test.shrinkage) if test.significant else LEAST_PART


def select_as_installed(
    net: TranslatedPipeline, candidates: Sequence[Candidate], metric: Metric, recipe: Recipe, data: DataModule
) -> tuple[Candidate, list[Candidate]]:
    """The candidate to install, and all candidates.

    If only a part of the change of the best one may be installed, it is evaluated with that part. If this is no better
    than a candidate that is installed whole, it is rejected, and what it replaced is a candidate again.
    """
    candidates = list(candidates)
    while (best := select(candidates, metric)).installed_part < 1:
        evaluation = _evaluate_part(net, best, recipe, data)
        shrunken = replace(best, installed=evaluation)
        whole = select([each for each in candidates if each.installed_part == 1], metric)
        if metric.better(evaluation.metric, whole.metric):
            return shrunken, [shrunken if each is best else each for each in candidates]
        part = f"{best.installed_part:.1%} of its change, as much as may be installed,"
        rejected = replace(shrunken, rejected=f"{part} gives no better {metric.name} than {whole.name}")
        candidates = [rejected if each is best else _as_before(each) for each in candidates]
    return best, candidates


def _evaluate_part(net: TranslatedPipeline, candidate: Candidate, recipe: Recipe, data: DataModule) -> Evaluation:
    """The loss and the metric of the part of a candidate that is installed."""
    pipeline = candidate.pipeline
    assert isinstance(pipeline, PipelineState)  # residual models extend one
    evaluator = Evaluator.of_scores(recipe, pipeline.head, pipeline.program)
    scorer = InitScorer(net, pipeline.exact_program())
    return evaluator.evaluate(partial(candidate.scores_of_part, scorer), scorer.add_to(data.valid))


def _as_before(candidate: Candidate) -> Candidate:
    """A candidate that no boosted residual replaces any more."""
    return replace(candidate, rejected="", is_replaced=False) if candidate.is_replaced else candidate
