"""scikit-learn's isolation forest."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.ensemble import IsolationForest

from windtunnel.modules.outputs.class_outputs import IsolationScore
from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE
from windtunnel.translators.trees.sklearn_trees import tree_ensemble

EULER = float(np.euler_gamma)


@translates(
    IsolationForest,
    trainable=TRAINABLE,
    notes="the raw score is the path length over the expected one; fine-tuned to tell inliers (1) from outliers (-1)",
)
def isolation_forest(fitted: IsolationForest) -> Predictor:
    """Path lengths of ``estimators_``: s = sum over trees of depth + c(rows in the leaf), over T c(max_samples_).

    ``score_samples`` is -2^-s, ``decision_function`` this less ``offset_``; a row is an inlier if it is not negative.
    """
    trees = [member.tree_ for member in fitted.estimators_]
    # The source adds 1 - 1 for the root; the order of the sum is kept, as contamination ties scores to the offset.
    values = [tree.compute_node_depths() + _path_length(tree.n_node_samples) - 1.0 for tree in trees]
    expected = len(trees) * float(_path_length(np.array([fitted.max_samples_]))[0])
    model = tree_ensemble(
        trees,
        values if expected else [np.zeros(tree.node_count) for tree in trees],
        width=int(fitted.n_features_in_),
        # With one row per tree there is no path; the source takes 1 as the ratio.
        base=[0.0 if expected else 1.0],
        divisor=expected or 1.0,
        features=fitted.estimators_features_,
    )
    offset = tensor(fitted.offset_)
    return Predictor(
        HardTrees.of(model),
        loss="logistic",
        classes=np.array([-1, 1]),
        methods={
            "predict": LabelThreshold(tensor(_least_inlier(float(fitted.offset_)))),
            "score_samples": IsolationScore(torch.zeros_like(offset)),
            "decision_function": IsolationScore(offset),
        },
    )


def _path_length(rows: np.ndarray) -> np.ndarray:
    """c(n), the mean depth of a leaf in a random tree over n rows: 0 for 1 row, 1 for 2 rows."""
    many = np.maximum(rows, 3).astype(np.float64)
    length = 2.0 * (np.log(many - 1.0) + EULER) - 2.0 * (many - 1.0) / many
    return np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, length))


def _least_inlier(offset: float) -> float:
    """The smallest s with -2^-s - offset >= 0 in floating-point numbers, by bisection."""
    low, high = 0.0, 2000.0
    if not _inlier(high, offset):
        return float("inf")
    if _inlier(low, offset):
        return low
    while (middle := (low + high) / 2) not in (low, high):
        if _inlier(middle, offset):
            high = middle
        else:
            low = middle
    return high


def _inlier(score: float, offset: float) -> bool:
    return bool(-(2 ** (-np.array([score]))) - offset >= 0)
