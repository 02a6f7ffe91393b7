"""Labels of training points propagated to new rows."""

from typing import ClassVar, Optional

import torch
from torch import Tensor

from windtunnel.modules.base import Module, bounded, learned
from windtunnel.modules.distances import distances


class PropagatedLabels(Module):
    """Probabilities of the labels of a row, from those of near points.

    s = sum_i exp(-gamma |x - x_i|^2) labels_i, or the sum of labels_i over the nearest points; y_k = s_k / sum_j s_j

    Computed in float64 whatever the type of the program: the weights of far points are near 0. NaN where all are 0.
    """

    FLOAT64: ClassVar[bool] = True
    MAY_BE_NON_FINITE: ClassVar[bool] = True
    points: Tensor  # [N, width], float64
    labels: Tensor = learned()  # [N, K], float64, shares of the classes
    gamma: float  # in 1 / (unit of the columns)^2
    neighbors: int = bounded(0, 2**20)  # how many of the nearest points count alone; 0 for all by their distance
    smooth: bool = False
    """Whether the nearest points pass the gradient of all points, weighted by exp(-(distance / that of the last of
    the nearest)^2); forward nothing changes."""

    def soft(self, sample: Optional[Tensor]) -> Module:  # noqa: UP045  TorchScript
        """The same outputs, with a gradient where only the nearest points count."""
        return (
            PropagatedLabels(self.points, self.labels, self.gamma, self.neighbors, smooth=True)
            if self.neighbors
            else self
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, K]."""
        distance = distances(x.double(), self.points, 2.0)
        if self.neighbors > 0:
            least, nearest = distance.topk(self.neighbors, dim=1, largest=False)
            near = self.labels[nearest].sum(dim=1)
            if self.smooth:
                reach = least[:, -1:].detach().clamp_min(1e-12)
                every = self.neighbors * torch.softmax(-(distance / reach).square(), dim=1) @ self.labels.detach()
                near = near + (every - every.detach())
        else:
            near = torch.exp(-self.gamma * distance.square()) @ self.labels
        return (near / near.sum(dim=1, keepdim=True)).to(x.dtype)
