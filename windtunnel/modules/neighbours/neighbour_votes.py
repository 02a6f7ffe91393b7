"""Votes and means of the nearest training rows."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded
from windtunnel.modules.neighbours.nearest_rows import NearestRows, neighbour_weights, reduced_distances
from windtunnel.modules.slices import row_blocks


class NeighbourVotes(NearestRows):
    """What the nearest training rows vote for, one after the other from the nearest one.

    y_c = sum over the neighbours i of class c of w_i; w = 1, or 1 / distance
    """

    targets: Tensor  # [P, classes], 1 at the class of each row
    weighted: bool  # whether w is 1 / distance

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, classes], those of several targets side by side."""
        rows = x.to(torch.float64)
        return torch.cat([self.block(part) for part in row_blocks(rows, self.k * self.targets.shape[1])]).to(x.dtype)

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, classes]."""
        distance, chosen = self.nearest(x)
        weight = neighbour_weights(distance, self.weighted)
        total = torch.zeros([x.shape[0], self.targets.shape[1]], dtype=x.dtype, device=x.device)
        for neighbour in range(self.k):
            total = total + weight[:, neighbour : neighbour + 1] * self.targets[chosen[:, neighbour]]
        return total


class VotesByDistance(NeighbourVotes):
    """``NeighbourVotes`` of a classifier that rejects rows so far from all that 1 / distance is 0."""

    def rejected_rows(self, x: Tensor) -> Tensor | None:
        """Rows with missing or infinite values, or infinitely far from every training row in float64."""
        rows = x.to(torch.float64)
        # Few are infinitely far from the first one: the others are done with.
        far = ~torch.isfinite(reduced_distances(rows, self.points[:1], self.p)).all(dim=1)
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            if torch.compiler.is_exporting():
                return ~torch.isfinite(reduced_distances(rows, self.points, self.p)).any(dim=1)
        which = far.nonzero().squeeze(1)
        near = torch.isfinite(reduced_distances(rows[which], self.points, self.p)).any(dim=1)
        return far.index_copy(0, which, ~near)


class NeighbourMeans(NeighbourVotes):
    """The mean of the targets of the nearest training rows.

    y_t = sum_i w_i target_it / sum_i w_i; w = 1, or 1 / distance

    ``targets``, ``[P, targets]``, are values; so ``[B, width]`` -> ``[B, targets]``.
    """

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, targets]."""
        distance, chosen = self.nearest(x)
        weight = neighbour_weights(distance, self.weighted)
        total = (weight.unsqueeze(2) * self.targets[chosen]).sum(dim=1)
        return total / weight.sum(dim=1, keepdim=True)


class VoteProbabilities(Module):
    """Votes over their sum, target by target; 0 where there is none.

    y_c = s_c / sum of s over the classes of the same target
    """

    sizes: list[int]  # the number of classes of each target
    # How many columns are classes of the source; one more stands for a label that only outliers have.
    kept: int = bounded(1, 2**16)

    def forward(self, scores: Tensor) -> Tensor:
        """[B, classes] -> [B, classes], without those from ``kept`` on."""
        shares: list[Tensor] = []
        for votes in torch.split(scores[:, : self.kept], self.sizes, dim=1):
            total = votes.sum(dim=1, keepdim=True)
            shares.append(votes / torch.where(total == 0, torch.ones_like(total), total))
        return torch.cat(shares, dim=1)
