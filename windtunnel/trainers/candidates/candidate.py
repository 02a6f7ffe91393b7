"""A model that ``fit`` may install, and the selection of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.objectives.metrics import Metric
from windtunnel.program.translation_state import TranslationState
from windtunnel.trainers.loop.evaluation import Evaluation
from windtunnel.trainers.residual.boosted.fit_boosted import BoostedResidual
from windtunnel.trainers.residual.init_scores import InitScorer
from windtunnel.trainers.residual.pipeline_state import PipelineState
from windtunnel.trainers.residual.residual_stages import InstallableResidual
from windtunnel.trainers.significance.significance_test import SignificanceTest


@dataclass(frozen=True)
class Candidate:
    """A model that ``fit`` may install."""

    name: str  # see ``CandidateResult``
    evaluation: Evaluation | None  # on all validation rows; None if it is rejected without one
    epoch: int | None = None  # the epoch whose model it is; None if no epoch has it
    # Test on the validation rows, against the pipeline that it extends, or the source pipeline for joint training.
    test: SignificanceTest | None = None
    tested_against: str = ""  # the candidate whose scores the test compares with; empty for the source pipeline
    details: str = ""  # what it consists of, in words for the history
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
    def changes_scores(self) -> bool:
        """Whether it changes the scores of the pipeline that it extends: only then there is something to test."""
        return self.test is not None

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
