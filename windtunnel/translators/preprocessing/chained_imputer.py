"""scikit-learn's IterativeImputer over linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.imputers.chained_imputer import ChainedImputer
from windtunnel.modules.linear.linear import Linear
from windtunnel.translators.arrays import dense, indices, tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.preprocessing.nearest_imputer import flagged_columns, missing_marker
from windtunnel.translators.registry import convert, translates


@translates(
    IterativeImputer, trainable="weights, bias, fill values", notes="linear estimators only, sample_posterior=False"
)
def iterative_imputer(fitted: IterativeImputer) -> ChainedImputer:
    """Reads imputation_sequence_, initial_imputer_, the bounds of each column and indicator_."""
    if fitted.sample_posterior:
        raise UnsupportedEstimator(
            "IterativeImputer draws its imputations at random (sample_posterior=True); set it to False and fit again"
        )
    empty = np.asarray(fitted._is_empty_feature)
    kept = np.arange(len(empty)) if fitted.keep_empty_features else np.flatnonzero(~empty)
    # Without rounds, or with nothing missing in fit, there are neither steps nor bounds.
    sequence = fitted.imputation_sequence_ if fitted.n_iter_ else []
    weight, bias = np.zeros((len(sequence), len(kept))), np.zeros(len(sequence))
    for number, step in enumerate(sequence):
        linear = _linear(step.estimator)
        weight[number, np.asarray(step.neighbor_feat_idx)] = linear.weight.detach().numpy()[0]
        bias[number] = float(linear.bias.detach()[0])
    return ChainedImputer(
        fill=tensor(np.nan_to_num(dense(fitted.initial_imputer_.statistics_), nan=0.0)[kept]),
        weight=tensor(weight),
        bias=tensor(bias),
        low=_bounds(fitted, "_min_value", len(kept), -np.inf),
        high=_bounds(fitted, "_max_value", len(kept), np.inf),
        order=indices([step.feat_idx for step in sequence]),
        missing=missing_marker(fitted),
        kept=indices(kept),
        constant=indices(np.flatnonzero(empty[kept])),
        flagged=flagged_columns(fitted),
    )


def _bounds(fitted: Any, name: str, width: int, default: float) -> Tensor:
    """The bound of each kept column, as ``IterativeImputer`` looks it up."""
    return tensor(getattr(fitted, name, np.full(width, default))[:width])


def _linear(estimator: Any) -> Linear:
    """The linear map that an estimator predicts with; ``convert`` raises for one without a translation."""
    conversion = convert(estimator)
    if isinstance(conversion, Predictor) and isinstance(conversion.scores, Linear) and conversion.link == "identity":
        plain = len(conversion.scores.bias) == 1 and "predict" not in conversion.methods and conversion.classes is None
        if plain and not hasattr(estimator, "classes_"):
            return conversion.scores
    raise UnsupportedEstimator(
        f"IterativeImputer predicts with {type(estimator).__name__}; linear regressions such as BayesianRidge, Ridge "
        "and LinearRegression can be translated there"
    )
