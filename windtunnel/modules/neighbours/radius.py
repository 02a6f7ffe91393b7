"""Training rows within a radius."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.neighbours.nearest_rows import cached, closeness, distance_of, reduced_distances


class RowsWithin(Module):
    """Votes or means of the training rows within a radius.

    y_c = sum over the rows i with distance <= radius of w_i target_ic, over the sum of the w_i where ``mean`` is set;
    w = 1, or 1 / distance; where there is no such row, ``alone``

    Shape
    -----
    ``[B, width]`` -> ``[B, targets]``.

    Parameters
    ----------
    points : Tensor
        ``[P, width]``, the training rows.
    targets : Tensor
        ``[P, targets]``: values, or 1 at the class of each row.
    alone : Tensor
        ``[targets]``; NaN where the source predicts so.
    radius : float
        In the unit of the distance.
    p : float
        The order of the norm.
    weighted : bool
        Whether w is 1 / distance.
    mean : bool
        Whether the sum is divided by that of the weights.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("radius", "p", "weighted", "mean")
    points: Tensor
    targets: Tensor
    alone: Tensor

    def __init__(
        self, points: Tensor, targets: Tensor, alone: Tensor, radius: float, p: float, weighted: bool, mean: bool
    ) -> None:
        super().__init__()
        self.register_buffer("points", points.detach().clone())
        self.register_buffer("targets", targets.detach().clone())
        self.register_buffer("alone", alone.detach().clone())
        self.radius = float(radius)
        self.p = float(p)
        self.weighted = bool(weighted)
        self.mean = bool(mean)

    def cast(self, dtype: torch.dtype) -> None:
        """Stay in float64."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, targets]."""
        rows = x.to(torch.float64)
        return torch.cat([self.block(part) for part in cached(rows, self.points.shape[0])]).to(x.dtype)

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, targets]."""
        reduced = reduced_distances(x, self.points, self.p)
        limit = self.radius if self.p == float("inf") else self.radius**self.p
        near = reduced <= limit
        outside = torch.where(near, distance_of(reduced, self.p), float("inf"))
        weight = closeness(outside, self.weighted) * near
        total = weight @ self.targets
        if self.mean:
            total = total / weight.sum(dim=1, keepdim=True)
        return torch.where(near.any(dim=1, keepdim=True), total, self.alone)


class RowsThatHaveSomeWithin(RowsWithin):
    """``RowsWithin`` of a classifier that has no label for rows without neighbours: they are rejected."""

    def outside(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or with no training row within the radius."""
        return torch.cat(
            [torch.isnan(self.block(part)[:, 0]) for part in cached(x.to(torch.float64), len(self.points))]
        )
