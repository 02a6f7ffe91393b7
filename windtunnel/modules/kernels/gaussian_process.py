"""Gaussian processes: the mean of a regression, the probabilities of a classification."""

import math
from functools import reduce
from operator import add
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module, derived, learned
from windtunnel.modules.kernels.kernels import kernel_from
from windtunnel.modules.slices import row_blocks

# The logistic function as a sum of error functions (Williams and Barber 1998), whose mean over a normal latent value
# has a closed form.
RATES = (0.41, 0.4, 0.37, 0.44, 0.39)
WEIGHTS = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)
HALF = 0.5 * reduce(add, WEIGHTS)
"""The probability where the latent mean is 0: the shares add up to little less than 1."""
ABOVE_HALF = math.nextafter(HALF, 1.0)


class GaussianProcessMean(Module):
    """Weighted sums of the likeness to training rows.

    y = k(x, points) weight^T + bias
    """

    __jit_ignored_attributes__: ClassVar[list[str]] = ["similarity"]
    points: Tensor = learned()  # [P, width], training rows
    weight: Tensor = learned()  # [K, P]
    bias: Tensor = learned()  # [K]
    numbers: Tensor = learned()  # [n], the numbers of the kernel
    similarity: dict[str, Any]  # the kernel; see ``windtunnel.modules.kernels.kernels.described``

    def __post_init__(self) -> None:
        self.kernel = kernel_from(self.similarity)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cat([self.block(part) for part in row_blocks(x, self.points.shape[0])])

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, K]."""
        return nn.functional.linear(self.kernel(x, self.points, self.numbers), self.weight, self.bias)


class GaussianProcessClasses(Module):
    """Probabilities of classes, each against the others, under Laplace's approximation; of two one process tells.

    With the mean m = k(x, points) residual and the variance v = k(x, x) - |inverse (root * k(points, x))|^2 of a
    latent value, p is the mean of the logistic function over a normal value of that mean and variance.

    In float64 whatever the type of the rows: the shares of the error functions cancel to the last four digits, and far
    from all points the classes differ in the last ones. Of two classes the sign of m decides, which a sum of five terms
    can lose: there p is above ``HALF`` if and only if m is above 0, by the last bit where it has to be.
    """

    FLOAT64: ClassVar[bool] = True
    __jit_ignored_attributes__: ClassVar[list[str]] = ["similarity"]
    points: Tensor = learned()  # [P, width], training rows
    residual: Tensor = learned()  # [processes, P]
    root: Tensor  # [processes, P], square roots of the weights of the approximation
    inverse: Tensor
    """[processes, P, P], of the lower triangular factor of 1 + root K root. As good as solving: that matrix is 1
    plus a positive one, so that the inverse has no large number. A tensor of the file, as its last bits depend on
    the number of threads that find it."""
    numbers: Tensor = learned()  # [processes, n], the numbers of the kernels
    similarity: dict[str, Any]  # the kernel of all processes; see ``windtunnel.modules.kernels.kernels.described``
    rates: Tensor = derived()
    shares: Tensor = derived()

    def __post_init__(self) -> None:
        # Laid out as a file has it: products with another layout end in other bits.
        self.inverse = self.inverse.contiguous()
        self.register_buffer("rates", torch.tensor(RATES, dtype=torch.float64), persistent=False)
        self.register_buffer("shares", torch.tensor(WEIGHTS, dtype=torch.float64), persistent=False)
        self.middle, self.above = HALF, ABOVE_HALF
        self.kernel = kernel_from(self.similarity)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> float64 [B, classes].

        For two classes [1 - p, p], else one p for each, which do not add up to 1.
        """
        rows = x.to(torch.float64)
        every = torch.cat([self.block(part) for part in row_blocks(rows, self.points.shape[0])])
        return torch.cat([1 - every, every], dim=1) if every.shape[1] == 1 else every

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, processes]."""
        probabilities: list[Tensor] = []
        for process in range(self.residual.shape[0]):
            similarity_values = self.kernel(x, self.points, self.numbers[process])
            solved = self.inverse[process] @ (similarity_values * self.root[process]).T
            variance = self.kernel.diagonal(x, self.numbers[process]) - solved.square().sum(dim=0)
            mean = similarity_values @ self.residual[process]
            probability_values = self.probability(mean, variance)
            if self.residual.shape[0] == 1:
                probability_values = torch.where(
                    mean > 0, probability_values.clamp(min=self.above), probability_values.clamp(max=self.middle)
                )
            probabilities.append(probability_values)
        return torch.stack(probabilities, dim=1)

    def probability(self, mean: Tensor, variance: Tensor) -> Tensor:
        """[rows], [rows] -> [rows], from the latent mean and variance."""
        mean, variance = mean.unsqueeze(1), variance.unsqueeze(1)
        precision = 1 / (2 * variance)
        bend = torch.sqrt(precision / (precision + self.rates.square()))
        wide = torch.sqrt(math.pi / precision) * torch.erf(self.rates * mean * bend)
        terms = self.shares * (wide / (2 * torch.sqrt(variance * 2 * math.pi)))
        # One after the other, as the source adds them.
        return ((((terms[:, 0] + terms[:, 1]) + terms[:, 2]) + terms[:, 3]) + terms[:, 4]) + self.middle
