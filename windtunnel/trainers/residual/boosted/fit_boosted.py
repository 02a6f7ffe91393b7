"""Fit a boosted residual: the procedure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.encode import Batch
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss
from windtunnel.trainers.residual.boosted.boosting import BoostingRows, boost
from windtunnel.trainers.residual.boosted.cell_tables import BLOCKS
from windtunnel.trainers.residual.boosted.features import BoostedFeatures
from windtunnel.trainers.residual.init_scores import InputColumns, concat, in_slices
from windtunnel.trainers.residual.validation_rows import Items

RACE_RATE, RACE_TREES = 0.1, 60
"""Of the trees that show which blocks of rows to use."""


@dataclass(frozen=True)
class BoostedResidual:
    """Trees over target statistics, whose scores are added to those that boosting started from.

    Attributes
    ----------
    statistics : CellStatistics
    trees : HardTrees
    inputs : InputColumns
        What the statistics read.
    crossfitted : Tensor
        ``[rows, K]``, scores of the validation rows; each half has the trees that were chosen on the other half.
    """

    statistics: CellStatistics
    trees: HardTrees
    inputs: InputColumns
    crossfitted: Tensor

    def scores(self, rows: Batch) -> Tensor:
        """The scores to add, ``[N, K]``."""
        return in_slices(lambda x: self.trees(self.statistics(x)), concat(self.inputs.select(rows)))


def fit_boosted(
    features: BoostedFeatures, train: Items, valid: Items, halves: Sequence[Tensor], loss: Loss, seed: int
) -> BoostedResidual | None:
    """Boost trees from init scores; None where no tree lowers the loss of the validation rows.

    A few trees at a high rate show which blocks of rows give features with the lower validation loss. Boosting with
    these stops early on the validation rows. For the test, either half of these rows has the blocks and the number of
    trees that have the lowest loss on the other half.

    Parameters
    ----------
    features : BoostedFeatures
    train, valid : (Tensor, Tensor) or (Tensor, Tensor, Tensor)
        Init scores ``[N, K]``, targets and weights.
    halves : pair of Tensor
        Numbers of the validation rows in each half.
    loss : callable
    seed : int
    """
    sampled = [block[features.sample] for block in train]
    rows = {kind: _rows(part, *sampled) for kind, part in features.train.items()}
    of_valid, outputs = _rows(features.valid, *valid), train[0].shape[1]
    races = {kind: boost(rows[kind], of_valid, halves, loss, seed, RACE_RATE, RACE_TREES) for kind in BLOCKS}
    blocks = [min(races, key=lambda kind: races[kind].lowest(part)) for part in range(3)]
    fitted = {kind: boost(rows[kind], of_valid, halves, loss, seed) for kind in dict.fromkeys(blocks)}
    boosting = fitted[blocks[0]]
    if not boosting.rounds():
        return None
    crossfitted = torch.zeros_like(valid[0])
    for part, tested in ((1, halves[1]), (2, halves[0])):
        of_half = fitted[blocks[part]]
        crossfitted[tested] = of_half.scores(features.valid[tested.numpy()], of_half.rounds(part), outputs)
    statistics, ensemble, inputs = features.with_trees(boosting.ensemble())
    return BoostedResidual(statistics, fastest(HardTrees.of(ensemble)), inputs, crossfitted)


def _rows(features: np.ndarray, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> BoostingRows:
    return BoostingRows(features, scores, target, weight)
