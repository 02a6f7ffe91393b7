"""Densities: mixtures of normal distributions, Mahalanobis distances, sums of kernels."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned
from windtunnel.modules.distances import distances
from windtunnel.modules.slices import row_blocks


class NormalMixture(Module):
    """Log densities of normal distributions, with the log weight of each.

    y_k = log w_k + log det F_k - (D log(2 pi) + |(x - mean_k) F_k|^2) / 2, F_k the factor of the precision F_k F_k^T
    """

    means: Tensor = learned()  # [K, D]
    factors: Tensor = learned()
    """[K, D, D], or [1, D, D] where one is shared by all, upper triangular; where they are diagonal, the diagonals
    [K, D], or [K, 1] with one number each."""
    log_weights: Tensor = learned()  # [K]

    def forward(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, K]."""
        return torch.cat([self.block(part) for part in row_blocks(x, self.means.numel())])

    def block(self, x: Tensor) -> Tensor:
        """[rows, D] -> [rows, K]."""
        width = x.shape[1]
        difference = x.unsqueeze(1) - self.means  # [rows, K, D]
        if self.factors.dim() == 3:
            scaled = torch.matmul(difference.transpose(0, 1), self.factors).transpose(0, 1)
            volume = torch.diagonal(self.factors, 0, 1, 2).log().sum(dim=1)
        else:
            scaled = difference * self.factors
            volume = self.factors.log().expand(self.means.shape[0], width).sum(dim=1)
        return self.log_weights + volume - 0.5 * (width * math.log(2 * math.pi) + scaled.square().sum(dim=2))


class LogSum(Module):
    """y = log sum_k exp(s_k)."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> [B]."""
        return torch.logsumexp(scores, dim=1)


class MahalanobisScore(Module):
    """How near a row is to the centre of an ellipsoid.

    y = -d^2 - offset, d^2 = (x - centre) precision (x - centre)^T, summed in the order of the columns as the source
    does: a share of its training rows lies exactly on the border.
    """

    centre: Tensor = learned()  # [D]
    precision: Tensor = learned()  # [D, D]
    offset: Tensor  # a number, in the unit of y

    def forward(self, x: Tensor) -> Tensor:
        """[B, D] -> [B, 1]."""
        difference = x - self.centre
        turned = torch.zeros_like(difference)
        for column in range(difference.shape[1]):
            turned = turned + difference[:, column : column + 1] * self.precision[:, column]
        square = torch.zeros_like(difference[:, 0])
        for column in range(difference.shape[1]):
            square = square + difference[:, column] * turned[:, column]
        if not square.requires_grad:
            square = square.sqrt().square()  # rounded as the source rounds it
        return (-square - self.offset).unsqueeze(1)


class KernelSum(Module):
    """Log density as the mean of kernels around points.

    y = log(sum_i w_i K(|x - x_i|_p / h)) + constant

    ============  =================================
    gaussian      exp(-u^2 / 2)
    tophat        1 where u < 1
    epanechnikov  1 - u^2 where u < 1
    exponential   exp(-u)
    linear        1 - u where u < 1
    cosine        cos(pi u / 2) where u < 1
    ============  =================================
    """

    MAY_BE_NON_FINITE: ClassVar[bool] = True
    points: Tensor = learned()  # [P, width]
    log_weights: Tensor  # [P]
    constant: Tensor  # a number: of the volume of the kernel and the sum of the weights
    shape: str  # a name in the table
    bandwidth: float  # h, in the unit of the columns
    p: float  # the order of the norm

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values."""
        return (~torch.isfinite(x)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, 1]; -infinity where no point is near."""
        return torch.cat([self.block(part) for part in row_blocks(x, self.points.shape[0])])

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, 1]."""
        terms = self.log_kernel(distances(x, self.points, self.p) / self.bandwidth) + self.log_weights
        return torch.logsumexp(terms, dim=1, keepdim=True) + self.constant

    def log_kernel(self, u: Tensor) -> Tensor:
        """[rows, P] -> [rows, P]."""
        if self.shape == "gaussian":
            return -0.5 * u.square()
        if self.shape == "exponential":
            return -u
        inside = u < 1
        near = torch.where(inside, u, 0.0)
        if self.shape == "tophat":
            logs = 0.0 * near
        elif self.shape == "epanechnikov":
            logs = torch.log1p(-near.square())
        elif self.shape == "linear":
            logs = torch.log1p(-near)
        else:
            logs = torch.log(torch.cos(0.5 * math.pi * near))
        return torch.where(inside, logs, -float("inf"))


class NormalLikelihood(Module):
    """How likely a row is under a normal distribution, in nats.

    y = -1/2 (x - center)^T P (x - center) + offset
    """

    center: Tensor  # [width], in the unit of the column
    precision: Tensor  # [width, width], the inverse P of the covariance
    offset: Tensor  # a number, 1/2 (log det P - width log 2 pi)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        difference = x - self.center
        return self.offset - 0.5 * (difference * (difference @ self.precision)).sum(dim=1)
