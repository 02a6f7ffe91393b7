"""Contributions of a residual model: rows of its tables, for single columns and interactions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.linear.residual_model import ResidualModel, interaction_cells


@dataclass(frozen=True)
class ResidualTerms:
    """The terms of a residual model, each with the raw columns that it reads.

    Attributes
    ----------
    residual : ResidualModel
    columns : list of tuple of int
        Raw columns of each term, ascending. Terms with the same raw columns are one.
    """

    residual: ResidualModel
    columns: list[tuple[int, ...]]
    _of_column: list[int]
    _of_interaction: list[int]

    @classmethod
    def of(cls, residual: ResidualModel, sources: list[int]) -> ResidualTerms:
        """The terms of a residual model whose input columns come from these raw columns."""
        single = [(source,) for source in sources]
        joint = [
            tuple(sorted({sources[column] for column in columns if column >= 0}))
            for columns in residual.interactions.tolist()
        ]
        terms = sorted({*single, *joint}, key=lambda columns: (len(columns), columns))
        place = {columns: position for position, columns in enumerate(terms)}
        return cls(residual, terms, [place[columns] for columns in single], [place[columns] for columns in joint])

    def values(self, x: Tensor) -> NDArray[np.float64]:
        """Contribution of each term to the scores, float64 ``[B, terms, K]``.

        A product <factors_i, factors_j> of the factorization machine counts half for either column.
        """
        residual = self.residual
        with torch.inference_mode():
            codes = residual.codes(x)
            values = torch.zeros(len(x), len(self.columns), len(residual.unit), dtype=torch.float64)
            values.index_add_(1, torch.tensor(self._of_column, dtype=torch.int64), self._column_values(codes))
            if self._of_interaction:
                cells = interaction_cells(codes, residual.size, residual.interactions, residual.cell_count)
                cross = residual.cross[cells + residual.first_cell].double()
                values.index_add_(1, torch.tensor(self._of_interaction), cross)
            return (values * residual.unit.double()).numpy()

    def _column_values(self, codes: Tensor) -> Tensor:
        """Per unit, ``[B, columns, K]``."""
        at = codes + self.residual.first_code
        values = self.residual.weight[at].double()
        if self.residual.factors.shape[2] > 0:
            factors = self.residual.factors[at].double()  # [B, columns, K, rank]
            others = factors.sum(dim=1, keepdim=True) - factors
            values = values + 0.5 * (factors * others).sum(dim=3)
        return values
