"""What the trees and the network of a boosted residual are fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from windtunnel.objectives.losses import Loss
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.significance.validation_halves import ValidationHalves


@dataclass(frozen=True)
class FitTargets:
    """The targets of training and validation rows, the loss, and the constant that all scores start from."""

    base_score: Tensor  # ``[K]``, the constant
    train: Targets
    valid: Targets
    split: ValidationHalves  # the subsets of the validation rows
    loss: Loss
    unit: Tensor  # ``[K]``, that of the scores
    seed: int

    def every(self, step: int) -> FitTargets:
        """Every ``step``-th training row alone."""
        return replace(self, train=self.train.take(slice(None, None, step)))

    def losses_on_subsets(self, scores: Tensor) -> list[float]:
        """The loss of scores of the validation rows ``[N, K]`` on each ``RowSubset``."""
        return [float(self.loss(scores[rows], *self.valid.take(rows))) for rows in self.split.subsets]
