"""Metrics over weighted rows: scikit-learn's functions of rows that torchmetrics collects.

torchmetrics' own metrics take no row weights, and compute in float32. Here torchmetrics collects rows batch by batch
and gathers them from all processes; the functions below compute in float64, with weights as ``sample_weight``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torchmetrics
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from torch import Tensor

Array = NDArray[Any]
Score = Callable[[Array, Array, Array], float]
"""Values ``[B, ...]``, targets and weights ``[B]``, above 0, to a number."""


class WeightedMetric(torchmetrics.Metric):
    """A function of the values, targets and weights of all rows since ``reset``.

    NaN where there are no rows, and where a value is NaN or infinite. Collects about 24 bytes per row and column of the
    values.
    """

    full_state_update = False
    values: list[Tensor]
    targets: list[Tensor]
    weights: list[Tensor]

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        for name in ("values", "targets", "weights"):
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, value: Tensor, target: Tensor, weight: Tensor) -> None:
        """Add a batch."""
        self.values.append(value.double())
        self.targets.append(target)
        self.weights.append(weight.double())

    def compute(self) -> Tensor:
        """The function of all rows, of all processes."""
        value, target, weight = map(_joined, (self.values, self.targets, self.weights))
        defined = len(value) > 0 and bool(np.isfinite(value).all())
        return torch.tensor(self.score(value, target, weight) if defined else math.nan, dtype=torch.float64)


def accuracy(label: Array, target: Array, weight: Array) -> float:
    """sum_i w_i [label_i = target_i] / sum_i w_i."""
    return float(np.average(label == target, weights=weight))


def log_loss(probability: Array, target: Array, weight: Array) -> float:
    """-sum_i w_i log p_i / sum_i w_i, with p_i the probability of the class of row i.

    Probabilities need not sum to 1 over the classes. They are clipped to [eps, 1 - eps], as scikit-learn's log_loss
    does, which would need all classes of each row.
    """
    eps = np.finfo(np.float64).eps
    return float(-np.average(np.log(probability.clip(eps, 1 - eps)), weights=weight))


def f1(label: Array, target: Array, weight: Array, *, labels: Sequence[int] | None = None) -> float:
    """The mean F1 over ``labels``, by default over the classes that occur as label or target."""
    options = {"labels": labels, "average": "macro", "sample_weight": weight, "zero_division": 0}
    return float(f1_score(target, label.astype(np.int64), **options))


def rmse(value: Array, target: Array, weight: Array) -> float:
    """The root mean squared error of values ``[B, K]``, the mean over the outputs."""
    return float(root_mean_squared_error(target.reshape(value.shape), value, sample_weight=weight))


def mae(value: Array, target: Array, weight: Array) -> float:
    """The mean absolute error of values ``[B, K]``, the mean over the outputs."""
    return float(mean_absolute_error(target.reshape(value.shape), value, sample_weight=weight))


def r2(value: Array, target: Array, weight: Array) -> float:
    """R2 of values ``[B, K]``, the mean over the outputs; NaN for fewer than two rows."""
    if len(value) < 2:
        return math.nan
    target = target.reshape(value.shape).astype(np.float64)
    # Constant targets become exactly 0: their variance must not be a rounding error.
    return float(r2_score(target - target[0], value - target[0], sample_weight=weight))


def auroc(number: Array, target: Array, weight: Array) -> float:
    """The area under the ROC curve; see ``_over_classes``. NaN for rows of one class."""
    return _over_classes(roc_auc_score, number, target, weight, {True, False})


def average_precision(number: Array, target: Array, weight: Array) -> float:
    """The average precision; see ``_over_classes``. NaN without a row of the class."""
    return _over_classes(average_precision_score, number, target, weight, {True})


def _over_classes(score: Any, number: Array, target: Array, weight: Array, needed: set[bool]) -> float:
    """A ranking metric of ``[B]`` numbers that are larger for class 1.

    For ``[B, classes]`` numbers the mean over the classes, one against the rest, with all ``needed`` kinds of rows.
    """
    columns = [(1, number)] if number.ndim == 1 else enumerate(number.T)
    parts = [
        score(target == label, column, sample_weight=weight)
        for label, column in columns
        if needed <= {*np.unique(target == label).tolist()}
    ]
    return float(np.mean(parts)) if parts else math.nan


BINARY_F1 = partial(f1, labels=[1])
"""F1 of the second of two classes."""


def _joined(state: Any) -> Array:
    # Synchronised states are tensors.
    rows: Array = (torch.cat(state) if isinstance(state, list) else state).cpu().numpy()
    return rows
