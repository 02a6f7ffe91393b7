"""scikit-learn's KNNImputer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.impute import KNNImputer
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.imputers.nearest_imputer import NearestImputer
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.registry import translates


@translates(
    KNNImputer,
    differentiable=False,
    notes="exact mode only, and where no column was fitted on equal values: among rows that are equally far the "
    "source's choice depends on NumPy and the processor",
)
def knn_imputer(fitted: KNNImputer) -> NearestImputer:
    """Means of the nearest rows. Reads _fit_X, _mask_fit_X, n_neighbors, weights, missing_values and indicator_."""
    if callable(fitted.weights) or callable(fitted.metric):
        raise UnsupportedEstimator(
            "KNNImputer calls a function for its weights or distances; weights='uniform' or 'distance' and "
            "metric='nan_euclidean' can be translated"
        )
    known = ~fitted._mask_fit_X
    _check_ties(np.asarray(fitted._fit_X), known)
    rows = np.where(known, np.asarray(fitted._fit_X, dtype=np.float64), 0.0)
    count = known.sum(axis=0)
    valid = count > 0
    kept = np.arange(rows.shape[1]) if fitted.keep_empty_features else np.flatnonzero(valid)
    return NearestImputer(
        rows=tensor(rows),
        known=tensor(known),
        fill=tensor(rows.sum(axis=0) / np.maximum(count, 1)),
        missing=missing_marker(fitted),
        kept=indices(kept),
        flagged=flagged_columns(fitted),
        donors=np.minimum(fitted.n_neighbors, count).tolist(),
        by_distance=fitted.weights == "distance",
    )


def _check_ties(rows: NDArray[Any], known: NDArray[np.bool_]) -> None:
    """Reject columns with equal values: rows may be equally far then, and the source's choice is undefined."""
    columns = [j for j in range(rows.shape[1]) if len(np.unique(rows[known[:, j], j])) < known[:, j].sum()]
    if columns:
        raise UnsupportedEstimator(
            f"KNNImputer was fitted on equal values in columns {columns[:12]}; of rows that are equally far it takes "
            "those that NumPy's partition leaves in front, which depends on the processor. Fit it on columns without "
            "equal values, or use SimpleImputer or IterativeImputer"
        )


def missing_marker(fitted: Any) -> Tensor:
    """The number that marks missing values: NaN or ``missing_values``."""
    return tensor(math.nan if pd.isna(fitted.missing_values) else fitted.missing_values)


def flagged_columns(fitted: Any) -> Tensor:
    """The columns with a missing indicator: those of ``indicator_`` with add_indicator."""
    return indices(fitted.indicator_.features_ if fitted.add_indicator else [])
