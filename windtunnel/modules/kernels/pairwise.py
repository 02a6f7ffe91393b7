"""Kernels between rows and a set of points, by the names and formulas that scikit-learn gives them."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, learned
from windtunnel.modules.distances import distances, squared_distances, unit_rows

KERNEL_NAMES = ("linear", "poly", "rbf", "laplacian", "sigmoid", "cosine", "chi2", "additive_chi2")


def negative_chi2(x: Tensor, points: Tensor) -> Tensor:
    """``[B, n]`` -sum_j (x_j - p_j)^2 / (x_j + p_j), terms of two zeros left out; NaN for rows with negative values."""
    total = torch.zeros([x.shape[0], points.shape[0]], dtype=x.dtype, device=x.device)
    # Column by column, so that no [B, n, width] is needed.
    for column in range(points.shape[1]):
        left, right = x[:, column].unsqueeze(1), points[:, column].unsqueeze(0)
        both = left + right
        # Where the sum is zero, both are, and so is the numerator.
        total = total - (left - right) ** 2 / torch.where(both == 0, torch.ones_like(both), both)
    rejected = (x < 0).any(dim=1, keepdim=True)
    return torch.where(rejected, torch.full_like(total, float("nan")), total)


def kernel_values(kernel: str, x: Tensor, points: Tensor, gamma: float, coef0: float, degree: float) -> Tensor:
    """``[B, n]`` values of a kernel named in ``KERNEL_NAMES``.

    linear <x, p>; poly (gamma <x, p> + coef0)^degree; sigmoid tanh(gamma <x, p> + coef0); rbf exp(-gamma |x - p|^2);
    laplacian exp(-gamma |x - p|_1); cosine <x, p> / (|x| |p|); additive_chi2 -sum (x - p)^2 / (x + p); chi2 exp(gamma
    additive_chi2).
    """
    if kernel == "rbf":
        return torch.exp(-gamma * squared_distances(x, points))
    if kernel == "laplacian":
        return torch.exp(-gamma * distances(x, points, 1.0))
    if kernel == "chi2":
        return torch.exp(gamma * negative_chi2(x, points))
    if kernel == "additive_chi2":
        return negative_chi2(x, points)
    if kernel == "cosine":
        return unit_rows(x) @ unit_rows(points).t()
    inner = x @ points.t()
    if kernel == "linear":
        return inner
    if kernel == "sigmoid":
        return torch.tanh(gamma * inner + coef0)
    return (gamma * inner + coef0) ** degree


class KernelMap(Module):
    """Weighted sums of the kernels between a row and a set of points.

    y = k(x, points) W^T + b, in float64 whatever the type of the rows: large weights of both signs cancel, and with
    them most digits of float32. Parameters stay float64 too.
    """

    FLOAT64: ClassVar[bool] = True
    CHOICES = {"kernel": KERNEL_NAMES}
    points: Tensor = learned()  # [n, width]
    weight: Tensor = learned()  # [K, n]
    bias: Tensor = learned()  # [K]
    kernel: str  # a name in ``KERNEL_NAMES``; its formula is at ``kernel_values``
    # gamma, coef0, degree: of the formula; those that it lacks have no effect
    gamma: float = 1.0
    coef0: float = 0.0
    degree: float = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K], in the type of the rows.

        NaN where the kernel is not defined (negative values under a chi2 kernel).
        """
        return self.block(x.double()).to(x.dtype)

    def block(self, x: Tensor) -> Tensor:
        """float64 [rows, width] -> float64 [rows, K]."""
        values = kernel_values(self.kernel, x, self.points.double(), self.gamma, self.coef0, self.degree)
        return functional.linear(values, self.weight.double(), self.bias.double())


class Chi2KernelMap(KernelMap):
    """A ``KernelMap`` with one of the chi2 kernels, which rows with negative values do not have: they become NaN."""

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)


class WhitenedKernel(KernelMap):
    """A ``KernelMap`` whose weights whiten points that may nearly depend on one another."""

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or with negative ones under a chi2 kernel."""
        rejected = ~torch.isfinite(x)
        if self.kernel in ("chi2", "additive_chi2"):
            rejected = rejected | (x < 0)
        return rejected.any(dim=1)


class KernelCenter(Module):
    """Subtract the mean of the features from a kernel between rows and the fitted rows.

    y_j = k_j - rows_j - mean(k) + total
    """

    rows: Tensor = learned()  # [n], the mean kernel of each fitted row with all of them
    total: Tensor = learned()  # [], the mean of all

    def forward(self, kernel: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        return kernel - self.rows - kernel.mean(dim=1, keepdim=True) + self.total
