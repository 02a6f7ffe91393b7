"""Fit a boosted residual: the procedure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.encode import Batch
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss
from windtunnel.trainers.residual.boosted.boosting import MAX_TREES, BinnedFeatures, Boosting, BoostingRows, boost
from windtunnel.trainers.residual.boosted.cell_tables import BLOCKS
from windtunnel.trainers.residual.boosted.features import BoostedFeatures
from windtunnel.trainers.residual.init_scores import ResidualInputs, concat, in_slices
from windtunnel.trainers.residual.mean_residuals import part_weights
from windtunnel.trainers.residual.validation_rows import Items

RACE_TREES, RACE_ROWS = 60, 30_000
"""Trees and rows of a race, which chooses blocks of rows and interactions."""
KEPT_TABLES = 20
"""Tables that the final trees read: those on whose features the trees of the races gain most. Single categories that
are not among them are read too, as many at most."""


@dataclass(frozen=True)
class BoostedResidual:
    """A weighted mean of scores and those of trees: f(x) = weight start(x) + (1 - weight) trees(x).

    The trees are not fitted to what the scores leave over, but to the target: the pipeline has seen the targets of the
    training rows, on which it leaves too little.
    """

    statistics: CellStatistics
    trees: HardTrees  # their leaf values and base are those of (1 - weight) trees(x)
    inputs: ResidualInputs  # the columns that the statistics read
    weight: float
    crossfitted: Tensor  # ``[rows, K]``, f(x) of the validation rows; each half has what was fitted on the other half

    def scores(self, rows: Batch, start: Tensor) -> Tensor:
        """f(x) ``[N, K]`` of rows without init scores, which start from the scores ``[N, K]``."""
        trees: Tensor = in_slices(lambda x: self.trees(self.statistics(x)), concat(self.inputs.select(rows)))
        return self.weight * start + trees

    def shrunken(self, factor: float) -> BoostedResidual:
        """``start(x) + factor (f(x) - start(x))``."""
        ensemble = self.trees.ensemble()
        trees = HardTrees.of(replace(ensemble, leaf_value=ensemble.leaf_value * factor, base=ensemble.base * factor))
        return replace(self, trees=fastest(trees), weight=1 - factor * (1 - self.weight))


@dataclass(frozen=True)
class BoostingInput:
    """The rows to boost trees on, which start from a constant."""

    start: Tensor  # ``[K]``, the constant
    train: BoostingRows  # the training rows of the sample
    valid: BoostingRows
    halves: Sequence[Tensor]  # indices of the validation rows in each half
    loss: Loss
    seed: int

    def every(self, step: int) -> BoostingInput:
        """Every ``step``-th training row alone."""
        target, weight = self.train
        train = BoostingRows(target[::step], None if weight is None else weight[::step])
        return replace(self, train=train)

    def boost(self, binned: BinnedFeatures, max_trees: int = MAX_TREES) -> Boosting:
        """Boost trees on these features."""
        return boost(binned, self.start, self.train, self.valid, self.halves, self.loss, self.seed, max_trees)


def fit_boosted(
    features: BoostedFeatures, train: Items, valid: Items, halves: Sequence[Tensor], loss: Loss, unit: Tensor, seed: int
) -> BoostedResidual | None:
    """Boost trees on the training rows, and average them with scores; None where no tree lowers the loss.

    Races show which blocks of rows and which interactions to use. Boosting with these stops early on the validation
    rows, where the weight of the mean is learned. For the test, each half of these rows has the blocks, the number of
    trees and the weight that have the lowest loss on the other half.

    ``train`` and ``valid`` hold scores ``[N, K]``, targets, and maybe weights. Trees start from the mean of the scores
    of the training rows; the mean is taken with the scores of the validation rows. ``halves`` are the indices of the
    validation rows in each half, ``unit`` ``[K]`` is that of the scores.
    """
    scores, mean = valid[0], train[0].mean(dim=0)
    sampled = BoostingRows(*(block[features.sample] for block in train[1:]))
    rows = BoostingInput(mean, sampled, BoostingRows(*valid[1:]), halves, loss, seed)
    races = _races(rows, features)
    if not any(race.rounds() for race in races.values()):
        return None
    choices = [_best(races, part) for part in range(3)]
    features = features.take(_tables_to_read(features, races.values()))
    fitted = {
        blocks: rows.boost(BinnedFeatures.of(features.train[blocks], features.valid))
        for blocks in dict.fromkeys(choices)
    }
    if not fitted[choices[0]].rounds():
        return None
    parts = [torch.cat(list(halves)), *halves]

    def change(part: int) -> tuple[Tensor, float]:
        """f(x) minus the scores, and 1 - weight; of what has the lowest loss on all validation rows (0) or a half."""
        boosting = fitted[choices[part]]
        of_trees = mean + boosting.scores(features.valid, boosting.rounds(part), len(mean)) - scores
        of_part = [block[parts[part]] for block in (scores, of_trees.unsqueeze(2), *valid[1:])]
        factor = min(float(part_weights(loss, unit, *of_part)), 1.0)
        return factor * of_trees, factor

    crossfitted = scores.clone()
    for part, tested in ((1, halves[1]), (2, halves[0])):
        crossfitted[tested] += change(part)[0][tested]
    statistics, ensemble, inputs = features.with_trees(fitted[choices[0]].ensemble())
    trees = HardTrees.of(replace(ensemble, base=mean.double().numpy()))
    return BoostedResidual(statistics, trees, inputs, 0.0, crossfitted).shrunken(change(0)[1])


def _races(rows: BoostingInput, features: BoostedFeatures) -> dict[str, Boosting]:
    """A race for each way of drawing blocks."""
    step = -(-len(features.sample) // RACE_ROWS)
    rows = rows.every(step)

    def race(blocks: str) -> Boosting:
        return rows.boost(BinnedFeatures.of(features.train[blocks][::step], features.valid), RACE_TREES)

    return {blocks: race(blocks) for blocks in BLOCKS}


def _best(races: Mapping[str, Boosting], part: int) -> str:
    """The blocks with the lowest loss on all validation rows (0) or on a half (1, 2)."""
    return min(races, key=lambda blocks: races[blocks].lowest(part))


def _tables_to_read(features: BoostedFeatures, races: Iterable[Boosting]) -> list[int]:
    """Positions, ascending, of the tables that the final trees read: those with most gain, and single categories."""
    gains = np.sum([race.gains() for race in races], axis=0)[: features.of_tables]
    strongest = (-gains.reshape(-1, features.width).sum(axis=1)).argsort(kind="stable")[:KEPT_TABLES].tolist()
    columns = [interaction.columns for interaction in features.tables.interactions]
    categories = [position for position, each in enumerate(columns) if features.coder.is_category(each)]
    return sorted({*strongest, *categories[:KEPT_TABLES]})
