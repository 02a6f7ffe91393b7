"""The same values for every row."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class Constant(Module):
    """K values, whatever the columns hold.

    y = value

    Shape
    -----
    ``[B, width]`` -> ``[B, K]``.

    Parameters
    ----------
    value : Tensor
        ``[K]``; learned.

    Examples
    --------
    >>> Constant(torch.tensor([0.5, 2.0]))(torch.zeros(2, 3)).tolist()
    [[0.5, 2.0], [0.5, 2.0]]
    """

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # A sum, as a view of a parameter would be a part of it.
        return self.value + torch.zeros([x.shape[0], 1], dtype=self.value.dtype, device=x.device)
