"""Contributions of a boosted residual: TreeSHAP of its target statistics, added up by interaction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.tree_shap import tree_shap
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.residual_terms import CodedColumns
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class BoostedTerms:
    """The interactions of a boosted residual, each with the raw columns that it reads."""

    net: TranslatedPipeline
    position: int  # of the step of target statistics; those of the trees and of the sum of both scores follow
    weight: float  # of the scores that those of the trees are added to
    coded: CodedColumns  # what the target statistics read
    columns: list[tuple[int, ...]]
    """Raw columns of each term, ascending. Interactions with the same raw columns are one term."""
    _of_interaction: list[int]

    @classmethod
    def of(cls, net: TranslatedPipeline, position: int, raw: RawColumns) -> BoostedTerms:
        """The terms of the trees behind the target statistics at a position."""
        steps: Any = net.program.steps
        statistics, _, total = steps[position : position + 3]
        coded = CodedColumns.of(statistics, raw)
        interactions = [coded.raw_columns(columns) for columns in coded.interactions]
        terms = sorted(set(interactions), key=lambda columns: (len(columns), columns))
        of_interaction = [terms.index(columns) for columns in interactions]
        return cls(net, position, total.module.weight, coded, terms, of_interaction)

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contribution of each term to the scores ``[B, terms, K]``, and the score that they start from ``[K]``."""
        program, position = self.net.program, self.position + 1
        trees: Any = program.steps[position].module
        of_features, base = tree_shap(trees, self.net.run_in_slices(partial(program.inputs_of, position), rows))
        of_interactions = of_features.reshape(len(of_features), len(self._of_interaction), -1, len(base)).sum(axis=2)
        values = np.zeros((len(of_features), len(self.columns), len(base)))
        for interaction, term in enumerate(self._of_interaction):
            values[:, term] += of_interactions[:, interaction]
        return values, base

    def inputs_of(self, term: int) -> list[int]:
        """The input columns that a term reads."""
        pairs = zip(self.coded.interactions, self._of_interaction, strict=True)
        columns = {column for interaction, its_term in pairs if its_term == term for column in interaction}
        return sorted(columns, key=lambda column: self.coded.sources[column])


def boosted_terms(net: TranslatedPipeline, raw: RawColumns) -> BoostedTerms | None:
    """The terms of the boosted residual of a translation; None without one."""
    position = next((at for at, step in enumerate(net.program.steps) if isinstance(step.module, CellStatistics)), None)
    return None if position is None else BoostedTerms.of(net, position, raw)
