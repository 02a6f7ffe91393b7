"""Discriminants of classes around their centroids."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.distances import distances


def discriminants(x: Tensor, centroids: Tensor, scale: Tensor, log_prior: Tensor, p: float) -> Tensor:
    """``[B, classes]``: -|(x - centroid) / scale|_p^2 + 2 log prior."""
    return 2 * log_prior - distances(x / scale, centroids / scale, p).square()


class CentroidDiscriminants(Module):
    """Discriminants of nearest shrunken centroids.

    y_k = -|(x - centroid_k) / scale|_p^2 + 2 log prior_k
    """

    centroids: Tensor = learned()  # [classes, width]
    log_prior: Tensor = learned()  # [classes]
    scale: Tensor  # [width], standard deviations within the classes, 1 where they are 0
    p: float = 2.0  # the order of the norm

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, classes]."""
        return discriminants(x, self.centroids, self.scale, self.log_prior, self.p)


class CentroidOutput(Module):
    """An output computed from the discriminants, for sources whose labels are those of the nearest centroid."""

    CHOICES = {"output": ("scores", "difference", "probability", "log probability")}
    # The tensors of ``CentroidDiscriminants``, facts here:
    centroids: Tensor
    log_prior: Tensor
    scale: Tensor
    output: str  # "scores", "difference" (the second less the first), "probability" (softmax) or "log probability"

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, classes], or [B] for the difference."""
        scores = discriminants(x, self.centroids, self.scale, self.log_prior, 2.0)
        if self.output == "difference":
            return scores[:, 1] - scores[:, 0]
        if self.output == "probability":
            return torch.softmax(scores, dim=1)
        return torch.log_softmax(scores, dim=1) if self.output == "log probability" else scores
