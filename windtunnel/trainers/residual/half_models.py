"""The residual models that were selected on the halves of the validation rows, each tested on the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.loop.evaluation import Evaluator
from windtunnel.trainers.residual.init_scores import split_scores
from windtunnel.trainers.residual.residual_stages import ResidualForTraining
from windtunnel.trainers.significance.significance_test import SignificanceTest, compare_losses_and_metrics
from windtunnel.trainers.significance.validation_halves import ValidationHalves


@dataclass(frozen=True)
class HalfModels:
    """The validation rows, and for each half of them the residual model that was selected on it."""

    rows: LabelledRows  # validation rows with init scores
    split: ValidationHalves
    residuals: Sequence[ResidualForTraining | None]  # by ``split.halves``; None where no column was selected
    evaluator: Evaluator
    # ``[rows, K]``, scores of the interactions alone for the validation rows, by the model of the other half;
    # 0 without interactions
    interaction_scores: Tensor
    # Test of the loss with these scores, where any interactions were selected. Residual models have interactions only
    # if it is significant.
    interaction_test: SignificanceTest | None

    @property
    def pipeline_scores(self) -> Tensor:
        """Scores of the validation rows by the pipeline ``[rows, K]``."""
        return split_scores(self.rows.rows, self.interaction_scores.shape[1])[1]

    @property
    def scores_with_interactions(self) -> Tensor:
        """Scores by the pipeline, and by the interactions if residual models have any."""
        significant = self.interaction_test is not None and self.interaction_test.significant
        return self.pipeline_scores + self.interaction_scores if significant else self.pipeline_scores

    def compare(self, before: Tensor, after: Tensor) -> SignificanceTest:
        """Compare two scores of the validation rows ``[rows, K]``; see ``compare_losses_and_metrics``."""
        with torch.no_grad():
            return compare_losses_and_metrics(self.evaluator, self.split, before, after, self.rows.targets)
