"""Contributions of a boosted residual: those of its features, added up by interaction and number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.modules.linear.integrated_gradients import integrated_gradients
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.tree_shap import tree_shap
from windtunnel.program.installed_residuals import BoostedSteps, InstalledResiduals
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.residual_terms import CodedColumns
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class BoostedTerms:
    """The interactions and numbers of a boosted residual, each with the raw columns that it reads."""

    net: TranslatedPipeline
    steps: BoostedSteps
    coded: CodedColumns  # what the target statistics read
    columns: list[tuple[int, ...]]
    """Raw columns of each term, ascending. Interactions and numbers with the same raw columns are one term."""
    _of_interaction: list[int]
    _of_number: list[int]

    @classmethod
    def of(cls, net: TranslatedPipeline, steps: BoostedSteps, raw: RawColumns) -> BoostedTerms:
        """The terms of the boosted residual with these steps."""
        statistics: Any = net.program.steps[steps.statistics]
        coded = CodedColumns.of(statistics, raw)
        interactions = [coded.raw_columns(columns) for columns in coded.interactions]
        numbers = [coded.raw_columns([column]) for column in range(_number_codes(statistics.module))]
        terms = sorted({*interactions, *numbers}, key=lambda columns: (len(columns), columns))
        of_interaction, of_number = ([terms.index(columns) for columns in each] for each in (interactions, numbers))
        return cls(net, steps, coded, terms, of_interaction, of_number)

    @property
    def method(self) -> str:
        """How contributions are computed."""
        of_network = "" if self.steps.network is None else ", integrated gradients of its network"
        return f"path-dependent TreeSHAP of its trees{of_network}"

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contribution of each term to the scores ``[B, terms, K]``, and the score that they start from ``[K]``."""
        trees, features = self._module(self.steps.trees), self._inputs(self.steps.trees, rows)
        of_features, base = tree_shap(trees, features)
        if self.steps.network is not None:
            middle = torch.from_numpy(trees.ensemble().feature_range.mean(axis=1)).to(features)
            added, start = integrated_gradients(self._module(self.steps.network), features, middle)
            of_features, base = of_features + added, base + start
        of_tables, of_numbers = np.split(of_features, [of_features.shape[1] - len(self._of_number)], axis=1)
        of_interactions = of_tables.reshape(len(of_tables), len(self._of_interaction), -1, len(base)).sum(axis=2)
        values = np.zeros((len(of_features), len(self.columns), len(base)))
        for terms, of_terms in ((self._of_interaction, of_interactions), (self._of_number, of_numbers)):
            for place, term in enumerate(terms):
                values[:, term] += of_terms[:, place]
        return values, base

    def _module(self, position: int) -> Any:
        return self.net.program.steps[position].module

    def _inputs(self, position: int, rows: Batch) -> Tensor:
        return self.net.run_in_slices(partial(self.net.program.inputs_of, position), rows)

    def inputs_of(self, term: int) -> list[int]:
        """The input columns that a term reads."""
        pairs = zip(self.coded.interactions, self._of_interaction, strict=True)
        columns = {column for interaction, its_term in pairs if its_term == term for column in interaction}
        columns |= {column for column, its_term in enumerate(self._of_number) if its_term == term}
        return sorted(columns, key=lambda column: self.coded.sources[column])


def _number_codes(statistics: CellStatistics) -> int:
    """How many features of the trees are codes of numbers, the last ones."""
    return len(statistics.edges) if statistics.number_codes else 0


def boosted_terms(net: TranslatedPipeline, raw: RawColumns) -> BoostedTerms | None:
    """The terms of the boosted residual of a translation; None without one."""
    steps = InstalledResiduals.of(net.program).boosted
    return None if steps is None else BoostedTerms.of(net, steps, raw)
