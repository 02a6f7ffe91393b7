"""The columns that a residual model or a boosted residual reads as codes, and the values of these codes as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import FIRST_ID, Batch, RowEncoder
from windtunnel.encode.vocabulary import MISSING_ID
from windtunnel.modules.linear.residual_model import column_codes, edge_shift
from windtunnel.program.program import NUMBERS, ProgramStep
from windtunnel.program.raw_columns import RawColumns


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
        if code < FIRST_ID:
            return " missing" if code == MISSING_ID else " unknown"
        text = encoder.categories[place].vocabulary.text_of(code)
        return " of other categories" if text is None else f"={text}"

    def is_zero(self, column: int, code: int) -> bool:
        """Whether a code is that of the numbers up to 0, as of a term that does not occur."""
        return code == 1 and self._edges(column)[:1] == [0.0]

    def _edges(self, column: int) -> list[float]:
        """The upper edges of the bins of a column of numbers; whole numbers that they are a little above."""
        module: Any = self.step.module
        edges = module.edges[column]
        edges = edges[edges < math.inf]
        if not len(edges):
            return []
        nearest = edges.round()
        above = edges - nearest
        is_whole = (above >= 0) & (above <= 2 * edge_shift(nearest, edges.abs().max()))
        whole: list[float] = torch.where(is_whole, nearest, edges).tolist()
        return whole


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
