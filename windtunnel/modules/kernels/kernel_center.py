"""Kernel matrices centred in the space of their features."""

from torch import Tensor

from windtunnel.modules.base import Module, learned


class KernelCenter(Module):
    """Subtract the mean of the features from a kernel between rows and the fitted rows.

    y_j = k_j - rows_j - mean(k) + total
    """

    rows: Tensor = learned()  # [n], the mean kernel of each fitted row with all of them
    total: Tensor = learned()  # [], the mean of all

    def forward(self, kernel: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        return kernel - self.rows - kernel.mean(dim=1, keepdim=True) + self.total
