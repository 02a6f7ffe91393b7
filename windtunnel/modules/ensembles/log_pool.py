"""Probabilities as scores: their logarithms, and the mean of these over several classifiers."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded

LEAST_PROBABILITY = 1e-7
"""Probabilities are kept above it before their logarithm is taken."""


def log_probabilities(x: Tensor, least: float = LEAST_PROBABILITY) -> Tensor:
    """Take log max(p, least)."""
    return torch.log(torch.clamp(x, min=least))


class LogProbabilities(Module):
    """Probabilities as scores of a softmax: log max(p, 1e-7), so that a residual model can be added to them."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, K] -> [B, K]."""
        return log_probabilities(x)


class LogPool(Module):
    """The mean over members of the logarithm of each probability, as scores of a softmax.

    s_k = mean over m of log max(p_mk, 1e-7); of two classes the log-odds s_1 - s_0.
    """

    classes: int = bounded(1, 2**16)

    def forward(self, x: Tensor) -> Tensor:
        """[B, members * classes] -> [B, classes], or [B, 1] for two classes."""
        scores = log_probabilities(x).reshape(x.shape[0], x.shape[1] // self.classes, self.classes).mean(dim=1)
        return scores[:, 1:] - scores[:, :1] if self.classes == 2 else scores
