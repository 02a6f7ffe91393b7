"""Target statistics and row counts of combinations of values: the features of a boosted residual."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor

from windtunnel.modules.base import Module, derived
from windtunnel.modules.linear.residual_model import column_codes, interaction_cells


class CellStatistics(Module):
    """Features of the cell of each interaction: its target statistics and its number of training rows, in bins.

    With cell_p(c) the cell of interaction p for the codes c of a row, as in ``ResidualModel``, the output columns are

        bins[cell_1(c), 1 .. F], bins[cell_2(c), 1 .. F], ...

    Trees compare a feature with a few thresholds only. Its bin is the number of thresholds below it.

    Shape
    -----
    ``[B, numbers + categories]`` -> ``[B, P F]``

    Source
    ------
    Target statistics of combinations of categories (CatBoost, NeurIPS 2018).
    """

    edges: Tensor  # [numbers, E], as in ResidualModel, in the type of the features
    size: Tensor  # int64 [numbers + categories], number of codes of each column
    interactions: Tensor  # int64 [P, order], columns of each interaction, padded with -1
    cell_count: Tensor  # int64 [P], table rows of each interaction
    bins: Tensor  # uint8 [sum of cell_count, F]
    first_cell: Tensor = derived()

    def __post_init__(self) -> None:
        self.register_buffer("first_cell", torch.cumsum(self.cell_count, 0) - self.cell_count, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, numbers + categories] -> [B, P F]."""
        codes = column_codes(x, self.edges, self.size)
        at = interaction_cells(codes, self.size, self.interactions, self.cell_count) + self.first_cell
        return self.bins[at].flatten(1).to(self.edges.dtype)
