"""LightGBM from a constant, for any loss, with the best number of trees for each half of the validation rows."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.objectives.derivatives import derivatives
from windtunnel.objectives.losses import Loss
from windtunnel.trainers.residual.boosted.fit_targets import FitTargets
from windtunnel.trainers.significance.validation_halves import RowSubset

OPTIONS: dict[str, Any] = {
    "num_leaves": 15,
    "lambda_l2": 5.0,
    "feature_fraction": 0.25,
    "max_bin": 63,
    "force_row_wise": True,
    "deterministic": True,
    "verbosity": -1,
    "metric": "none",
}
"""Deterministic, whatever the number of threads."""
RATE, PATIENCE, MAX_TREES = 0.1, 50, 600
LEAST_CURVATURE = 1e-6


@dataclass(frozen=True)
class Datasets:
    """Features of training and validation rows in the form of LightGBM, which takes as long as some dozens of trees."""

    train: Any
    valid: Any
    threads: int  # of LightGBM

    @classmethod
    def of(cls, train: NDArray[np.float32], valid: NDArray[np.float32], threads: int) -> Datasets:
        """Bin features ``[N, F]`` of training rows, and those of validation rows by the same borders."""
        import lightgbm

        options = OPTIONS | {"num_threads": threads}
        binned = lightgbm.Dataset(train, np.zeros(len(train)), params=dict(options)).construct()
        binned_valid = lightgbm.Dataset(valid, np.zeros(len(valid)), reference=binned, params=dict(options))
        return cls(binned, binned_valid.construct(), threads)


@dataclass(frozen=True)
class Boosting:
    """Boosted trees, and their losses on the validation rows."""

    booster: Any
    losses: NDArray[np.float64]  # ``[rounds + 1, 3]``, on each ``RowSubset``; the first row is without a tree

    def rounds(self, subset: RowSubset = RowSubset.ALL) -> int:
        """The number of rounds with the lowest loss on a subset of the validation rows."""
        return int(self.losses[:, subset].argmin())

    def lowest(self, subset: RowSubset = RowSubset.ALL) -> float:
        """The lowest loss on a subset of the validation rows."""
        return float(self.losses[:, subset].min())

    def scores(self, features: NDArray[np.float32], rounds: int, outputs: int) -> Tensor:
        """The scores of the trees of the first rounds, ``[N, K]``."""
        if not rounds:
            return torch.zeros(len(features), outputs)
        values = self.booster.predict(features, raw_score=True, num_iteration=rounds)
        return torch.from_numpy(values.reshape(len(features), outputs)).float()

    def gains(self) -> NDArray[np.float64]:
        """The gain of all splits on each feature on the training rows, ``[F]``."""
        gains: NDArray[np.float64] = self.booster.feature_importance("gain", iteration=-1)
        return gains

    def ensemble(self) -> TreeEnsemble:
        """The trees of the best number of rounds on all validation rows."""
        from windtunnel.translators.trees.lightgbm import tree_ensemble

        self.booster.best_iteration = self.rounds()
        return tree_ensemble(self.booster)


def boost(targets: FitTargets, features: Datasets, max_trees: int = MAX_TREES, stop: Event | None = None) -> Boosting:
    """Boost trees on the features, until ``PATIENCE`` rounds have not lowered the loss of the validation rows.

    Once ``stop`` is set, boosting ends; what it returns then is not used.
    """
    import lightgbm

    base_score, outputs = targets.base_score, len(targets.base_score)
    losses: list[list[float]] = []

    def objective(scores: NDArray[np.float64], _: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return boosting_derivatives(targets.loss, _columns(scores, outputs), *targets.train, unit=targets.unit)

    def evaluate(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
        with torch.no_grad():
            losses.append(targets.losses_on_subsets(_columns(scores, outputs)))
        return "loss", losses[-1][0], False

    def end_if_stopped(_: Any) -> None:
        if stop is not None and stop.is_set():
            raise lightgbm.callback.EarlyStopException(0, [])

    train_scores, valid_scores = (
        _flat(base_score.repeat(len(rows.target), 1)) for rows in (targets.train, targets.valid)
    )
    features.train.set_init_score(train_scores)
    features.valid.set_init_score(valid_scores)
    options = OPTIONS | {"learning_rate": RATE, "seed": targets.seed, "num_threads": features.threads}
    evaluate(valid_scores, None)  # without a tree
    booster = lightgbm.train(
        options | {"objective": objective, "num_class": outputs},
        features.train,
        max_trees,
        valid_sets=[features.valid],
        feval=evaluate,
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), end_if_stopped],
    )
    return Boosting(booster, np.array(losses))


def boosting_derivatives(
    loss: Loss, scores: Tensor, target: Tensor, weight: Tensor | None = None, *, unit: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """First and second derivatives of the loss of each row by each of its scores, ``[N, K]``.

    The second is at least 1e-6. Losses whose second derivative is 0 everywhere, such as absolute errors, have steps of
    ``unit`` ``[K]``, that of the scores: their first derivative is multiplied by it, and the second is 1.
    """
    first, second = derivatives(lambda scores: loss(scores, target, weight) * len(scores), scores)
    if not second.any():
        return _flat(first * unit), _flat(torch.ones_like(second))
    return _flat(first), _flat(second.clamp_min(LEAST_CURVATURE))


def _columns(scores: NDArray[np.float64], outputs: int) -> Tensor:
    return torch.from_numpy(scores.reshape(-1, outputs)).float()


def _flat(values: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = values.detach().double().numpy()
    return array[:, 0] if array.shape[1] == 1 else array
