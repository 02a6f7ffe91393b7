"""Contributions of a boosted residual: those of its features, added up by interaction and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import Batch
from windtunnel.modules.linear.integrated_gradients import integrated_gradients
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.tree_shap import tree_shap
from windtunnel.program.installed_residuals import BoostedSteps
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.coded_columns import CodedColumns
from windtunnel.program.terms.terms import Terms, term_columns
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class BoostedTerms(Terms):
    """The interactions and numbers of a boosted residual."""

    net: TranslatedPipeline
    steps: BoostedSteps
    KIND = "boosted residual"

    @classmethod
    def of(cls, net: TranslatedPipeline, steps: BoostedSteps, raw: RawColumns) -> BoostedTerms:
        """The terms of the boosted residual with these steps."""
        statistics: Any = net.program.steps[steps.statistics]
        coded = CodedColumns.of(statistics, raw)
        return cls(*term_columns(coded, _number_codes(statistics.module)), net, steps)

    @property
    def method(self) -> str:
        """How contributions are computed."""
        return (
            "path-dependent TreeSHAP of its trees, integrated gradients of its network from its mean input in training"
        )

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The contributions of encoded rows, and the score that they start from.

        That is the mean score of the trees' training rows, plus the network's score for the mean of its inputs there.
        """
        features = self._module(self.steps.statistics)(self.net.step_inputs(self.steps.statistics, rows))
        of_read, base = tree_shap(self._module(self.steps.trees), self.net.step_inputs(self.steps.trees, rows))
        of_features = np.zeros((*features.shape, len(base)))
        of_features[:, self._read(self.steps.trees)] += of_read
        network = self._module(self.steps.network)
        added, start = integrated_gradients(network, features, network.reference.to(features))
        of_features, base = of_features + added, base + start
        of_tables, of_numbers = np.split(of_features, [of_features.shape[1] - len(self.of_single)], axis=1)
        of_interactions = of_tables.reshape(len(of_tables), len(self.of_interaction), -1, len(base)).sum(axis=2)
        values = np.zeros((len(of_features), len(self.columns), len(base)))
        for terms, of_terms in ((self.of_interaction, of_interactions), (self.of_single, of_numbers)):
            for place, term in enumerate(terms):
                values[:, term] += of_terms[:, place]
        return values, base

    def _module(self, position: int) -> Any:
        return self.net.program.steps[position].module

    def _read(self, position: int) -> list[int]:
        """The features that a step reads; a compiled program leaves out those that no tree splits on."""
        return [column for _, column in self.net.program.steps[position].places()]


def _number_codes(statistics: CellStatistics) -> int:
    """How many features of the trees are codes of numbers, the last ones."""
    return len(statistics.edges) if statistics.number_codes else 0
