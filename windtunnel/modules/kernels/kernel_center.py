"""Kernel matrices centred in the space of their features."""

from torch import Tensor

from windtunnel.modules.base import Module, learned


class KernelCenter(Module):
    """Subtract the mean of the features from a kernel between rows and the fitted rows.

    y_j = k_j - rows_j - mean(k) + total

    Shape
    -----
    ``[B, n]`` -> ``[B, n]``.

    Parameters
    ----------
    rows : Tensor
        ``[n]``, the mean kernel of each fitted row with all of them; learned.
    total : Tensor
        ``[]``, the mean of all; learned.

    Examples
    --------
    >>> import torch
    >>> KernelCenter(torch.tensor([1.0, 2.0]), torch.tensor(1.5))(torch.tensor([[3.0, 5.0]])).tolist()
    [[-0.5, 0.5]]
    """

    rows: Tensor = learned()
    total: Tensor = learned()

    def forward(self, kernel: Tensor) -> Tensor:
        """[B, n] -> [B, n]."""
        return kernel - self.rows - kernel.mean(dim=1, keepdim=True) + self.total
