"""Features whose inner products approximate a kernel."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, bounded, learned


class CosineFeatures(Module):
    """The cosines of random projections, whose inner products approximate a kernel.

    y = scale * cos(x W^T + b)
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K], in radians
    scale: float  # of the result

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cos(functional.linear(x, self.weight, self.bias)) * self.scale


class LogCosineFeatures(Module):
    """The cosines of random projections of logarithms.

    y = scale * cos(log(x + shift) W^T + b)
    """

    weight: Tensor = learned()  # [K, width]
    bias: Tensor = learned()  # [K], in radians
    shift: float  # in the unit of the columns
    scale: float  # of the result

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with a value of -shift or less, or a missing or infinite one."""
        return (~torch.isfinite(x) | (x <= -self.shift)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]; NaN for rows with a value of -shift or less."""
        moved = x + self.shift
        rejected = (x <= -self.shift).any(dim=1, keepdim=True)
        y = functional.linear(torch.log(torch.where(rejected, torch.ones_like(moved), moved)), self.weight, self.bias)
        return torch.where(rejected, torch.full_like(y, float("nan")), torch.cos(y) * self.scale)


class Chi2Features(Module):
    """Features of each column whose inner products approximate 2 x p / (x + p).

    y_0 = sqrt(L x), then for j = 1 .. steps - 1
        sqrt(2 L x / cosh(pi j L)) cos(j L log x)    and    sqrt(2 L x / cosh(pi j L)) sin(j L log x)

    with L the interval; all are 0 where x is 0.
    """

    steps: int = bounded(1, 1000)  # how many frequencies, 0 included
    interval: float  # what lies between two of them

    def __post_init__(self) -> None:
        self.factors = [
            math.sqrt(2 * self.interval / math.cosh(math.pi * step * self.interval)) for step in range(self.steps)
        ]

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with negative, missing or infinite values."""
        return (~torch.isfinite(x) | (x < 0)).any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, (2 steps - 1) width], a block of all columns for each feature.

        NaN for rows with negative values.
        """
        inside = x > 0
        positive = torch.where(inside, x, torch.ones_like(x))
        root = torch.where(inside, torch.sqrt(positive), torch.zeros_like(x))
        angle = torch.log(positive) * self.interval
        features = [root * math.sqrt(self.interval)]
        for step in range(1, self.steps):
            features.append(root * self.factors[step] * torch.cos(angle * step))
            features.append(root * self.factors[step] * torch.sin(angle * step))
        y = torch.cat(features, dim=1)
        return torch.where((x < 0).any(dim=1, keepdim=True), torch.full_like(y, float("nan")), y)


class CountSketch(Module):
    """The convolution of several sketches of a row, whose inner products approximate a polynomial kernel.

    y = ifft(prod_d fft(x S_d + s_d))
    """

    sketches: Tensor  # [degree, width, K], each column hashed to one of K places with a sign
    shifts: Tensor  # [degree, K], the same for the constant of the polynomial

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # [degree, B, K]
        sketched = torch.matmul(x.unsqueeze(0), self.sketches) + self.shifts.unsqueeze(1)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                return self.convolved(sketched)
        spectra = torch.fft.rfft(sketched)
        product = spectra[0]
        for degree in range(1, self.shifts.shape[0]):
            product = product * spectra[degree]
        y: Tensor = torch.fft.irfft(product, n=self.shifts.shape[1])
        return y

    @torch.jit.unused
    def convolved(self, sketched: Tensor) -> Tensor:
        """[degree, B, K] -> [B, K], the same in real numbers alone, for formats that have no others."""
        places = torch.arange(self.shifts.shape[1], dtype=sketched.dtype, device=sketched.device)
        angle = torch.outer(places, places) * (2 * math.pi / self.shifts.shape[1])
        cosine, sine = torch.cos(angle), torch.sin(angle)
        real, imaginary = sketched @ cosine, -(sketched @ sine)
        product, turned = real[0], imaginary[0]
        for degree in range(1, self.shifts.shape[0]):
            product, turned = (
                product * real[degree] - turned * imaginary[degree],
                product * imaginary[degree] + turned * real[degree],
            )
        return (product @ cosine - turned @ sine) / self.shifts.shape[1]
