"""scikit-learn's decompositions of a matrix, and its random projections."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgWarning
from sklearn import decomposition, random_projection
from sklearn.linear_model import ridge_regression

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import EPSILON
from windtunnel.modules.decompositions.densities import NormalLikelihood
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.linear.projection import Projection
from windtunnel.translators.arrays import per_column, tensor
from windtunnel.translators.conversions import Transformer
from windtunnel.translators.registry import translates

TOLERANCE = 1e-9
"""Largest accepted rounding error of an output."""


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
        return _with_likelihood(fitted, projection(components, fitted.mean_, source_centers_last=True))
    variance = np.asarray(fitted.explained_variance_, dtype=np.float64)
    if getattr(fitted, "_fit_svd_solver", "full") == "covariance_eigh":
        # eigh rounds each eigenvalue by the largest one: a smaller variance may as well be 0, as on another processor.
        variance = np.where(variance > len(fitted.mean_) * EPSILON * variance.max(), variance, 0.0)
    weight = components / np.maximum(np.sqrt(variance), np.finfo(fitted.explained_variance_.dtype).eps)[:, None]
    _check_scale(fitted, weight, np.sqrt(variance @ components**2), "whiten=True and components without variance")
    return _with_likelihood(fitted, projection(weight, fitted.mean_, source_centers_last=True))


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


@translates(
    decomposition.TruncatedSVD,
    random_projection.GaussianRandomProjection,
    random_projection.SparseRandomProjection,
    trainable="components, bias",
)
def uncentered(fitted: Any) -> Linear:
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


def projection(
    weight: ArrayLike, center: ArrayLike | None = None, bias: ArrayLike = 0.0, *, source_centers_last: bool = False
) -> Projection:
    """(x - center) weight^T + bias."""
    matrix = tensor(weight)
    middle = torch.zeros(matrix.shape[1], dtype=torch.float64) if center is None else tensor(center)
    return Projection(matrix, per_column(bias, len(matrix)), middle, source_centers_last)


def linear(weight: ArrayLike, bias: ArrayLike = 0.0) -> Linear:
    """X weight^T + bias."""
    matrix = tensor(weight)
    return Linear(matrix, per_column(bias, len(matrix)))


def _with_likelihood(fitted: Any, module: Projection) -> Projection | Transformer:
    """Add score_samples where the source has it and the columns are independent."""
    if not hasattr(fitted, "score_samples") or _inverse_rounding(fitted.get_covariance()) > TOLERANCE:
        return module
    with warnings.catch_warnings():
        # SciPy warns of columns on very different scales too, which is harmless here.
        warnings.simplefilter("ignore", LinAlgWarning)
        precision = np.asarray(fitted.get_precision(), dtype=np.float64)
    sign, determinant = np.linalg.slogdet(precision)
    if sign <= 0:
        return module
    offset = 0.5 * (determinant - len(fitted.mean_) * math.log(2 * math.pi))
    likelihood = NormalLikelihood(tensor(fitted.mean_), tensor(precision), tensor(offset))
    return Transformer(module, {"score_samples": likelihood})


def _inverse_rounding(covariance: NDArray[Any]) -> float:
    """Rounding error of a row's squared Mahalanobis distance: the sum of |R^-1| times epsilon, R the correlations."""
    covariance = np.asarray(covariance, dtype=np.float64)
    variances = np.diag(covariance)
    # Of rows in float32 the covariance may overflow; score_samples of the source fails then. By rounding, the variance
    # of a constant column may be below 0.
    if not (variances > 0).all() or not np.isfinite(covariance).all():
        return math.inf
    scale = np.sqrt(variances)
    # For dependent columns `inv` raises on one processor and warns on another; eigenvalues do neither.
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    return float(np.abs((vectors / np.maximum(values, EPSILON)) @ vectors.T).sum()) * EPSILON


def _check_scale(fitted: Any, weight: NDArray[np.float64], spread: NDArray[np.float64], what: str) -> None:
    """Reject weights that amplify the rounding errors of their input: the outputs of the source are noise then."""
    noise = (np.abs(weight) @ (np.abs(fitted.mean_) + spread)).max() * EPSILON
    if not noise <= TOLERANCE:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with {what}: transform divides rounding errors by (nearly) zero, and no two "
            "machines agree on the output. Set n_components to the number of independent columns, or scale the columns "
            "first."
        )
