"""Contributions of a residual model: rows of its tables, for single columns and interactions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import FIRST_ID, Batch, RowEncoder
from windtunnel.encode.vocabulary import MISSING_ID
from windtunnel.modules.linear.residual_model import ResidualModel, column_codes
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import NUMBERS, Program, ProgramStep
from windtunnel.program.raw_columns import RawColumns

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class CodedColumns:
    """The input columns of a program step that turns them into codes: a residual model, or target statistics."""

    step: ProgramStep
    inputs: list[tuple[int, int]]  # block (``NUMBERS`` or ``IDS``) and column there of each input column
    sources: list[int]  # the raw column of each input column

    @classmethod
    def of(cls, step: ProgramStep, raw: RawColumns) -> CodedColumns:
        """The input columns of a step."""
        inputs = step.places()
        return cls(step, inputs, [(raw.numbers if block == NUMBERS else raw.ids)[column] for block, column in inputs])

    @property
    def interactions(self) -> list[list[int]]:
        """The input columns of each interaction."""
        module: Any = self.step.module
        return [[column for column in columns if column >= 0] for columns in module.interactions.tolist()]

    def raw_columns(self, columns: Iterable[int]) -> tuple[int, ...]:
        """The raw columns of some input columns, ascending."""
        return tuple(sorted({self.sources[column] for column in columns}))

    def input(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The input of the step for encoded rows."""
        module: Any = self.step.module
        device = module.edges.device
        return self.step.gather([numbers.to(device), ids.to(device)])

    def codes(self, batch: Batch) -> NDArray[np.int64]:
        """The code of each input column, int64 ``[B, inputs]``."""
        module: Any = self.step.module
        with torch.inference_mode():
            codes: NDArray[np.int64] = column_codes(self.input(*batch), module.edges, module.size).cpu().numpy()
        return codes

    def value_text(self, encoder: RowEncoder, column: int, code: int) -> str:
        """The value of a code of an input column as text: "=ORD", "=18", " in (17.5, 18.2]", " missing"."""
        block, place = self.inputs[column]
        if block == NUMBERS:
            return _bin_text(self._edges(column), code)
        values = encoder.categories[place].vocabulary.values
        if code < FIRST_ID:
            return " missing" if code == MISSING_ID else " unknown"
        return f"={values[code - FIRST_ID]}" if code - FIRST_ID < len(values) else " of other categories"

    def is_zero(self, column: int, code: int) -> bool:
        """Whether a code is that of the numbers up to 0, as of a term that does not occur."""
        return code == 1 and self._edges(column)[:1] == [0.0]

    def _edges(self, column: int) -> list[float]:
        """The upper edges of the bins of a column of numbers."""
        module: Any = self.step.module
        return [edge for edge in module.edges[column].tolist() if edge < math.inf]


@dataclass(frozen=True)
class ResidualTerms:
    """The terms of a residual model, each with the raw columns that it reads."""

    residual: ResidualModel
    coded: CodedColumns  # what it reads
    columns: list[tuple[int, ...]]  # raw columns of each term, ascending. Terms with the same raw columns are one
    _of_column: list[int]
    _of_interaction: list[int]

    @classmethod
    def of(cls, step: ProgramStep, raw: RawColumns) -> ResidualTerms:
        """The terms of the residual model of a step."""
        coded, residual = CodedColumns.of(step, raw), cast(ResidualModel, step.module)
        single = [(source,) for source in coded.sources]
        joint = [coded.raw_columns(columns) for columns in coded.interactions]
        terms = sorted({*single, *joint}, key=lambda columns: (len(columns), columns))
        place = {columns: position for position, columns in enumerate(terms)}
        of_column, of_interaction = ([place[columns] for columns in each] for each in (single, joint))
        return cls(residual, coded, terms, of_column, of_interaction)

    def of_rows(self, batch: Batch) -> NDArray[np.float64]:
        """Contribution of each term to the scores of encoded rows, float64 ``[B, terms, K]``."""
        parts = zip(batch.numbers.split(ROWS_AT_ONCE), batch.ids.split(ROWS_AT_ONCE), strict=True)  # type: ignore[no-untyped-call]
        return np.concatenate([self.values(self.coded.input(*part)) for part in parts])

    def inputs_of(self, term: int) -> list[int]:
        """The input columns that a term reads."""
        columns = {column for column, its_term in enumerate(self._of_column) if its_term == term}
        for interaction, its_term in zip(self.coded.interactions, self._of_interaction, strict=True):
            columns |= set(interaction) if its_term == term else set()
        return sorted(columns, key=lambda column: self.coded.sources[column])

    def values(self, x: Tensor) -> NDArray[np.float64]:
        """Contribution of each term to the scores, float64 ``[B, terms, K]``.

        A product <factors_i, factors_j> of the factorization machine counts half for either column.
        """
        residual = self.residual
        with torch.inference_mode():
            codes = residual.codes(x)
            values = torch.zeros(len(x), len(self.columns), len(residual.unit), dtype=torch.float64, device=x.device)
            values.index_add_(
                1, torch.tensor(self._of_column, dtype=torch.int64, device=x.device), self._column_values(codes)
            )
            if self._of_interaction:
                cross = residual.cross[residual.interaction_rows(codes)].double()
                values.index_add_(1, torch.tensor(self._of_interaction, device=x.device), cross)
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


def residual_terms(program: Program, raw: RawColumns) -> ResidualTerms | None:
    """The terms of the residual model that a program ends in; None without one."""
    position = InstalledResiduals.of(program).residual
    return None if position is None else ResidualTerms.of(program.steps[position], raw)


def _bin_text(edges: list[float], code: int) -> str:
    """The numbers of a bin; code 0 is missing, code 1 the bin up to the first edge."""
    if code == 0:
        return " missing"
    if not edges:
        return " present"
    if edges == [0.0, 1.0] and code <= 2:
        return f"={code - 1}"
    if code == 1:
        return f" <= {edges[0]:.6g}"
    if code > len(edges):
        return f" > {edges[-1]:.6g}"
    low, high = edges[code - 2], edges[code - 1]
    if high == low + 1 and all(map(float.is_integer, edges)):
        return f"={high:.6g}"
    return f" in ({low:.6g}, {high:.6g}]"
