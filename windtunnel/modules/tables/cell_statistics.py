"""Target statistics and row counts of combinations of values, and bins of numbers: features of a boosted residual."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import torch
from torch import Tensor

from windtunnel.modules.base import Module
from windtunnel.modules.linear.residual_model import cell_rows, column_codes, interaction_cells


class CellStatistics(Module):
    """Features of the cell of each interaction: its target statistics and its number of training rows, in bins.

    With row_p(c) the table row of interaction p for the codes c of a row, as in ``ResidualModel``, the output is

        bins[row_1(c), 1 .. F], bins[row_2(c), 1 .. F], ...

    The table has a row for each cell with training rows, and a row per interaction for all its other cells. The
    bin of a feature is the number of its borders below it. With ``number_codes`` the codes of the numbers are further
    features.

    Shape
    -----
    ``[B, numbers + categories]`` -> ``[B, P F]``, with ``number_codes`` ``[B, P F + numbers]``

    Source
    ------
    Target statistics of combinations of categories (CatBoost, NeurIPS 2018).
    """

    edges: Tensor  # [numbers, E], as in ResidualModel, in the type of the features
    size: Tensor  # int64 [numbers + categories], number of codes of each column
    interactions: Tensor  # int64 [P, order], columns of each interaction, padded with -1
    cell_count: Tensor  # int64 [P], cells of each interaction
    keys: Tensor  # int32 [R], as in ResidualModel
    bins: Tensor  # uint8 [R + P, F]
    number_codes: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """[B, numbers + categories] -> [B, P F] or [B, P F + numbers]."""
        codes = column_codes(x, self.edges, self.size)
        cells = interaction_cells(codes, self.size, self.interactions, self.cell_count)
        features = self.bins[cell_rows(cells, self.cell_count, self.keys)].flatten(1).to(self.edges.dtype)
        if self.number_codes:
            features = torch.cat([features, codes[:, : self.edges.shape[0]].to(self.edges.dtype)], dim=1)
        return features
