"""The terms of residual models: what columns and interactions contribute to the raw scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.program.terms.coded_columns import CodedColumns


@dataclass(frozen=True)
class Terms(ABC):
    """The columns and interactions of a residual model or a boosted residual, each with the raw columns that it reads.

    Columns and interactions with the same raw columns are one term.
    """

    coded: CodedColumns  # the columns that are read
    columns: list[tuple[int, ...]]  # raw columns of each term, ascending
    of_single: list[int]  # the term of each input column that counts by itself
    of_interaction: list[int]  # the term of each interaction
    KIND: ClassVar[str]  # "residual model" or "boosted residual"

    @property
    @abstractmethod
    def method(self) -> str:
        """How contributions are computed."""

    @abstractmethod
    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contribution of each term to the scores ``[B, terms, K]``, and the score that they start from ``[K]``."""

    def inputs_of(self, term: int) -> list[int]:
        """The input columns that a term reads."""
        pairs = zip(self.coded.interactions, self.of_interaction, strict=True)
        columns = {column for interaction, its_term in pairs if its_term == term for column in interaction}
        columns |= {column for column, its_term in enumerate(self.of_single) if its_term == term}
        return sorted(columns, key=lambda column: self.coded.sources[column])


def term_columns(coded: CodedColumns, single: int) -> tuple[CodedColumns, list[tuple[int, ...]], list[int], list[int]]:
    """The fields of ``Terms``; the first ``single`` input columns count by themselves."""
    singles = [coded.raw_columns([column]) for column in range(single)]
    interactions = [coded.raw_columns(columns) for columns in coded.interactions]
    terms = sorted({*singles, *interactions}, key=lambda columns: (len(columns), columns))
    place = {columns: position for position, columns in enumerate(terms)}
    of_single, of_interaction = ([place[columns] for columns in each] for each in (singles, interactions))
    return coded, terms, of_single, of_interaction
