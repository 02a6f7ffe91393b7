"""The same values for every row."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned


class Constant(Module):
    """K values, whatever the columns hold.

    y = value
    """

    value: Tensor = learned()  # [K]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        # A sum, as a view of a parameter would be a part of it.
        return self.value + torch.zeros([x.shape[0], 1], dtype=self.value.dtype, device=x.device)
