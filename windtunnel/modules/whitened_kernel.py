"""Kernels whitened over a set of points."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.pairwise import KernelMap, kernel_values


class WhitenedKernel(KernelMap):
    """A ``KernelMap`` in float64, whatever the program computes in.

    Weights that whiten points which nearly depend on one another are large and cancel to more digits than float32 has.
    Parameters stay float64 too.

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``, in the type of the rows.
    """

    def cast(self, dtype: torch.dtype) -> None:
        """Keep float64."""

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or with negative ones under a chi2 kernel."""
        refused = ~torch.isfinite(x)
        if self.kernel in ("chi2", "additive_chi2"):
            refused = refused | (x < 0)
        return refused.any(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        points, weight, bias = self.points.double(), self.weight.double(), self.bias.double()
        values = kernel_values(self.kernel, x.double(), points, self.gamma, self.coef0, self.degree)
        return functional.linear(values, weight, bias).to(x.dtype)
