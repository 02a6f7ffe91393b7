"""Embeddings of new rows on a manifold of training points."""

import torch
from torch import Tensor
from torch.nn import functional

from windtunnel.modules.base import Module, bounded, learned
from windtunnel.modules.distances import distances


class Geodesics(Module):
    """Weighted sums of squared distances along paths over the points, entered through the nearest ones.

    g_j = min over the nearest points i of (|x - p_i| + path_ij),    y = -1/2 g^2 W^T + b

    Of equally near points the first ones count.
    """

    points: Tensor  # [n, width]
    paths: Tensor  # [n, n], lengths of the shortest paths
    weight: Tensor = learned()  # [K, n]
    bias: Tensor = learned()  # [K]
    neighbours: int = bounded(1, 2**20)  # how many points a row is linked to
    norm: float = 2.0  # of the Minkowski distance

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        near, at = torch.topk(distances(x, self.points, self.norm), self.neighbours, dim=1, largest=False)
        lengths = self.paths[at[:, 0]] + near[:, :1]
        for link in range(1, self.neighbours):
            lengths = torch.minimum(lengths, self.paths[at[:, link]] + near[:, link : link + 1])
        return functional.linear(-0.5 * lengths**2, self.weight, self.bias)


class Barycenters(Module):
    """The nearest points' places, weighted as they make up the row.

    y = sum_i w_i e_i over the nearest points i, with w = v / sum(v), (C C^T + r I) v = 1, c_i = p_i - x and r =
    regularization * trace(C C^T) (or the regularization itself, where the trace is 0).

    Of equally near points the first ones count.
    """

    points: Tensor  # [n, width]
    places: Tensor = learned()  # [n, K]
    neighbours: int = bounded(1, 2**20)  # how many points a row is made of
    regularization: float  # see above

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        at = torch.topk(distances(x, self.points, 2.0), self.neighbours, dim=1, largest=False)[1]
        difference = self.points[at] - x.unsqueeze(1)  # [B, neighbours, width]
        gram = difference @ difference.transpose(1, 2)
        trace = gram.diagonal(dim1=1, dim2=2).sum(dim=1)
        ridge = torch.where(trace > 0, self.regularization * trace, torch.full_like(trace, self.regularization))
        unit = torch.eye(self.neighbours, dtype=x.dtype, device=x.device)
        ones = torch.ones([x.shape[0], self.neighbours], dtype=x.dtype, device=x.device)
        weights: Tensor = torch.linalg.solve(gram + ridge[:, None, None] * unit, ones)
        weights = weights / weights.sum(dim=1, keepdim=True)
        return (weights.unsqueeze(2) * self.places[at]).sum(dim=1)
