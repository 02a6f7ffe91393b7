"""Fit a boosted residual, trees and a network: the procedure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.compiler.strategies import fastest
from windtunnel.encode import Batch
from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.modules.tables.cell_statistics import CellStatistics
from windtunnel.modules.threads import run_with_background
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.objectives.losses import Loss
from windtunnel.progress import Phase
from windtunnel.trainers.data.labelled_rows import LabelledRows
from windtunnel.trainers.residual.boosted.binned_features import BinnedFeatures
from windtunnel.trainers.residual.boosted.boosting import Boosting, Datasets, boost
from windtunnel.trainers.residual.boosted.cell_tables import ROW_BLOCKS
from windtunnel.trainers.residual.boosted.features import BoostedFeatures
from windtunnel.trainers.residual.boosted.fit_targets import FitTargets
from windtunnel.trainers.residual.boosted.network import NetworkTraining, scaled, train_network
from windtunnel.trainers.residual.init_scores import ResidualInputs, concat, in_row_blocks
from windtunnel.trainers.residual.mean_residuals import summand_weights
from windtunnel.trainers.significance.validation_halves import RowSubset, ValidationHalves

SHORT_RUN_TREES, SHORT_RUN_ROWS = 60, 30_000
"""Trees and rows of the short boosting runs that choose blocks of rows and interactions."""
KEPT_TABLES = 20
"""Tables that the final trees read: those on whose features the trees of the short runs gain most. Single categories
that are not among them are read too, as many at most."""


@dataclass(frozen=True)
class BoostedResidual:
    """A weighted mean of scores, those of trees and those of a network.

        f(x) = weight init(x) + v trees(x) + w network(x), weight = 1 - v - w

    init(x) are the scores before. Trees and network are fitted to the target, not to the residuals of init(x): the
    pipeline has seen the targets of the training rows, so that its residuals there are too small.
    """

    statistics: CellStatistics
    trees: HardTrees  # their leaf values and base are those of v trees(x)
    network: MultilayerPerceptron  # its last layer is that of w network(x)
    inputs: ResidualInputs  # the columns that the statistics read
    weight: float
    other_half_scores: Tensor  # ``[rows, K]``, f(x) of the validation rows, of each half as fitted on the other

    def scores(self, rows: Batch, init_scores: Tensor) -> Tensor:
        """f(x) ``[N, K]`` of rows without init scores; ``init_scores`` ``[N, K]`` are these."""
        added: Tensor = in_row_blocks(lambda x: self._added(self.statistics(x)), concat(self.inputs.select(rows)))
        return self.weight * init_scores + added

    def _added(self, features: Tensor) -> Tensor:
        added: Tensor = self.trees(features) + self.network(features)
        return added

    def shrunken(self, factor: float) -> BoostedResidual:
        """``init(x) + factor (f(x) - init(x))``."""
        trees, network = _times(self.trees.ensemble(), factor), scaled(self.network, factor)
        return replace(self, trees=trees, network=network, weight=1 - factor * (1 - self.weight))


@dataclass(frozen=True)
class FittedModels:
    """Trees and a network on the same features."""

    boosting: Boosting
    network: NetworkTraining
    base_score: Tensor  # ``[K]``, the constant that both start from
    features: NDArray[np.float32]  # of the validation rows, ``[rows, F]``

    def scores(self, subset: RowSubset) -> Tensor:
        """Scores ``[rows, K, 2]`` of the trees and the network that are best on a subset of the validation rows."""
        base_score, rounds = self.base_score, self.boosting.rounds(subset)
        trees = base_score + self.boosting.scores(self.features, rounds, len(base_score))
        return torch.stack([trees, self.network.scores_of(subset).to(trees)], dim=2)


def fit_boosted(
    features: BoostedFeatures,
    train: LabelledRows,
    valid: LabelledRows,
    split: ValidationHalves,
    loss: Loss,
    unit: Tensor,
    seed: int,
) -> BoostedResidual | None:
    """Fit trees and a network to the training rows, and average them with scores; None where no tree lowers the loss.

    Short runs show which blocks of rows and which interactions to use. Trees and network with these stop early on the
    validation rows, where the weights of the mean are learned. For the test, each half of these rows has the blocks,
    the number of trees, the epoch and the weights that have the lowest loss on the other half.

    ``train`` and ``valid`` have scores ``[N, K]``. Trees and network start from the mean of the scores of the training
    rows; the weighted mean is taken with the scores of the validation rows. ``split`` has the subsets of the validation
    rows, ``unit`` ``[K]`` is that of the scores.
    """
    scores, base_score = valid.rows, train.rows.mean(dim=0)
    targets = FitTargets(base_score, train.targets.take(features.sample), valid.targets, split, loss, unit, seed)
    short_runs = _short_runs(targets, features)
    if not any(run.rounds() for run in short_runs.values()):
        return None
    choices = {subset: _best(short_runs, subset) for subset in RowSubset}
    kinds = list(dict.fromkeys(choices.values()))
    binned = BinnedFeatures.of(features.take(_tables_to_read(features, short_runs.values())), kinds)
    fitted = _fit_models(targets, binned)
    best = fitted[choices[RowSubset.ALL]]
    if not best.boosting.rounds():
        return None

    def change(subset: RowSubset) -> tuple[Tensor, list[float]]:
        """f(x) minus the scores, and v and w; of what has the lowest loss on a subset of the validation rows."""
        changes = fitted[choices[subset]].scores(subset) - scores.unsqueeze(2)
        index = split.subsets[subset]
        weights = summand_weights(loss, unit, scores[index], changes[index], valid.targets.take(index))
        weights = weights / weights.sum().clamp_min(1.0)
        return changes @ weights, weights.tolist()

    other_half_scores = scores.clone()
    for half, tested in split.tested_on():
        other_half_scores[tested] += change(half)[0][tested]
    _, (v, w) = change(RowSubset.ALL)
    statistics, inputs = binned.module()
    trees = _times(_with_base(best.boosting.ensemble(), base_score, binned), v)
    network = scaled(best.network.layers, w)
    network.cast(scores.dtype)
    return BoostedResidual(statistics, trees, network, inputs, 1 - v - w, other_half_scores)


def _fit_models(targets: FitTargets, features: BinnedFeatures) -> dict[str, FittedModels]:
    """Trees and a network for each way of forming blocks; trees are boosted while networks are trained."""
    valid, threads = features.valid, _threads_of_two()

    def fit_trees(stop: Event) -> list[Boosting]:
        return [boost(targets, Datasets.of(train, valid, threads), stop=stop) for train in features.train.values()]

    def train_networks() -> list[NetworkTraining]:
        return [train_network(targets, train, valid) for train in features.train.values()]

    with Phase(f"boosting trees and training a network on {valid.shape[1]} features"):
        boostings, networks = run_with_background(fit_trees, train_networks)
    return {
        blocks: FittedModels(boosting, network, targets.base_score, valid)
        for blocks, boosting, network in zip(features.train, boostings, networks, strict=True)
    }


def _with_base(trees: TreeEnsemble, base_score: Tensor, features: BinnedFeatures) -> TreeEnsemble:
    """Trees that start from a constant ``[K]``, with the numbers that features can be."""
    feature_range = np.array([[0.0, largest] for largest in features.largest])
    return replace(trees, base=base_score.double().numpy(), feature_range=feature_range)


def _times(trees: TreeEnsemble, factor: float) -> HardTrees:
    """A multiple of the scores of trees."""
    return fastest(HardTrees.of(replace(trees, leaf_value=trees.leaf_value * factor, base=trees.base * factor)))


def _short_runs(targets: FitTargets, features: BoostedFeatures) -> dict[str, Boosting]:
    """A short boosting run for each way of forming blocks."""
    step, threads = -(-len(features.sample) // SHORT_RUN_ROWS), _threads_of_two()
    every_nth = targets.every(step)

    def short_run(blocks: str, stop: Event | None = None) -> Boosting:
        datasets = Datasets.of(features.train[blocks][::step], features.valid, threads)
        return boost(every_nth, datasets, SHORT_RUN_TREES, stop)

    first, second = ROW_BLOCKS
    with Phase("selecting target statistics by short boosting runs"):
        runs = run_with_background(partial(short_run, first), partial(short_run, second))
    return dict(zip(ROW_BLOCKS, runs, strict=True))


def _threads_of_two() -> int:
    """The threads of LightGBM for one of two fits at the same time."""
    return max(1, torch.get_num_threads() // 2)


def _best(short_runs: Mapping[str, Boosting], subset: RowSubset) -> str:
    """The blocks with the lowest loss on a subset of the validation rows."""
    return min(short_runs, key=lambda blocks: short_runs[blocks].lowest(subset))


def _tables_to_read(features: BoostedFeatures, short_runs: Iterable[Boosting]) -> list[int]:
    """Positions, ascending, of the tables that the final trees read: those with most gain, and single categories."""
    gains = np.sum([run.gains() for run in short_runs], axis=0)[: features.table_feature_count]
    strongest = (-gains.reshape(-1, features.width).sum(axis=1)).argsort(kind="stable")[:KEPT_TABLES].tolist()
    columns = [interaction.columns for interaction in features.tables.interactions]
    categories = [position for position, each in enumerate(columns) if features.coder.is_category(each)]
    return sorted({*strongest, *categories[:KEPT_TABLES]})
