"""Contributions of a boosted residual: TreeSHAP of its target statistics, added up by interaction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.explain.tree_shap import tree_shap
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.program.raw_columns import RawColumns, input_places
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class BoostedTerms:
    """The interactions of a boosted residual, each with the raw columns that it reads.

    Attributes
    ----------
    net : TranslatedPipeline
    slot : int
        That of the scores of the trees.
    weight : float
        Of the scores that those of the trees are added to.
    columns : list of tuple of int
        Raw columns of each term, ascending. Interactions with the same raw columns are one term.
    """

    net: TranslatedPipeline
    slot: int
    weight: float
    columns: list[tuple[int, ...]]
    _of_feature: NDArray[np.int64]

    @classmethod
    def of(cls, net: TranslatedPipeline, slot: int, raw: RawColumns) -> BoostedTerms | None:
        """The terms of the trees whose scores are in a slot; None unless target statistics are before them."""
        statistics: Any = net.program.steps[slot - 3].module
        if not isinstance(statistics, CellStatistics):
            return None
        places = input_places(net.program, slot - 1)
        sources = [(raw.ids if block else raw.numbers)[column] for block, column in places]
        interactions = [
            tuple(sorted({sources[column] for column in columns if column >= 0}))
            for columns in statistics.interactions.tolist()
        ]
        terms = sorted(set(interactions), key=lambda columns: (len(columns), columns))
        of_interaction = [terms.index(columns) for columns in interactions]
        added: Any = net.program.steps[slot - 1].module
        return cls(net, slot, added.weight, terms, np.repeat(of_interaction, statistics.bins.shape[1]))

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contribution of each term to the scores ``[B, terms, K]``, and the score that they start from ``[K]``."""
        program, position = self.net.program, self.slot - 2
        trees: Any = program.steps[position].module
        assert isinstance(trees, HardTrees)
        of_features, base = tree_shap(trees, self.net.run_in_slices(partial(program.inputs_of, position), rows))
        values = np.zeros((len(of_features), len(self.columns), len(base)))
        for feature, term in enumerate(self._of_feature.tolist()):
            values[:, term] += of_features[:, feature]
        return values, base
