"""Gaussian processes: the mean of a regression, the probabilities of a classification."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module
from windtunnel.modules.distances import blocks
from windtunnel.modules.kernels import Kernel, kernel_from


class GaussianProcessMean(Module):
    """Weighted sums of the likeness to training rows.

    y = k(x, points) weight^T + bias

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    points : Tensor
        ``[P, width]``, training rows; learned.
    weight : Tensor
        ``[K, P]``; learned.
    bias : Tensor
        ``[K]``; learned.
    similarity : dict
        Description of the kernel; see ``Kernel.describe``.
    **tensors : Tensor
        Those of the kernel, under ``kernel.`` and their names; learned.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("similarity",)

    def __init__(
        self, points: Tensor, weight: Tensor, bias: Tensor, similarity: Mapping[str, Any], **tensors: Tensor
    ) -> None:
        super().__init__()
        self.points = nn.Parameter(points.detach().clone())
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = nn.Parameter(bias.detach().clone())
        self.kernel = kernel_from(similarity, tensors, "kernel.")

    def facts(self) -> dict[str, Any]:
        """Give the JSON values that, with the tensors, rebuild this module."""
        return {"similarity": self.kernel.describe()}

    @classmethod
    def of(cls, kernel: Kernel, points: Tensor, weight: Tensor, bias: Tensor) -> "GaussianProcessMean":
        """The mean under a kernel."""
        tensors = {f"kernel.{name}": one for name, one in kernel.state_dict().items()}
        return cls(points, weight, bias, kernel.describe(), **tensors)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cat([self.block(part) for part in blocks(x, self.points.shape[0])])

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, K], of a block of rows."""
        return nn.functional.linear(self.kernel(x, self.points), self.weight, self.bias)


# The logistic function as a sum of error functions (Williams and Barber 1998), whose mean over a normal latent value
# has a closed form.
RATES = (0.41, 0.4, 0.37, 0.44, 0.39)
SHARES = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)


class LaplaceProcess(nn.Module):
    """The probability of one class against another under Laplace's approximation.

    mean m = k(x, points) residual; variance v = k(x, x) - |L^-1 (root * k(points, x))|^2; the probability is the mean
    of the logistic function over a normal value of that mean and variance.

    Shape
    -----
    float64 ``[B, width]`` -> ``[B, 1]``.
    """

    def __init__(self, kernel: Kernel, points: Tensor, residual: Tensor, root: Tensor, factor: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.points = nn.Parameter(points.detach().clone())
        self.residual = nn.Parameter(residual.detach().clone())
        self.register_buffer("root", root.detach().clone())
        self.register_buffer("factor", factor.detach().clone())
        self.register_buffer("rates", torch.tensor(RATES, dtype=torch.float64), persistent=False)
        self.register_buffer("shares", torch.tensor(SHARES, dtype=torch.float64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, 1]."""
        return torch.cat([self.block(part) for part in blocks(x, self.points.shape[0])])

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, 1]."""
        alike = self.kernel(x, self.points)
        mean = alike @ self.residual
        solved = torch.linalg.solve_triangular(self.factor, (alike * self.root).T, upper=False)
        variance = self.kernel.diagonal(x) - solved.square().sum(dim=0)
        precision = (1 / (2 * variance)).unsqueeze(1)
        bend = self.rates * torch.sqrt(precision / (precision + self.rates.square()))
        integral = (
            torch.sqrt(math.pi / precision)
            * torch.erf(mean.unsqueeze(1) * bend)
            / (2 * torch.sqrt(variance.unsqueeze(1) * (2 * math.pi)))
        )
        return (self.shares * integral).sum(dim=1, keepdim=True) + 0.5 * self.shares.sum()


class GaussianProcessClasses(Module):
    """Probabilities of classes, each against the others; of two classes one process tells.

    Shape
    -----
    ``[B, width]`` -> ``[B, classes]``: for two classes [1 - p, p], else one p per class, which do not add up to 1.

    Parameters
    ----------
    similarities : list of dict
        Descriptions of the kernel of each process; see ``Kernel.describe``.
    **tensors : Tensor
        Under ``processes.0.`` and so on: points, residual and what belongs to the kernel (learned), root and factor.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("similarities",)

    def __init__(self, similarities: Sequence[Mapping[str, Any]], **tensors: Tensor) -> None:
        super().__init__()
        processes = []
        for index, similarity in enumerate(similarities):
            prefix = f"processes.{index}."
            own = {name: tensors[prefix + name] for name in ("points", "residual", "root", "factor")}
            processes.append(LaplaceProcess(kernel_from(similarity, tensors, f"{prefix}kernel."), **own))
        self.processes = nn.ModuleList(processes)

    def facts(self) -> dict[str, Any]:
        """Give the JSON values that, with the tensors, rebuild this module."""
        return {"similarities": [process.kernel.describe() for process in self.processes]}  # type: ignore[union-attr, operator]

    @classmethod
    def of(cls, processes: Sequence[LaplaceProcess]) -> "GaussianProcessClasses":
        """The classes that these processes tell apart."""
        tensors = {f"processes.{at}.{name}": t for at, one in enumerate(processes) for name, t in one.state_dict().items()}
        return cls([process.kernel.describe() for process in processes], **tensors)

    def cast(self, dtype: torch.dtype) -> None:
        """Stay in float64: the shares of the error functions cancel to the last four digits."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, classes]."""
        found: list[Tensor] = []
        for process in self.processes:
            found.append(process(x.to(torch.float64)))
        every = torch.cat(found, dim=1).to(x.dtype)
        return torch.cat([1 - every, every], dim=1) if every.shape[1] == 1 else every


class Shares(Module):
    """Numbers over their sum, or as they are where it is 0.

    y_k = s_k / sum_j s_j

    Shape
    -----
    ``[B, K]`` -> ``[B, K]``.
    """

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> [B, K]."""
        total = scores.sum(dim=1, keepdim=True)
        return scores / torch.where(total == 0, torch.ones_like(total), total)


class SecondAbove(Module):
    """The second label where its score is above a bound.

    y = 1[s_1 > bound]

    Shape
    -----
    ``[B, 2]`` -> int64 ``[B]``.

    Parameters
    ----------
    bound : Tensor
        A number, in the unit of the score.
    """

    bound: Tensor

    def __init__(self, bound: Tensor) -> None:
        super().__init__()
        self.register_buffer("bound", bound.detach().clone())

    def forward(self, scores: Tensor) -> Tensor:
        """[B, 2] -> [B]."""
        return (scores[:, 1] > self.bound).to(torch.int64)
