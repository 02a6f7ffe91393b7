"""Sketches of polynomials."""

import math

import torch
from torch import Tensor

from windtunnel.modules.base import Module


class CountSketch(Module):
    """The convolution of several sketches of a row, whose inner products approximate a polynomial kernel.

    y = ifft(prod_d fft(x S_d + s_d))

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    sketches : Tensor
        ``[degree, width, K]``, each column hashed to one of K places with a sign; facts.
    shifts : Tensor
        ``[degree, K]``, the same for the constant of the polynomial.
    """

    sketches: Tensor
    shifts: Tensor

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
