"""Fit a boosted residual: the procedure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from windtunnel.trainers.residual.init_scores import ResidualInputs, concat, in_slices
from windtunnel.trainers.residual.validation_rows import Items

RACE_RATE, RACE_TREES, RACE_ROWS = 0.1, 60, 30_000
"""Learning rate, trees and rows of a race, which chooses blocks of rows and the weight of the start scores."""
KEPT_INTERACTIONS = 20
"""Interactions that the final trees read: those on whose features the trees of the races gain most."""
WEIGHTS = (0.75, 0.5, 0.25)
"""Other weights than 1 of the scores to start from: a source that has fitted noise in its columns is worth less."""


@dataclass(frozen=True)
class BoostedResidual:
    """Trees over target statistics: f(x) = weight start(x) + trees(x), where start(x) are the scores to extend."""

    statistics: CellStatistics
    trees: HardTrees  # their base is the part of the mean score that the weight takes away
    inputs: ResidualInputs  # the columns that the statistics read
    weight: float
    crossfitted: Tensor  # ``[rows, K]``, f(x) of the validation rows; each half has what was chosen on the other half

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
class Choice:
    """What a race chooses."""

    blocks: str  # how blocks of rows are drawn: a name in ``BLOCKS``
    weight: float  # of the start scores


@dataclass(frozen=True)
class BoostingInput:
    """The rows to boost trees on, with the scores to start from."""

    train: BoostingRows  # the training rows of the sample
    valid: BoostingRows
    mean: Tensor  # ``[K]``, mean score of all training rows, towards which a weight below 1 draws the scores
    halves: Sequence[Tensor]  # indices of the validation rows in each half
    loss: Loss
    seed: int

    def weighted(self, scores: Tensor, weight: float) -> Tensor:
        """``weight`` times the scores plus ``1 - weight`` times their mean."""
        return weight * scores + (1 - weight) * self.mean

    def every(self, step: int) -> BoostingInput:
        """Start from every ``step``-th training row alone."""
        scores, target, weight = self.train
        train = BoostingRows(scores[::step], target[::step], None if weight is None else weight[::step])
        return replace(self, train=train)

    def boost(self, binned: BinnedFeatures, weight: float, rate: float = RATE, max_trees: int = MAX_TREES) -> Boosting:
        """Boost trees from the weighted scores."""
        train, valid = (rows._replace(scores=self.weighted(rows.scores, weight)) for rows in (self.train, self.valid))
        return boost(binned, train, valid, self.halves, self.loss, self.seed, rate, max_trees)


def fit_boosted(
    features: BoostedFeatures, train: Items, valid: Items, halves: Sequence[Tensor], loss: Loss, seed: int
) -> BoostedResidual | None:
    """Boost trees on top of scores; None where no tree lowers the loss of the validation rows.

    Races show which blocks of rows, which weight of the start scores, and which interactions to use. Boosting with
    these stops early on the validation rows. For the test, each half of these rows has the blocks, the weight and the
    number of trees that have the lowest loss on the other half.

    ``train`` and ``valid`` hold scores to start from ``[N, K]``, targets, and maybe weights; ``halves`` the indices of
    the validation rows in each half.
    """
    sampled = BoostingRows(*(block[features.sample] for block in train))
    start = BoostingInput(sampled, BoostingRows(*valid), train[0].mean(dim=0), halves, loss, seed)
    races = _race(start, features)
    if not any(race.rounds() for race in races.values()):
        return None
    choices = [_best(races, part) for part in range(3)]
    features = features.take(_strongest(features.width, races.values()))
    binned = {
        blocks: BinnedFeatures.of(features.train[blocks], features.valid) for blocks in {c.blocks for c in choices}
    }
    fitted = {choice: start.boost(binned[choice.blocks], choice.weight) for choice in dict.fromkeys(choices)}
    boosting, weight = fitted[choices[0]], choices[0].weight
    if not boosting.rounds():
        return None
    crossfitted, outputs = valid[0].clone(), valid[0].shape[1]
    for part, tested in ((1, halves[1]), (2, halves[0])):
        half, scores = fitted[choices[part]], start.weighted(valid[0][tested], choices[part].weight)
        crossfitted[tested] = scores + half.scores(features.valid[tested.numpy()], half.rounds(part), outputs)
    statistics, ensemble, inputs = features.with_trees(boosting.ensemble())
    trees = HardTrees.of(replace(ensemble, base=((1 - weight) * start.mean).double().numpy()))
    return BoostedResidual(statistics, fastest(trees), inputs, weight, crossfitted)


def _race(start: BoostingInput, features: BoostedFeatures) -> dict[Choice, Boosting]:
    """A race for each way of drawing blocks, then with the better one for smaller weights, as long as these win."""
    step = -(-len(features.sample) // RACE_ROWS)
    start = start.every(step)
    binned = {blocks: BinnedFeatures.of(rows[::step], features.valid) for blocks, rows in features.train.items()}

    def race(choice: Choice) -> Boosting:
        return start.boost(binned[choice.blocks], choice.weight, RACE_RATE, RACE_TREES)

    races = {choice: race(choice) for choice in (Choice(blocks, 1.0) for blocks in BLOCKS)}
    blocks = _best(races, 0).blocks
    for weight in WEIGHTS:
        choice = Choice(blocks, weight)
        races[choice] = race(choice)
        if _best(races, 0) != choice:
            break
    return races


def _best(races: Mapping[Choice, Boosting], part: int) -> Choice:
    """The choice with the lowest loss on all validation rows (0) or on a half (1, 2)."""
    return min(races, key=lambda choice: races[choice].lowest(part))


def _strongest(width: int, races: Iterable[Boosting]) -> list[int]:
    """Positions, ascending, of the interactions on whose features the trees gain most; each has ``width`` features."""
    gains = np.sum([race.gains() for race in races], axis=0).reshape(-1, width).sum(axis=1)
    return sorted((-gains).argsort(kind="stable")[:KEPT_INTERACTIONS].tolist())
