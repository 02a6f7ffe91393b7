"""The scores of fitted models by scikit-learn's metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.table import Table
from sklearn.metrics import (
    accuracy_score,
    log_loss,
    mean_absolute_error,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_tweedie_deviance,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from windtunnel.encode.row_values import check_length, encode_weights, to_arrays
from windtunnel.encode.rows import count_rows
from windtunnel.encode.rows_with_targets import rows_with_targets
from windtunnel.errors import BadInput
from windtunnel.modules.outputs.links import shares
from windtunnel.program.head import Head
from windtunnel.program.records.number_text import value_text

Scores = dict[str, dict[str, dict[str, float]]]
"""Model to part to metric to value; the first metric is the main one."""
LOSS_METRICS: dict[str, tuple[str, Callable[..., float]]] = {
    "absolute": ("mae", mean_absolute_error),
    "quantile": ("pinball_loss", mean_pinball_loss),
    "poisson": ("poisson_deviance", mean_poisson_deviance),
    "gamma": ("gamma_deviance", mean_gamma_deviance),
    "tweedie": ("tweedie_deviance", mean_tweedie_deviance),
}
"""Loss of a regressor to the name and function of its main metric, if the loss is not the squared error."""


def checked_test_rows(test: Any, head: Head) -> tuple[Any, ...]:
    """Test rows ``(X, y)`` or ``(X, y, weight)``; ``BadInput`` for others, and for labels that the head lacks."""
    X, y, weight = rows_with_targets("test= is", test)
    target, rows = np.asarray(y), count_rows(X)
    head.check_has_target()
    check_length("y", target, rows)
    if not rows:
        raise BadInput("test= has no rows; give at least one")
    if isinstance(head.classes, np.ndarray):
        head.encode_target(to_arrays(y))
    elif missing := pd.isna(target).sum():
        raise BadInput(f"{missing} targets of the test rows are missing; drop these rows")
    if weight is None:
        return X, target
    encode_weights(weight, len(target))
    return X, target, np.asarray(weight)


def measure(
    model: Any, X: pd.DataFrame, y: NDArray[Any], weight: NDArray[Any] | None = None, *, head: Head
) -> dict[str, float]:
    """Score a fitted model on rows that may have weights, the main metric first.

    Two classes: AUROC (NaN if y holds one class) and log loss. More classes: log loss and accuracy. One class, and
    classifiers without ``predict_proba``: accuracy; with two classes the AUROC of ``decision_function`` comes first.
    Several targets with classes: their mean accuracy. Regressors: the metric of the loss in ``head``, RMSE and R2.
    """
    if head.classes is None or not hasattr(model, "classes_"):  # CatBoost gives regressors an empty one
        values = model.predict(X)
        if values.ndim == 2 and y.ndim == 1:  # several quantiles of one target
            y = np.broadcast_to(y[:, None], values.shape)
        scores = {}
        if head.loss in LOSS_METRICS:
            name, metric = LOSS_METRICS[head.loss]
            scores[name] = _loss_metric(partial(metric, sample_weight=weight), y, values, head.loss_options)
        rmse, r2 = (float(score(y, values, sample_weight=weight)) for score in (root_mean_squared_error, r2_score))
        return scores | {"rmse": rmse, "r2": r2}
    classes = model.classes_
    if isinstance(classes, list):  # several targets
        labels = model.predict(X)
        targets = zip(y.T, labels.T, strict=True)
        return {"accuracy": float(np.mean([accuracy_score(*pair, sample_weight=weight) for pair in targets]))}
    probability = model.predict_proba(X) if hasattr(model, "predict_proba") else None
    scores = {}
    if len(classes) == 2 and (probability is not None or hasattr(model, "decision_function")):
        decision = model.decision_function(X) if probability is None else probability[:, 1]
        both = len(np.unique(y)) == 2
        auroc = roc_auc_score(y == classes[1], decision, sample_weight=weight) if both else np.nan
        scores["auroc"] = float(auroc)
    if probability is not None and len(classes) > 1:
        order = np.argsort(classes)  # scikit-learn takes the columns in the order of sorted labels
        if probability.min() < 0 or not np.allclose(probability.sum(axis=1), 1):  # of one-vs-all classifiers
            probability = shares(torch.from_numpy(probability)).numpy()
        loss = log_loss(y, probability[:, order], labels=classes[order], sample_weight=weight)
        scores["log_loss"] = float(loss)
    if probability is None or len(classes) != 2:
        scores["accuracy"] = float(accuracy_score(y, model.predict(X), sample_weight=weight))
    return scores


def _loss_metric(metric: Callable[..., float], y: Any, values: Any, options: Mapping[str, Any]) -> float:
    """A metric of scikit-learn; the mean over columns if each column has its own options."""
    if not any(isinstance(option, list) for option in options.values()):
        return float(metric(y, values, **options))
    columns = [dict(zip(options, column, strict=True)) for column in zip(*options.values(), strict=True)]
    return float(np.mean([metric(y[:, at], values[:, at], **column) for at, column in enumerate(columns)]))


def score_table(scores: Scores, seconds: Mapping[str, float] | None = None) -> Table:
    """A table of the main metric by model and part, and of the seconds."""
    parts = next(iter(scores.values()))
    metric = next(iter(parts["test"]))
    table = Table("model", *(f"{part} {metric}" for part in parts), *(["seconds"] if seconds else []))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, model in scores.items():
        cells = [value_text(model[part][metric]) for part in parts]
        table.add_row(name, *cells, *([f"{seconds[name]:.1f}"] if seconds else []))
    return table
