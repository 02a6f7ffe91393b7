"""Kernels of Gaussian processes: how alike two rows are. They compose, and a composition is rebuilt from its description, a JSON value."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.modules.pairwise import distances, squared_distances

KERNELS: dict[str, type["Kernel"]] = {}


class Kernel(nn.Module):
    """Likeness of rows ``[B, width]`` and points ``[P, width]``, ``[B, P]``; ``diagonal`` is that of rows with themselves.

    A subclass takes its parts (other kernels) first, then numbers that can be learned, which it keeps as parameters of
    the names in ``LEARNED``, then facts of the names in ``FACTS``.
    """

    PARTS: tuple[str, ...] = ()
    LEARNED: tuple[str, ...] = ()
    FACTS: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KERNELS[cls.__name__] = cls

    def __init__(self, *parts: "Kernel", **values: Any) -> None:
        super().__init__()
        for name, part in zip(self.PARTS, parts, strict=True):
            setattr(self, name, part)
        for name in self.LEARNED:
            setattr(self, name, nn.Parameter(torch.as_tensor(values[name], dtype=torch.float64).detach().clone()))
        for name in self.FACTS:
            setattr(self, name, values[name])

    def describe(self) -> dict[str, Any]:
        """Give the JSON value that, with the tensors, rebuilds this kernel."""
        return {
            "kernel": type(self).__name__,
            "facts": {name: getattr(self, name) for name in self.FACTS},
            "parts": [getattr(self, name).describe() for name in self.PARTS],
        }


def kernel_from(description: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str) -> Kernel:
    """Rebuild a kernel from its description and the tensors whose names begin with ``prefix``."""
    cls = KERNELS[description["kernel"]]
    described: Sequence[Any] = description["parts"]
    parts = [
        kernel_from(one, tensors, f"{prefix}{name}.") for name, one in zip(cls.PARTS, described, strict=True)
    ]
    learned = {name: tensors[f"{prefix}{name}"] for name in cls.LEARNED}
    kernel = cls(*parts, **learned, **description["facts"])
    for name in cls.LEARNED:  # in the type that they were saved in
        getattr(kernel, name).data = learned[name].detach().clone()
    return kernel


class DotProductKernel(Kernel):
    """k = x . y + sigma^2."""

    LEARNED = ("sigma",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        return x @ points.T + self.sigma.square()

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return x.square().sum(dim=1) + self.sigma.square()


class SquaredExponential(Kernel):
    """k = exp(-|(x - y) / length|^2 / 2), one length or one for each column."""

    LEARNED = ("length",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        return torch.exp(-0.5 * squared_distances(x / self.length, points / self.length))

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return torch.ones_like(x[:, 0])


class MaternKernel(Kernel):
    """With d = |(x - y) / length|, k of smoothness nu.

    nu = 0.5: exp(-d); 1.5: (1 + a) exp(-a), a = sqrt(3) d; 2.5: (1 + a + a^2 / 3) exp(-a), a = sqrt(5) d.
    """

    LEARNED = ("length",)
    FACTS = ("nu",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        distance = distances(x / self.length, points / self.length, 2.0)
        if self.nu == 0.5:
            return torch.exp(-distance)
        if self.nu == 1.5:
            scaled = distance * math.sqrt(3.0)
            return (1.0 + scaled) * torch.exp(-scaled)
        scaled = distance * math.sqrt(5.0)
        return (1.0 + scaled + scaled.square() / 3.0) * torch.exp(-scaled)

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return torch.ones_like(x[:, 0])


class RationalQuadraticKernel(Kernel):
    """k = (1 + |x - y|^2 / (2 alpha length^2))^-alpha."""

    LEARNED = ("length", "alpha")

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        return (1.0 + squared_distances(x, points) / (2.0 * self.alpha * self.length.square())) ** (-self.alpha)

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return torch.ones_like(x[:, 0])


class PeriodicKernel(Kernel):
    """k = exp(-2 (sin(pi |x - y| / period) / length)^2)."""

    LEARNED = ("length", "period")

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        wave = torch.sin(math.pi / self.period * distances(x, points, 2.0)) / self.length
        return torch.exp(-2.0 * wave.square())

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return torch.ones_like(x[:, 0])


class ConstantSimilarity(Kernel):
    """k = value."""

    LEARNED = ("value",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        return self.value.expand(x.shape[0], points.shape[0])

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return self.value.expand(x.shape[0])


class Noise(Kernel):
    """k = 0 between a row and a point, and the noise level between a row and itself."""

    LEARNED = ("level",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        return (0.0 * self.level).expand(x.shape[0], points.shape[0])

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        return self.level.expand(x.shape[0])


class SumOfKernels(Kernel):
    """k = k_1 + k_2."""

    PARTS = ("first", "second")

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        total: Tensor = self.first(x, points) + self.second(x, points)
        return total

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        total: Tensor = self.first.diagonal(x) + self.second.diagonal(x)
        return total


class ProductOfKernels(Kernel):
    """k = k_1 k_2."""

    PARTS = ("first", "second")

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        product: Tensor = self.first(x, points) * self.second(x, points)
        return product

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        product: Tensor = self.first.diagonal(x) * self.second.diagonal(x)
        return product


class PowerOfKernel(Kernel):
    """k = k_1^exponent."""

    PARTS = ("first",)
    FACTS = ("exponent",)

    def forward(self, x: Tensor, points: Tensor) -> Tensor:
        """[B, width], [P, width] -> [B, P]."""
        power: Tensor = self.first(x, points) ** self.exponent
        return power

    @torch.jit.export
    def diagonal(self, x: Tensor) -> Tensor:
        """[B, width] -> [B]."""
        power: Tensor = self.first.diagonal(x) ** self.exponent
        return power
