"""One Gaussian per class: the log density of a row under each of them, plus what does not depend on the row."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned


class GaussianClasses(Module):
    """Log densities of a Gaussian per class: quadratic discriminant analysis, or naive Bayes for diagonal ones.

    y_k = offset_k - |(x - mean_k) W_k|^2 / 2
    """

    mean: Tensor = learned()  # [K, width], in the unit of the columns
    scale: Tensor = learned()
    """W: [K, width, width], with W_k W_k^T the inverse of the covariance; or the diagonals [K, width], one over the
    standard deviations."""
    offset: Tensor = learned()
    """[K], log prior less half the log determinant of the covariance (naive Bayes: of 2 pi times it)."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K], in nats."""
        # Class by class: all at once would need B x K x width numbers.
        squares: list[Tensor] = []
        for k in range(self.mean.shape[0]):
            difference = x - self.mean[k]
            scaled = difference @ self.scale[k] if self.scale.dim() == 3 else difference * self.scale[k]
            squares.append(scaled.square().sum(dim=1))
        return self.offset - 0.5 * torch.stack(squares, dim=1)
