"""Nearest points: centres of clusters and classes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from windtunnel.modules.base import EPSILON, Module, Rounding, bounded, learned
from windtunnel.modules.distances import distances, root, squared_distances
from windtunnel.modules.slices import row_blocks


class NearestPoint(Module):
    """How near each point is; the greatest score belongs to the nearest one.

    y_k = -|x - c_k|_p^e
    """

    points: Tensor = learned()  # [K, width], centres of clusters or classes
    p: float = 2.0  # the order of the norm: 2 is Euclidean, 1 is Manhattan
    power: float = 2.0  # the exponent e

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        distance = torch.cat([distances(part, self.points, self.p) for part in row_blocks(x, self.points.shape[0])])
        return -distance.square() if self.power == 2.0 else -(distance**self.power)

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """That of |x|^2 - 2 x c + |c|^2, as the source computes squared distances."""
        if self.p != 2.0 or self.power != 2.0:
            return None
        return _of_squares(self.points.detach()[column])


class NearestGroup(Module):
    """How near the nearest point of each group is.

    y_c = max over the points k of group c of -|x - c_k|^2
    """

    points: Tensor = learned()  # [K, width]
    group: Tensor  # int64 [K], the group of each point
    groups: int = bounded(1, 2**20)  # how many there are

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, groups]."""
        nearness = torch.cat([-squared_distances(part, self.points) for part in row_blocks(x, self.points.shape[0])])
        best: list[Tensor] = []
        for group in range(self.groups):
            best.append(nearness[:, self.group == group].amax(dim=1))
        return torch.stack(best, dim=1)


class Distances(Module):
    """Euclidean distances to points.

    y_k = |x - c_k|
    """

    points: Tensor  # [K, width]

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        return torch.cat([distances(part, self.points, 2.0) for part in row_blocks(x, self.points.shape[0])])

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding:
        """That of the square root of |x|^2 - 2 x c + |c|^2, as the source computes it."""
        return _of_root(_of_squares(self.points[column]))


class DistancesFromScores(Module):
    """Distances from the scores of ``NearestPoint``: y_k = sqrt(-s_k)."""

    def forward(self, scores: Tensor) -> Tensor:
        """[B, K] -> [B, K]."""
        return root(-scores)

    def rounding(self, column: int, inputs: Sequence[Rounding | None]) -> Rounding | None:
        """That of the square root of the score."""
        of_scores = inputs[column]
        return None if of_scores is None else _of_root(of_scores)


def _of_squares(point: Tensor) -> Rounding:
    """How far |x|^2 - 2 x c + |c|^2 may be from the squared distance to a point c."""
    square = float(point.square().sum())
    return lambda squares: 16 * EPSILON * (square + squares.abs())


def _of_root(of_squares: Rounding) -> Rounding:
    """How far the root of a square may be, from how far the square may be."""

    def of_distances(distances: Tensor) -> Tensor:
        size = of_squares(distances.square())
        return size / (2 * torch.maximum(distances.abs(), size.sqrt()))

    return of_distances


class BisectingCenters(Module):
    """Leaves of a tree whose nodes send a row to the nearer one of two centres.

    y_l = min over the nodes n above leaf l of sign_ln (|x - right_n|^2 - |x - left_n|^2)

    The leaf that a row ends in is the only one of which no node disapproves, so it has the greatest score.
    """

    # left, right: [nodes, width], the two centres of each node
    left: Tensor = learned()
    right: Tensor = learned()
    path: Tensor  # [leaves, nodes]: 1 where the leaf lies on the left of the node, -1 on the right, 0 not below it

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, leaves]."""
        margin = squared_distances(x, self.right) - squared_distances(x, self.left)
        signed = margin.unsqueeze(1) * self.path  # [B, leaves, nodes]
        return torch.where(self.path == 0, float("inf"), signed).amin(dim=2)
