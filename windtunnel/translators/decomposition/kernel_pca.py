"""scikit-learn's KernelPCA and KernelCenterer, and the kernel map that other converters use too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import decomposition
from sklearn.preprocessing import KernelCenterer
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.kernels.pairwise import KERNEL_NAMES, KernelCenter, WhitenedKernel
from windtunnel.translators.arrays import tensor
from windtunnel.translators.decomposition.decomposition import linear, projection
from windtunnel.translators.registry import translates

DEFAULTS: dict[str, dict[str, float]] = {
    "linear": {},
    "cosine": {},
    "additive_chi2": {},
    "chi2": {"gamma": 1.0},
    "rbf": {},
    "laplacian": {},
    "sigmoid": {"coef0": 1.0},
    "poly": {"coef0": 1.0, "degree": 3.0},
}
"""scikit-learn's defaults of the kernel parameters; the default of gamma is otherwise 1 / columns."""


@translates(
    decomposition.KernelPCA,
    trainable="points, weights, bias",
    notes="all of scikit-learn's kernels, and precomputed ones; functions are rejected",
)
def kernel_pca(fitted: decomposition.KernelPCA) -> Module:
    """K (centred as in fitting) times eigenvectors_ / sqrt(eigenvalues_), where these are above 0."""
    if fitted.kernel == "linear":
        # The centred kernel is the inner product of centred rows, which keeps their digits.
        points = tensor(fitted.X_fit_).numpy()
        center = points.mean(axis=0)
        return projection(_scaled(fitted).T @ (points - center), center)
    weight, bias = centred(fitted)
    if fitted.kernel == "precomputed":
        return linear(weight, bias)
    parameters = {"gamma": fitted.gamma_, "coef0": fitted.coef0, "degree": fitted.degree}
    return kernel_map(fitted, fitted.X_fit_, parameters, tensor(weight), tensor(bias))


def centred(fitted: decomposition.KernelPCA) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights ``[K, n]`` and bias ``[K]`` that give the projection of a kernel that is not centred yet."""
    scaled, centerer = _scaled(fitted), fitted._centerer
    total = scaled.sum(axis=0)
    return (scaled - total / len(scaled)).T, centerer.K_fit_all_ * total - centerer.K_fit_rows_ @ scaled


def _scaled(fitted: decomposition.KernelPCA) -> NDArray[np.float64]:
    values = np.asarray(fitted.eigenvalues_, dtype=np.float64)
    return np.where(values > 0, fitted.eigenvectors_ / np.sqrt(np.where(values > 0, values, 1.0)), 0.0)


def kernel_map(fitted: Any, points: Any, parameters: dict[str, Any], weight: Tensor, bias: Tensor) -> WhitenedKernel:
    """The module of ``fitted.kernel`` with ``parameters``; None stands for scikit-learn's default."""
    kernel = "poly" if fitted.kernel == "polynomial" else fitted.kernel
    if not isinstance(kernel, str) or kernel not in KERNEL_NAMES:
        text = repr(kernel) if isinstance(kernel, str) else "a function"
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with kernel={text}: only kernels of scikit-learn are translated; fit it with "
            f"one of {', '.join(KERNEL_NAMES)}, precomputed."
        )
    numbers = {"gamma": 1 / np.shape(points)[1]} | DEFAULTS[kernel]
    numbers |= {name: float(value) for name, value in parameters.items() if value is not None}
    return WhitenedKernel(tensor(points), weight, bias, kernel, **numbers)


@translates(KernelCenterer, trainable="means of the kernel")
def kernel_centerer(fitted: KernelCenterer) -> KernelCenter:
    """K - K_fit_rows_ - mean of each row of K + K_fit_all_."""
    return KernelCenter(tensor(fitted.K_fit_rows_), tensor(fitted.K_fit_all_))
