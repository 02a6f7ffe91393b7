"""Kernels whitened over a set of points."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor

from windtunnel.modules.kernels.pairwise import KernelMap


class WhitenedKernel(KernelMap):
    """A ``KernelMap`` whose weights whiten points that may nearly depend on one another.

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``, in the type of the rows.
    """

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or with negative ones under a chi2 kernel."""
        rejected = ~torch.isfinite(x)
        if self.kernel in ("chi2", "additive_chi2"):
            rejected = rejected | (x < 0)
        return rejected.any(dim=1)
