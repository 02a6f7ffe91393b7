"""Outputs of classifiers and detectors other than links of their scores."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.outputs.links import LINKS


class LogSoftmax(Module):
    """Log probabilities of joint log likelihoods, with all their digits where a probability is near 0.

    y_k = s_k - log sum_j exp(s_j)
    """

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> float64 [B, K]."""
        return torch.log_softmax(scores.to(torch.float64), dim=1)


class FlooredLog(Module):
    """Log probabilities, where a probability of 0 counts as the smallest normal number.

    y = log(p), p = link(s), or 2.2e-308 where that is 0
    """

    link: str  # a name in ``LINKS``

    def __post_init__(self) -> None:
        self.function = LINKS[self.link]
        self.smallest = torch.finfo(torch.float64).tiny

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> float64 [B, classes]."""
        probability = self.function(scores.to(torch.float64))
        return torch.where(probability == 0, torch.full_like(probability, self.smallest), probability).log()


class ScoreDifference(Module):
    """The difference of two scores: the second less the first.

    y = s_1 - s_0
    """

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 2] -> [B]."""
        return scores[:, 1] - scores[:, 0]


class OffsetScore(Module):
    """The score of a row plus a constant.

    y = s + offset
    """

    offset: Tensor  # a number, in the unit of the score

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        return scores[:, 0] + self.offset


class Squeeze(Module):
    """The only column without its second dimension.

    y = x_0
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1] -> [B], any dtype."""
        return x[:, 0]


class IsolationScore(Module):
    """From the path length of a row, over the expected one, to its score: the lower, the more abnormal.

    y = -2^(-s) - offset

    Source
    ------
    sklearn.ensemble.IsolationForest: ``offset_``.
    """

    offset: Tensor  # a number: 0 for ``score_samples``, ``offset_`` for ``decision_function``

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        return -torch.exp2(-scores[:, 0]) - self.offset
