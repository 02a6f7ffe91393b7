"""scikit-learn's IterativeImputer over linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.imputers.chained_imputer import ChainedImputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.translators.preprocessing.nearest_imputer import flagged_of, mark_of
from windtunnel.translators.registry import Predictor, convert, translates

Array = NDArray[np.float64]


@translates(
    IterativeImputer,
    trainable="weights, bias, fill values",
    notes="linear estimators only, sample_posterior=False",
)
def iterative_imputer(fitted: IterativeImputer) -> ChainedImputer:
    """Reads imputation_sequence_, initial_imputer_, the bounds of each column and indicator_."""
    if fitted.sample_posterior:
        raise UnsupportedEstimator(
            "IterativeImputer draws its answers at random (sample_posterior=True); set it to False and fit again"
        )
    empty = np.asarray(fitted._is_empty_feature)
    kept = np.arange(len(empty)) if fitted.keep_empty_features else np.flatnonzero(~empty)
    # Without rounds, or with nothing missing in fit, there are neither steps nor bounds.
    sequence = fitted.imputation_sequence_ if fitted.n_iter_ else []
    weight, bias = np.zeros((len(sequence), len(kept))), np.zeros(len(sequence))
    for step, one in enumerate(sequence):
        linear = _linear(one.estimator)
        weight[step, np.asarray(one.neighbor_feat_idx)] = linear.weight.detach().numpy()[0]
        bias[step] = float(linear.bias.detach()[0])
    low, high = _bounds(fitted, "_min_value", len(kept), -np.inf), _bounds(fitted, "_max_value", len(kept), np.inf)
    return ChainedImputer(
        fill=torch.from_numpy(_first(fitted)[kept]),
        weight=torch.from_numpy(weight),
        bias=torch.from_numpy(bias),
        low=torch.from_numpy(low),
        high=torch.from_numpy(high),
        order=torch.tensor([int(one.feat_idx) for one in sequence], dtype=torch.int64),
        missing=mark_of(fitted),
        kept=torch.from_numpy(kept.astype(np.int64)),
        constant=torch.from_numpy(np.flatnonzero(empty[kept]).astype(np.int64)),
        flagged=flagged_of(fitted),
    )


def _first(fitted: IterativeImputer) -> Array:
    """What each input column is filled with at first."""
    statistics = np.asarray(fitted.initial_imputer_.statistics_, dtype=np.float64)
    return np.nan_to_num(statistics, nan=0.0)


def _bounds(fitted: Any, name: str, width: int, none: float) -> Array:
    """The bound of each kept column, as ``IterativeImputer`` looks it up."""
    limit = getattr(fitted, name, np.full(width, none))
    return np.array([float(limit[column]) for column in range(width)])


def _linear(estimator: Any) -> Linear:
    """The linear map that an estimator predicts with; ``read`` rejects what has no translation."""
    reading = convert(estimator)
    if isinstance(reading, Predictor) and isinstance(reading.scores, Linear) and reading.link == "identity":
        plain = len(reading.scores.bias) == 1 and "predict" not in reading.methods and reading.classes is None
        if plain and not hasattr(estimator, "classes_"):
            return reading.scores
    raise UnsupportedEstimator(
        f"IterativeImputer predicts with {type(estimator).__name__}; linear regressions such as BayesianRidge, Ridge "
        "and LinearRegression can be translated there"
    )
