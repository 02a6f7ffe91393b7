"""scikit-learn's decompositions of a matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn import decomposition
from sklearn.linear_model import ridge_regression

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.decompositions.likelihood import NormalLikelihood
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.translators.arrays import tensor
from windtunnel.translators.registry import Transformer, translates

TOLERANCE = 1e-9
"""What rounding alone may move an answer by."""


@translates(
    decomposition.PCA,
    decomposition.IncrementalPCA,
    trainable="components, bias",
    notes="rejected where it whitens a component whose variance is nothing but rounding",
)
def pca(fitted: Any) -> Projection | Transformer:
    """(x - mean_) components_^T, over sqrt(explained_variance_) if whiten; score_samples from get_precision()."""
    components = np.asarray(fitted.components_, dtype=np.float64)
    if not fitted.whiten:
        return _with_likelihood(fitted, projection(components, fitted.mean_))
    variance = np.asarray(fitted.explained_variance_, dtype=np.float64)
    weight = components / np.maximum(np.sqrt(variance), np.finfo(fitted.explained_variance_.dtype).eps)[:, None]
    _check_scale(fitted, weight, np.sqrt(variance @ components**2), "whiten=True and components without variance")
    return _with_likelihood(fitted, projection(weight, fitted.mean_))


@translates(
    decomposition.FastICA,
    trainable="components, bias",
    notes="rejected where it whitens a direction whose variance is nothing but rounding",
)
def fast_ica(fitted: decomposition.FastICA) -> Projection:
    """(x - mean_) components_^T; without the mean where whiten is off."""
    weight = np.asarray(fitted.components_, dtype=np.float64)
    if not fitted.whiten:
        return projection(weight)
    _check_scale(fitted, weight, np.sqrt((fitted.mixing_**2).sum(axis=1)), "columns that depend on one another")
    return projection(weight, fitted.mean_)


@translates(decomposition.TruncatedSVD, trainable="components, bias")
def truncated_svd(fitted: decomposition.TruncatedSVD) -> Linear:
    """X components_^T."""
    return linear(fitted.components_)


@translates(decomposition.FactorAnalysis, trainable="components, bias")
def factor_analysis(fitted: decomposition.FactorAnalysis) -> Projection | Transformer:
    """(x - mean_) V^T (I + components_ V^T)^-1, V = components_ / noise_variance_; score_samples too."""
    weighted = fitted.components_ / fitted.noise_variance_
    inner = np.eye(len(weighted)) + weighted @ fitted.components_.T
    return _with_likelihood(fitted, projection(np.linalg.solve(inner.T, weighted), fitted.mean_))


@translates(decomposition.SparsePCA, decomposition.MiniBatchSparsePCA, trainable="components, bias")
def sparse_pca(fitted: Any) -> Projection:
    """(x - mean_) C^T (C C^T + ridge_alpha I)^-1 with C = components_."""
    unit = np.eye(fitted.components_.shape[1])
    # Ridge regression is linear in its targets: the coefficients of unit rows are the columns of the map.
    columns = ridge_regression(fitted.components_.T, unit, fitted.ridge_alpha, solver="cholesky")
    return projection(np.reshape(columns, (len(unit), -1)).T, fitted.mean_)


def projection(weight: ArrayLike, center: ArrayLike | None = None, bias: ArrayLike = 0.0) -> Projection:
    """(x - center) weight^T + bias."""
    matrix = tensor(weight)
    middle = torch.zeros(matrix.shape[1], dtype=torch.float64) if center is None else tensor(center)
    return Projection(matrix, tensor(np.broadcast_to(np.asarray(bias), (len(matrix),))), middle)


def linear(weight: ArrayLike, bias: ArrayLike = 0.0) -> Linear:
    """X weight^T + bias."""
    matrix = tensor(weight)
    return Linear(matrix, tensor(np.broadcast_to(np.asarray(bias), (len(matrix),))))


def _with_likelihood(fitted: Any, module: Projection) -> Projection | Transformer:
    """Add score_samples, where the source has it and its answers are more than rounding (dependent columns)."""
    if not hasattr(fitted, "score_samples"):
        return module
    try:
        precision = np.asarray(fitted.get_precision(), dtype=np.float64)
    except np.linalg.LinAlgError:  # the source's score_samples raises it as well
        return module
    width = len(fitted.mean_)
    spread = np.sqrt(np.abs(np.diag(fitted.get_covariance())))
    sign, determinant = np.linalg.slogdet(precision)
    noise = spread @ np.abs(precision) @ spread * np.finfo(np.float64).eps
    if not (sign > 0 and noise <= TOLERANCE):
        return module
    offset = 0.5 * (determinant - width * math.log(2 * math.pi))
    likelihood = NormalLikelihood(tensor(fitted.mean_), tensor(precision), tensor(offset))
    return Transformer(module, {"score_samples": likelihood})


def _check_scale(fitted: Any, weight: NDArray[np.float64], spread: NDArray[np.float64], what: str) -> None:
    """Reject weights that blow up the rounding of what they are applied to; the source's own answers are noise then."""
    noise = (np.abs(weight) @ (np.abs(fitted.mean_) + spread)).max() * np.finfo(np.float64).eps
    if not noise <= TOLERANCE:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with {what}: transform divides rounding errors by (nearly) zero, and no two "
            "machines agree on the answer. Set n_components to the number of independent columns, or scale the columns "
            "first."
        )
