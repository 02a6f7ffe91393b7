"""Contributions of a residual model: rows of its tables, for single columns and interactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.program.program import ProgramStep
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.coded_columns import CodedColumns
from windtunnel.program.terms.terms import Terms, term_columns

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class ResidualTerms(Terms):
    """The terms of a residual model."""

    residual: ResidualModel
    KIND = "residual model"
    method = "exact, the rows of its tables"

    @classmethod
    def of(cls, step: ProgramStep, raw: RawColumns) -> ResidualTerms:
        """The terms of the residual model of a step."""
        coded = CodedColumns.of(step, raw)
        return cls(*term_columns(coded, len(coded.inputs)), cast(ResidualModel, step.module))

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The contributions of encoded rows; they start from 0."""
        parts = zip(*(torch.split(block, ROWS_AT_ONCE) for block in rows), strict=True)
        values = np.concatenate([self._values(self.coded.input(*part)) for part in parts])
        return values, np.zeros(values.shape[2])

    def _values(self, x: Tensor) -> NDArray[np.float64]:
        """Contribution of each term to the scores, float64 ``[B, terms, K]``.

        A product <factors_i, factors_j> of the factorization machine counts half for either column.
        """
        residual = self.residual
        with torch.inference_mode():
            codes = residual.codes(x)
            values = torch.zeros(len(x), len(self.columns), len(residual.unit), dtype=torch.float64, device=x.device)
            values.index_add_(
                1, torch.tensor(self.of_single, dtype=torch.int64, device=x.device), self._column_values(codes)
            )
            if self.of_interaction:
                cross = residual.cross[residual.interaction_rows(codes)].double()
                values.index_add_(1, torch.tensor(self.of_interaction, device=x.device), cross)
            return (values * residual.unit.double()).cpu().numpy()

    def _column_values(self, codes: Tensor) -> Tensor:
        """The contribution of each input column in units of the residual model, ``[B, columns, K]``."""
        at = codes + self.residual.first_code
        values = self.residual.weight[at].double()
        if self.residual.factors.shape[2] > 0:
            factors = self.residual.factors[at].double()  # [B, columns, K, rank]
            others = factors.sum(dim=1, keepdim=True) - factors
            values = values + 0.5 * (factors * others).sum(dim=3)
        return values
