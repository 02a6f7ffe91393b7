"""Contributions of a boosted residual: those of its features, added up by interaction and column."""

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
from windtunnel.program.raw_columns import RawColumns
from windtunnel.program.terms.residual_terms import CodedColumns
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class BoostedTerms:
    """The interactions and columns of a boosted residual, each with the raw columns that it reads."""

    net: TranslatedPipeline
    trees: int  # position of the step of the trees
    network: int  # position of the step of the network
    weight: float  # of the scores that those of trees and network are added to
    coded: CodedColumns  # what the target statistics read
    columns: list[tuple[int, ...]]
    """Raw columns of each term, ascending. Interactions and columns with the same raw columns are one term."""
    _of_interaction: list[int]
    _of_column: list[int]

    @classmethod
    def of(cls, net: TranslatedPipeline, position: int, raw: RawColumns) -> BoostedTerms:
        """The terms of the trees behind the target statistics at a position."""
        steps: Any = net.program.steps
        statistics, total = steps[position], steps[position + 4]
        coded = CodedColumns.of(statistics, raw)
        interactions = [coded.raw_columns(columns) for columns in coded.interactions]
        single = [coded.raw_columns([column]) for column in range(len(statistics.module.size))]
        terms = sorted({*interactions, *single}, key=lambda columns: (len(columns), columns))
        of_interaction, of_column = ([terms.index(columns) for columns in each] for each in (interactions, single))
        return cls(net, position + 1, position + 2, total.module.weight, coded, terms, of_interaction, of_column)

    @property
    def method(self) -> str:
        """How contributions are computed."""
        return "path-dependent TreeSHAP of its trees, integrated gradients of its network"

    def of_rows(self, rows: Batch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contribution of each term to the scores ``[B, terms, K]``, and the score that they start from ``[K]``."""
        trees = self._module(self.trees)
        of_trees, base = tree_shap(trees, self._inputs(self.trees, rows))
        of_network, start = self._of_network(rows, trees.ensemble().feature_range)
        of_features, base = of_trees + of_network, base + start
        of_tables, of_columns = np.split(of_features, [of_features.shape[1] - len(self._of_column)], axis=1)
        of_interactions = of_tables.reshape(len(of_tables), len(self._of_interaction), -1, len(base)).sum(axis=2)
        values = np.zeros((len(of_features), len(self.columns), len(base)))
        for terms, of_terms in ((self._of_interaction, of_interactions), (self._of_column, of_columns)):
            for place, term in enumerate(terms):
                values[:, term] += of_terms[:, place]
        return values, base

    def _of_network(
        self, rows: Batch, feature_range: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Contributions of the features ``[B, F, K]`` to the output of the network, and where they start ``[K]``.

        They start from the middle of each number and from category 0, an unknown one. The entries of the table rows
        that codes pick are inputs as numeric features are; their contributions are those of the codes.
        """
        network, inputs = self._module(self.network), self._inputs(self.network, rows)  # numeric features, then codes
        count = network.hidden_weight.shape[1]
        codes = [place for _, place in self._step(self.network).places()][count:]  # their places among the features
        middle = torch.from_numpy(feature_range.mean(axis=1)).to(inputs)
        middle[count:] = 0
        start = torch.cat([middle[:count], middle[codes]]).unsqueeze(0)

        def with_rows(inputs: Tensor) -> Tensor:
            picked: Tensor = network.picked_rows(inputs[:, count:]).detach()
            return torch.cat([inputs[:, :count], picked.flatten(1)], dim=1)

        def output(x: Tensor) -> Tensor:
            scores: Tensor = network.output(x[:, :count], x[:, count:].view(len(x), len(codes), -1))
            return scores

        values, base = integrated_gradients(output, with_rows(inputs), with_rows(start)[0])
        of_features = np.zeros((len(values), len(middle), len(base)))
        of_features[:, :count] = values[:, :count]
        of_features[:, codes] += values[:, count:].reshape(len(values), len(codes), -1, len(base)).sum(axis=2)
        return of_features, base

    def _step(self, position: int) -> Any:
        return self.net.program.steps[position]

    def _module(self, position: int) -> Any:
        return self._step(position).module

    def _inputs(self, position: int, rows: Batch) -> Tensor:
        return self.net.run_in_slices(partial(self.net.program.inputs_of, position), rows)

    def inputs_of(self, term: int) -> list[int]:
        """The input columns that a term reads."""
        pairs = zip(self.coded.interactions, self._of_interaction, strict=True)
        columns = {column for interaction, its_term in pairs if its_term == term for column in interaction}
        columns |= {column for column, its_term in enumerate(self._of_column) if its_term == term}
        return sorted(columns, key=lambda column: self.coded.sources[column])


def boosted_terms(net: TranslatedPipeline, raw: RawColumns) -> BoostedTerms | None:
    """The terms of the boosted residual of a translation; None without one."""
    position = next((at for at, step in enumerate(net.program.steps) if isinstance(step.module, CellStatistics)), None)
    return None if position is None else BoostedTerms.of(net, position, raw)
