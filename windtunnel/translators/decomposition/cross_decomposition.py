"""scikit-learn's partial least squares and canonical correlation."""

from __future__ import annotations

from typing import Any

from sklearn import cross_decomposition

from windtunnel.modules.linear.projection import Projection
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.decomposition.decomposition import projection
from windtunnel.translators.registry import translates


@translates(
    cross_decomposition.CCA,
    cross_decomposition.PLSCanonical,
    cross_decomposition.PLSRegression,
    trainable="weights, bias",
    notes="predict, and transform of rows without targets",
)
def partial_least_squares(fitted: Any) -> Predictor:
    """(x - mean) coef_^T + intercept_; transform gives (x - mean) / scale x_rotations_."""
    return Predictor(
        projection(fitted.coef_, fitted._x_mean, fitted.intercept_),
        flat=bool(fitted._predict_1d),
        column_methods={"transform": _scores(fitted, fitted.x_rotations_)},
    )


@translates(cross_decomposition.PLSSVD, trainable="weights, bias")
def pls_svd(fitted: cross_decomposition.PLSSVD) -> Projection:
    """(x - mean) / scale x_weights_."""
    return _scores(fitted, fitted.x_weights_)


def _scores(fitted: Any, weights: Any) -> Projection:
    return projection((weights / fitted._x_std[:, None]).T, fitted._x_mean)
