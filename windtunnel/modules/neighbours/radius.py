"""Training rows within a radius."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.neighbours.nearest_rows import cache_blocks, distance_of, neighbour_weights, reduced_distances


class RadiusNeighbors(Module):
    """Votes or means of the training rows within a radius.

    y_c = sum over the rows i with distance <= radius of w_i target_ic, over the sum of the w_i where ``mean`` is set;
    w = 1, or 1 / distance; where there is no such row, ``alone``
    """

    FLOAT64: ClassVar[bool] = True
    points: Tensor  # [P, width], the training rows
    targets: Tensor  # [P, targets]: values, or 1 at the class of each row
    alone: Tensor  # [targets]; NaN where the source predicts so
    radius: float  # in the unit of the distance
    p: float  # the order of the norm
    weighted: bool  # whether w is 1 / distance
    mean: bool  # whether the sum is divided by that of the weights

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, targets]."""
        rows = x.to(torch.float64)
        return torch.cat([self.block(part) for part in cache_blocks(rows, self.points.shape[0])]).to(x.dtype)

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, targets]."""
        reduced = reduced_distances(x, self.points, self.p)
        limit = self.radius if self.p == float("inf") else self.radius**self.p
        near = reduced <= limit
        distance = torch.where(near, distance_of(reduced, self.p), float("inf"))
        weight = neighbour_weights(distance, self.weighted) * near
        total = weight @ self.targets
        if self.mean:
            total = total / weight.sum(dim=1, keepdim=True)
        return torch.where(near.any(dim=1, keepdim=True), total, self.alone)


class RadiusNeighborsOrReject(RadiusNeighbors):
    """``RadiusNeighbors`` of a classifier that has no label for rows without neighbours: they are rejected."""

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or with no training row within the radius."""
        return torch.cat(
            [torch.isnan(self.block(part)[:, 0]) for part in cache_blocks(x.to(torch.float64), len(self.points))]
        )
