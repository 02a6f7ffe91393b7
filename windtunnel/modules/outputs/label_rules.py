"""The index of a label, from scores."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded
from windtunnel.modules.outputs.links import LINKS


class LabelIndex(Module):
    """The index of the label: of one score whether it is above 0, of several the greatest, the first of equal ones."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> int64 [B]."""
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).to(torch.int64)
        return scores.argmax(dim=1)


class LabelIndexColumn(Module):
    """The index of the greatest score, the first of equal ones, as a column."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> int64 [B, 1]."""
        return scores.argmax(dim=1, keepdim=True)


class LastLabelIndex(Module):
    """The index of the greatest score, the last of equal ones."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> int64 [B]."""
        return scores.shape[1] - 1 - scores.flip(1).argmax(dim=1)


class LabelThreshold(Module):
    """The index of one of two labels, by a threshold on a score.

    y = positive where sign s >= bound, else 1 - positive
    """

    bound: Tensor  # a number, in the unit of the score
    positive: int = bounded(0, 1, default=1)  # the label, 0 or 1, of scores from the bound on
    sign: int = bounded(-1, 1, default=1)  # -1 where the score is a decision for the other label, else 1

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> int64 [B]."""
        reached = (scores[:, 0] * self.sign >= self.bound).to(torch.int64)
        return reached if self.positive == 1 else 1 - reached


class ProbabilityThreshold(Module):
    """The index of the predicted label of two: ``positive`` if its probability reaches a bound, else the other.

    y = positive where link(scale s)_positive >= bound, else 1 - positive
    """

    CHOICES = {"link": tuple(LINKS)}

    bound: Tensor  # a number, a probability
    link: str  # a name in ``LINKS``
    scale: float = 1.0  # what the scores are multiplied by first
    positive: int = bounded(0, 1, default=1)  # the index of the label, 0 or 1, whose probability is compared

    def __post_init__(self) -> None:
        self.function = LINKS[self.link]

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> int64 [B]."""
        probabilities = self.function(scores if self.scale == 1.0 else scores * self.scale)
        reached = (probabilities[:, self.positive] >= self.bound).to(torch.int64)
        return reached if self.positive == 1 else 1 - reached


class AboveThreshold(Module):
    """Whether scores are above a bound.

    y = 1 where s > bound, else 0
    """

    bound: Tensor  # a number, in the unit of the scores

    def forward(self, scores: Tensor) -> Tensor:
        """[B, E] -> int64 [B, E]; [B] of a single one."""
        above = (scores > self.bound).to(torch.int64)
        return above[:, 0] if above.shape[1] == 1 else above


class SecondAboveThreshold(Module):
    """The second label where its score is above a bound.

    y = 1[s_1 > bound]
    """

    FLOAT64: ClassVar[bool] = True
    bound: Tensor  # a number, in the unit of the score

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 2] -> int64 [B]."""
        return (scores[:, 1] > self.bound).to(torch.int64)
