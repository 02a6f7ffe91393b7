"""Contributions of raw columns to the scores of a part of a program, exact or sampled."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import Batch
from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.linear.linear import Linear, LinearSkippingMissing
from windtunnel.modules.linear.projection import Projection
from windtunnel.modules.tables.category_table import SumGroups
from windtunnel.modules.tables.code_tables import CodeTables
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.tree_shap import tree_shap
from windtunnel.program.program import Program, position_of
from windtunnel.program.raw_columns import Dependencies, RawColumns, input_places
from windtunnel.program.translated import TranslatedPipeline

ADDITIVE = (Affine, CodeTables, Linear, LinearSkippingMissing, Projection, SumGroups)
"""Modules whose outputs are sums of functions of single input columns."""
Score = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Background:
    """Encoded rows that contributions are measured against, and what they are, such as "50 background rows"."""

    rows: Batch
    name: str


@dataclass(frozen=True)
class Contributions:
    """Contributions ``[B, columns, K]`` of raw columns, their base ``[K]``, and how they were computed.

    ``standard_error`` has the shape of the values; None for exact ones.
    """

    values: NDArray[np.float64]
    base: NDArray[np.float64]
    method: str
    standard_error: NDArray[np.float64] | None = None

    def times(self, weight: float) -> Contributions:
        """Contributions to a multiple of the scores."""
        error = None if self.standard_error is None else self.standard_error * weight
        return Contributions(self.values * weight, self.base * weight, self.method, error)


@dataclass(frozen=True)
class ScorePart:
    """Scores in the output of a program step, such as those of the pipeline before the residual model is added."""

    net: TranslatedPipeline
    raw: RawColumns
    slot: int
    columns: list[int]

    def contributions(self, rows: Batch, background: Callable[[], Background], samples: int) -> Contributions:
        """The contributions of all raw columns: exact for trees and sums of columns, sampled for other parts."""
        dependencies = Dependencies(self.net.program, self.raw)
        module = self.net.program.steps[position_of(self.slot)].module
        sources = dependencies.single(self.slot)
        if isinstance(module, HardTrees) and len(module.leaf_cover) and sources is not None:
            return self._of_trees(module, rows, sources)
        if all(self._is_additive(dependencies, self.slot, column) for column in self.columns):
            return self._of_sums(rows, background())
        return self._sampled(rows, background(), samples)

    def _of_trees(self, trees: HardTrees, rows: Batch, sources: list[int | None]) -> Contributions:
        """TreeSHAP of the encoded columns, those of a raw column added up; constant columns belong to the base."""
        inputs = self.net.step_inputs(position_of(self.slot), rows)
        of_encoded, base = tree_shap(trees, inputs)
        values = np.zeros((len(inputs), len(self.raw.names), len(base)))
        for column, source in enumerate(sources):
            if source is None:
                base = base + of_encoded[0, column]
            else:
                values[:, source] += of_encoded[:, column]
        method = "path-dependent TreeSHAP, against the training rows of the trees"
        return Contributions(values[:, :, self.columns], base[self.columns], method)

    def _is_additive(self, dependencies: Dependencies, slot: int, column: int) -> bool:
        if len(dependencies.of(slot, column)) < 2:
            return True
        if not isinstance(self.net.program.steps[position_of(slot)].module, ADDITIVE):
            return False
        return all(self._is_additive(dependencies, *place) for place in input_places(self.net.program, slot))

    def _of_sums(self, rows: Batch, background: Background) -> Contributions:
        """f(x) = sum_j f_j(x_j): f_j(x_j) less its mean over the background rows."""
        score = self._score(torch.float64)
        reference = background.rows.take(slice(1))
        start = score(reference).numpy()

        def of_column(batch: Batch, column: int) -> NDArray[np.float64]:
            present = torch.zeros(len(batch.ids), len(self.raw.names), dtype=torch.bool)
            present[:, column] = True
            mixed = blend(repeat_rows(reference, len(batch.ids)), batch, self.raw, present)
            moved: NDArray[np.float64] = score(mixed).numpy() - start
            return moved

        columns = range(len(self.raw.names))
        means = [of_column(background.rows, column).mean(axis=0) for column in columns]
        values = [of_column(rows, column) - mean for column, mean in zip(columns, means, strict=True)]
        method = f"exact for a sum of columns, against the mean of {background.name}"
        return Contributions(np.stack(values, axis=1), start[0] + np.sum(means, axis=0), method)

    def _sampled(self, rows: Batch, background: Background, samples: int) -> Contributions:
        """Means over background rows b, each with a random order of the columns and its reverse.

        From b on, the columns of x replace those of b in this order; a column gets the change of the score. Every row
        uses all background rows, so that the contributions add up to f(x) minus the mean of f(b).
        """
        score, generator = self._score(None), torch.Generator().manual_seed(0)
        count, columns = len(rows.ids), len(self.raw.names)
        others = len(background.rows.ids)
        chosen = evenly_spaced(others, samples)
        base = score(background.rows.take(chosen)).numpy()
        total = np.zeros((count, columns, base.shape[1]))
        squares = np.zeros_like(total)
        for row in chosen:
            order = torch.rand(count, columns, generator=generator).argsort(dim=1)
            start = repeat_rows(background.rows.take(row.view(1)), count)
            drawn = sum(self._walk(score, start, rows, walked) for walked in (order, order.flip(1))) / 2
            total += drawn
            squares += drawn**2
        mean, draws = total / len(chosen), len(chosen)
        variance = (squares / draws - mean**2).clip(min=0) / max(draws - 1, 1)
        method = f"Shapley values, sampled with {2 * draws} orders of the columns and {draws} of {background.name}"
        return Contributions(mean, base.mean(axis=0), method, np.sqrt(variance))

    def _walk(self, score: Score, start: Batch, rows: Batch, order: Tensor) -> NDArray[np.float64]:
        """Change of the score as the columns of each row come in, in an order per row ``[B, columns]``."""
        changes = np.zeros((len(order), len(self.raw.names), len(self.columns)))
        every_row, before, present = torch.arange(len(order)), score(start).double(), torch.zeros_like(order).bool()
        for place in range(order.shape[1]):
            present[every_row, order[:, place]] = True
            after = score(blend(start, rows, self.raw, present)).double()
            changes[every_row, order[:, place]] = (after - before).numpy()
            before = after
        return changes

    def _score(self, dtype: torch.dtype | None) -> Score:
        """The scores of this part, on a copy that computes in ``dtype`` if this is not None."""
        program = Program([*self.net.program.steps][: position_of(self.slot) + 1])
        if dtype is not None:
            program = deepcopy(program)
            for step in program.steps:
                step.module.cast(dtype)

        def run(numbers: Tensor, ids: Tensor) -> Tensor:
            output: Tensor = program(numbers if dtype is None else numbers.to(dtype), ids)
            return output[:, self.columns]

        return lambda batch: self.net.run_in_slices(run, batch)


def repeat_rows(batch: Batch, count: int) -> Batch:
    """A single row, ``count`` times."""
    return Batch(batch.numbers.expand(count, -1), batch.ids.expand(count, -1))


def blend(start: Batch, rows: Batch, raw: RawColumns, present: Tensor) -> Batch:
    """Rows with the raw columns of ``rows`` where ``present`` ``[B, columns]``, of ``start`` elsewhere."""
    numbers, ids = (torch.tensor(columns, dtype=torch.int64) for columns in (raw.numbers, raw.ids))
    return Batch(
        torch.where(present[:, numbers], rows.numbers, start.numbers), torch.where(present[:, ids], rows.ids, start.ids)
    )
