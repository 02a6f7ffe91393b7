"""Columns pooled by groups."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded


class PooledGroups(Module):
    """The greatest, the least or the median value of each group of columns.

    y_g = pool of x_j over the columns j of group g; the median of an even number is the mean of the middle two
    """

    CHOICES = {"kind": ("max", "min", "median")}
    group: Tensor  # int64 [width], the group of each column
    groups: int = bounded(1, 2**20)  # how many there are
    kind: str  # "max", "min" or "median"

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, groups]."""
        pooled: list[Tensor] = []
        for group in range(self.groups):
            values = x[:, self.group == group]
            if self.kind == "max":
                pooled.append(values.amax(dim=1))
            elif self.kind == "min":
                pooled.append(values.amin(dim=1))
            else:
                inorder, _ = values.sort(dim=1)
                count = values.shape[1]
                pooled.append((inorder[:, (count - 1) // 2] + inorder[:, count // 2]) / 2)
        return torch.stack(pooled, dim=1)
