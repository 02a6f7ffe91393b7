"""Fit a boosted residual: the procedure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.encode import Batch
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss
from windtunnel.trainers.residual.boosted.boosting import MAX_TREES, RATE, BinnedFeatures, Boosting, BoostingRows, boost
from windtunnel.trainers.residual.boosted.cell_tables import BLOCKS
from windtunnel.trainers.residual.boosted.features import BoostedFeatures
from windtunnel.trainers.residual.init_scores import InputColumns, concat, in_slices
from windtunnel.trainers.residual.validation_rows import Items

RACE_RATE, RACE_TREES, RACE_ROWS = 0.1, 60, 30_000
"""Of the trees that show which blocks of rows and which weight to use, boosted on so many of the rows."""
KEPT_INTERACTIONS = 40
"""Those on whose features the trees of the races gain most."""
WEIGHTS = (1.0, 0.75, 0.5, 0.25)
"""Of the scores that boosting starts from: a source that has fitted noise in its columns is worth less than 1."""


@dataclass(frozen=True)
class BoostedResidual:
    """Trees over target statistics: f(x) = weight start(x) + trees(x), where start(x) are the scores to extend.

    Attributes
    ----------
    statistics : CellStatistics
    trees : HardTrees
        Their base is the part of the mean score that the weight takes away.
    inputs : InputColumns
        What the statistics read.
    weight : float
    crossfitted : Tensor
        ``[rows, K]``, f(x) of the validation rows; each half has what was chosen on the other half.
    """

    statistics: CellStatistics
    trees: HardTrees
    inputs: InputColumns
    weight: float
    crossfitted: Tensor

    def scores(self, rows: Batch, start: Tensor) -> Tensor:
        """f(x) ``[N, K]`` of rows without init scores, which start from the scores ``[N, K]``."""
        trees: Tensor = in_slices(lambda x: self.trees(self.statistics(x)), concat(self.inputs.select(rows)))
        return self.weight * start + trees


@dataclass(frozen=True)
class Choice:
    """What a few trees at a high rate choose between: how blocks are drawn, and the weight of the start."""

    blocks: str
    weight: float


def fit_boosted(
    features: BoostedFeatures, train: Items, valid: Items, halves: Sequence[Tensor], loss: Loss, seed: int
) -> BoostedResidual | None:
    """Boost trees on top of scores; None where no tree lowers the loss of the validation rows.

    A few trees at a high rate show which blocks of rows give features with the lower validation loss, which of
    ``WEIGHTS`` to multiply the start scores by, and which interactions gain most on the training rows. Boosting with
    these stops early on the validation rows. For the
    test, either half of these rows has the blocks, the weight and the number of trees that have the lowest loss on the
    other half.

    Parameters
    ----------
    features : BoostedFeatures
    train, valid : (Tensor, Tensor) or (Tensor, Tensor, Tensor)
        Scores to start from ``[N, K]``, targets and weights.
    halves : pair of Tensor
        Numbers of the validation rows in each half.
    loss : callable
    seed : int
    """
    mean: Tensor = train[0].mean(dim=0)
    outputs = train[0].shape[1]

    def weighted(scores: Tensor, weight: float) -> Tensor:
        return weight * scores + (1 - weight) * mean

    step = -(-len(features.sample) // RACE_ROWS)

    def run(
        binned: BinnedFeatures, choice: Choice, rate: float = RATE, max_trees: int = MAX_TREES, every: int = 1
    ) -> Boosting:
        scores, *rest = (block[features.sample][::every] for block in train)
        rows = BoostingRows(weighted(scores, choice.weight), *rest)
        of_valid = BoostingRows(weighted(valid[0], choice.weight), *valid[1:])
        return boost(binned, rows, of_valid, halves, loss, seed, rate, max_trees)

    races: dict[Choice, Boosting] = {}

    def best(of: int = 0) -> Choice:
        return min(races, key=lambda choice: races[choice].lowest(of))

    binned = {blocks: BinnedFeatures.of(rows[::step], features.valid) for blocks, rows in features.train.items()}
    for blocks in BLOCKS:
        races[Choice(blocks, 1.0)] = run(binned[blocks], Choice(blocks, 1.0), RACE_RATE, RACE_TREES, step)
    blocks = best().blocks
    for weight in WEIGHTS[1:]:
        races[Choice(blocks, weight)] = run(binned[blocks], Choice(blocks, weight), RACE_RATE, RACE_TREES, step)
        if best().weight != weight:
            break
    if not any(race.rounds() for race in races.values()):
        return None
    choices = [best(of) for of in range(3)]
    features = features.take(_strongest(features.width, races.values()))
    binned = {
        blocks: BinnedFeatures.of(features.train[blocks], features.valid) for blocks in {c.blocks for c in choices}
    }
    fitted = {choice: run(binned[choice.blocks], choice) for choice in dict.fromkeys(choices)}
    boosting = fitted[choices[0]]
    if not boosting.rounds():
        return None
    crossfitted = valid[0].clone()
    for of, tested in ((1, halves[1]), (2, halves[0])):
        of_half, start = fitted[choices[of]], weighted(valid[0][tested], choices[of].weight)
        crossfitted[tested] = start + of_half.scores(features.valid[tested.numpy()], of_half.rounds(of), outputs)
    statistics, ensemble, inputs = features.with_trees(boosting.ensemble())
    weight = choices[0].weight
    trees = HardTrees.of(replace(ensemble, base=((1 - weight) * mean).double().numpy()))
    return BoostedResidual(statistics, fastest(trees), inputs, weight, crossfitted)


def _strongest(width: int, races: Iterable[Boosting]) -> list[int]:
    """Positions, ascending, of the interactions on whose features the trees gain most; each has ``width`` features."""
    gains = np.sum([race.gains() for race in races], axis=0).reshape(-1, width).sum(axis=1)
    return sorted((-gains).argsort(kind="stable")[:KEPT_INTERACTIONS].tolist())
