"""Outputs of several estimators combined: means, votes, the weighted median."""

import torch
from torch import Tensor

from windtunnel.modules.base import Module, learned


def columns_or_zero(x: Tensor, place: Tensor) -> Tensor:
    """The columns of ``[B, width]`` at the numbers in ``place``, one after the other; zeros where these are -1."""
    known = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
    return known.index_select(1, torch.where(place < 0, torch.full_like(place, x.shape[1]), place).flatten())


class MeanOfMembers(Module):
    """The mean over members, of which each may lack some columns.

    y_k = 1 / divisor * sum over members e of x[place[e, k]]

    The sum runs in the order of the members, as in the source, so that ties stay ties.

    Examples
    --------
    >>> MeanOfMembers(torch.tensor([[0, 1], [2, -1]]), 2.0)(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1.]])
    """

    place: Tensor  # int64 [E, K]; -1 where member e has no column for k
    divisor: float
    flat: bool = False  # whether one score per row is given as [B]

    def forward(self, x: Tensor) -> Tensor:
        """[B, columns] -> [B, K]."""
        members = columns_or_zero(x, self.place).view(x.shape[0], self.place.shape[0], self.place.shape[1])
        mean = members.cumsum(1)[:, -1] / self.divisor
        return mean[:, 0] if self.flat else mean


class LabelVotes(Module):
    """The sum of the weights of the members' labels.

    y_k = 1 / divisor * sum over members e and labels l of x_el worth[e, l, k]
    """

    worth: Tensor  # [E, labels, K]
    divisor: float

    def forward(self, x: Tensor) -> Tensor:
        """[B, E * labels], a column per label of each member, 1 at the one that it gives, -> [B, K]."""
        chosen = x.view(x.shape[0], self.worth.shape[0], self.worth.shape[1])
        return torch.einsum("bel,elk->bek", chosen, self.worth).cumsum(1)[:, -1] / self.divisor


class WeightedMedian(Module):
    """The least value that, with the smaller ones, has half of the members' weight."""

    weight: Tensor  # [E]

    def forward(self, x: Tensor) -> Tensor:
        """[B, E] -> [B, 1]."""
        values, order = torch.sort(x, dim=1, stable=True)
        below = self.weight[order].cumsum(1)
        first = (below >= 0.5 * below[:, -1:]).to(torch.int64).argmax(dim=1, keepdim=True)
        return values.gather(1, first)


class WeightedMean(Module):
    """The weighted mean of the outputs of E members, each with K columns.

    y_k = sum_e w_e x_{e K + k} / sum_e w_e

    The sum runs in the order of the members, as in the source, so that ties stay ties.
    """

    weight: Tensor = learned()  # [E]

    def forward(self, x: Tensor) -> Tensor:
        """[B, E K] -> [B, K]."""
        members = self.weight.shape[0]
        each = x.reshape(x.shape[0], members, x.shape[1] // members) * self.weight.unsqueeze(1)
        return each.cumsum(1)[:, -1] / self.weight.sum()
