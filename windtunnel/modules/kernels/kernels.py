"""Kernels of Gaussian processes: similarities of two rows. They compose, and are rebuilt from JSON values."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from windtunnel.modules.distances import distances, squared_distances


class Kernel(nn.Module):
    """Similarity of rows ``[B, width]`` and points ``[P, width]``, ``[B, P]``; ``diagonal``: of rows with themselves.

    Kernels hold no tensors: the numbers that can be learned stand in one vector, which belongs to the module that uses
    the kernel. ``at`` has the place and the count of each in this vector, by name. A subclass names the kernels that it
    is made of (``PARTS``), its numbers (``LEARNED``) and facts.
    """

    PARTS: tuple[str, ...] = ()
    LEARNED: tuple[str, ...] = ()
    FACTS: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __call__(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
            """[B, width], [P, width], numbers -> [B, P]."""

        def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
            """[B, width], numbers -> [B]."""

    def __init__(self, parts: "list[Kernel]", at: Mapping[str, list[int]], facts: Mapping[str, float]) -> None:
        super().__init__()
        for name, part in zip(self.PARTS, parts, strict=True):
            setattr(self, name, part)
        for name in self.LEARNED:
            start, count = at[name]
            setattr(self, f"{name}_from", int(start))
            setattr(self, f"{name}_to", int(start) + int(count))
        for name in self.FACTS:
            setattr(self, name, float(facts[name]))


def described(
    kernel: type[Kernel], numbers: list[float], *parts: Mapping[str, Any], facts: Any = None, **learned: Any
) -> dict[str, Any]:
    """The JSON value that a kernel is built from; what it learns is put at the end of ``numbers``."""
    at = {}
    for name, values in learned.items():
        at[name] = [len(numbers), len(values)]
        numbers += values
    return {"kernel": kernel.__name__, "at": at, "facts": facts or {}, "parts": list(parts)}


class DotProductKernel(Kernel):
    """k = x . y + sigma^2."""

    LEARNED = ("sigma",)

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return x @ points.T + numbers[self.sigma_from : self.sigma_to].square()

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return x.square().sum(dim=1) + numbers[self.sigma_from : self.sigma_to].square()


class StationaryKernel(Kernel):
    """A kernel of the difference of two rows; 1 between a row and itself."""

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return torch.ones_like(x[:, 0])


class SquaredExponential(StationaryKernel):
    """k = exp(-|(x - y) / length|^2 / 2), one length or one for each column."""

    LEARNED = ("length",)

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        length = numbers[self.length_from : self.length_to]
        return torch.exp(-0.5 * squared_distances(x / length, points / length))


class MaternKernel(StationaryKernel):
    """With d = |(x - y) / length|, k of smoothness nu.

    nu = 0.5: exp(-d); 1.5: (1 + a) exp(-a), a = sqrt(3) d; 2.5: (1 + a + a^2 / 3) exp(-a), a = sqrt(5) d.
    """

    LEARNED = ("length",)
    FACTS = ("nu",)

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        length = numbers[self.length_from : self.length_to]
        distance = distances(x / length, points / length, 2.0)
        if self.nu == 0.5:
            return torch.exp(-distance)
        if self.nu == 1.5:
            scaled = math.sqrt(3.0) * distance
            return (1.0 + scaled) * torch.exp(-scaled)
        scaled = math.sqrt(5.0) * distance
        return (1.0 + scaled + scaled.square() / 3.0) * torch.exp(-scaled)


class RationalQuadraticKernel(StationaryKernel):
    """k = (1 + |x - y|^2 / (2 alpha length^2))^-alpha."""

    LEARNED = ("length", "alpha")

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        length, alpha = numbers[self.length_from : self.length_to], numbers[self.alpha_from : self.alpha_to]
        return (1.0 + squared_distances(x, points) / (2.0 * alpha * length.square())) ** (-alpha)


class PeriodicKernel(StationaryKernel):
    """k = exp(-2 (sin(pi |x - y| / period) / length)^2)."""

    LEARNED = ("length", "period")

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        length, period = numbers[self.length_from : self.length_to], numbers[self.period_from : self.period_to]
        return torch.exp(-2.0 * (torch.sin(math.pi / period * distances(x, points, 2.0)) / length).square())


class ConstantSimilarity(Kernel):
    """k = value."""

    LEARNED = ("value",)

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return numbers[self.value_from : self.value_to].expand(x.shape[0], points.shape[0])

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return numbers[self.value_from : self.value_to].expand(x.shape[0])


class Noise(Kernel):
    """k = 0 between a row and a point, and the noise level between a row and itself."""

    LEARNED = ("level",)

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return (0.0 * numbers[self.level_from : self.level_to]).expand(x.shape[0], points.shape[0])

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return numbers[self.level_from : self.level_to].expand(x.shape[0])


class PairOfKernels(Kernel):
    """A kernel made of two."""

    PARTS = ("first", "second")
    if TYPE_CHECKING:  # not at run time, where TorchScript would read it
        first: Kernel
        second: Kernel


class SumOfKernels(PairOfKernels):
    """k = k_1 + k_2."""

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return self.first(x, points, numbers) + self.second(x, points, numbers)

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return self.first.diagonal(x, numbers) + self.second.diagonal(x, numbers)


class ProductOfKernels(PairOfKernels):
    """k = k_1 k_2."""

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return self.first(x, points, numbers) * self.second(x, points, numbers)

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return self.first.diagonal(x, numbers) * self.second.diagonal(x, numbers)


class PowerOfKernel(Kernel):
    """k = k_1^exponent."""

    PARTS = ("first",)
    FACTS = ("exponent",)
    if TYPE_CHECKING:  # not at run time, where TorchScript would read it
        first: Kernel
        exponent: float

    def forward(self, x: Tensor, points: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], [P, width], numbers -> [B, P]."""
        return self.first(x, points, numbers) ** self.exponent

    @torch.jit.export
    def diagonal(self, x: Tensor, numbers: Tensor) -> Tensor:
        """[B, width], numbers -> [B]."""
        return self.first.diagonal(x, numbers) ** self.exponent


KERNELS: dict[str, type[Kernel]] = {
    kernel.__name__: kernel
    for kernel in (
        DotProductKernel, SquaredExponential, MaternKernel, RationalQuadraticKernel, PeriodicKernel, ConstantSimilarity,
        Noise, SumOfKernels, ProductOfKernels, PowerOfKernel,
    )
}  # fmt: skip
"""The kernels by name. No subclass registers itself: while torch traces a graph, it makes some of the same names."""


def kernel_from(description: Mapping[str, Any]) -> Kernel:
    """Build a kernel from what ``described`` gave."""
    parts = [kernel_from(part) for part in description["parts"]]
    return KERNELS[description["kernel"]](parts, description["at"], description["facts"])
