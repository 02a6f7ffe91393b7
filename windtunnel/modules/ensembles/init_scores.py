"""Scores of boosted trees with an init score from another estimator."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded


class ScoresWithInit(Module):
    """Raw scores of boosted trees plus the init score, which is an output of another estimator.

    s_k = g(p_k) + trees_k, where g is the identity of a value; log(p / (1 - p)) of a probability, or half of it; or
    log(p_k) less its mean over the classes. Probabilities are kept ``margin`` off 0 and 1.
    """

    CHOICES = {"link": ("identity", "logit", "half_logit", "log_share")}
    outputs: int = bounded(1, 2**16)  # K
    link: str  # "identity", "logit", "half_logit" or "log_share"
    margin: float = 2.220446049250313e-16  # the spacing of float64 numbers at 1

    def forward(self, x: Tensor) -> Tensor:
        """[B, K + K], outputs of that estimator then scores of the trees, or scores and more columns, -> [B, K]."""
        start, trees = x[:, : self.outputs], x[:, self.outputs : 2 * self.outputs]
        if self.link != "identity":
            start = start.clamp(self.margin, 1 - self.margin)
            if self.link == "log_share":
                start = start.log()
                start = start - start.mean(dim=1, keepdim=True)
            else:
                start = torch.logit(start)
                if self.link == "half_logit":
                    start = start * 0.5
        return start + trees


class RoundToFloat32(Module):
    """The nearest float32 number, in the type that is computed in."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return x.to(torch.float32).to(x.dtype)


class LastColumns(Module):
    """The columns from ``first`` on, in the shape of an output."""

    first: int = bounded(0, 2**20)  # the first column that is kept
    shape: list[int]  # what stands behind the rows

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, *shape]."""
        return x[:, self.first :].reshape([x.shape[0]] + self.shape)
