"""How much thinner the neighbourhood of a row is than those of its neighbours."""

import torch
from torch import Tensor

from windtunnel.modules.neighbours.nearest_rows import NearestRows
from windtunnel.modules.slices import row_blocks


class OutlierFactor(NearestRows):
    """How sparse the surroundings of a row are against those of its neighbours (local outlier factor).

    y = -mean_i(density_i / density) - offset, density = 1 / (mean_i max(distance_i, reach_i) + 1e-10)
    """

    density: Tensor  # [P], of the training rows
    reach: Tensor  # [P], the distance of each training row to its own k-th neighbour
    offset: Tensor  # a number, in the unit of y

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, 1]."""
        rows = x.to(torch.float64)
        return torch.cat([self.block(part) for part in row_blocks(rows, self.k)]).to(x.dtype)

    def block(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, 1]."""
        distance, chosen = self.nearest(x)
        density = 1 / (torch.maximum(distance, self.reach[chosen]).mean(dim=1, keepdim=True) + 1e-10)
        return -(self.density[chosen] / density).mean(dim=1, keepdim=True) - self.offset
