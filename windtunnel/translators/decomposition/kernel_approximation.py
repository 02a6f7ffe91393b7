"""scikit-learn's approximate features of kernels."""

from __future__ import annotations

import math

import numpy as np
import torch
from sklearn import kernel_approximation

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.kernels.approximations import Chi2Features, CosineFeatures, CountSketch, LogCosineFeatures
from windtunnel.translators.arrays import tensor
from windtunnel.translators.decomposition.decomposition import linear
from windtunnel.translators.decomposition.kernel_pca import kernel_map
from windtunnel.translators.registry import translates

INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}
"""Default sample_interval of AdditiveChi2Sampler by sample_steps."""


@translates(
    kernel_approximation.Nystroem,
    trainable="points, weights, bias",
    notes="all of scikit-learn's kernels, and precomputed ones; functions are rejected",
)
def nystroem(fitted: kernel_approximation.Nystroem) -> Module:
    """k(x, components_) normalization_^T."""
    weight = tensor(fitted.normalization_)
    if fitted.kernel == "precomputed":
        return linear(fitted.normalization_)
    parameters = {name: (fitted.kernel_params or {}).get(name) for name in ("gamma", "coef0", "degree")}
    parameters |= {name: getattr(fitted, name) for name in parameters if getattr(fitted, name) is not None}
    return kernel_map(fitted, fitted.components_, parameters, weight, torch.zeros(len(weight), dtype=torch.float64))


@translates(kernel_approximation.RBFSampler, trainable="weights, bias")
def rbf_sampler(fitted: kernel_approximation.RBFSampler) -> CosineFeatures:
    """sqrt(2 / n_components) cos(x random_weights_ + random_offset_)."""
    weight, bias = tensor(fitted.random_weights_.T), tensor(fitted.random_offset_)
    return CosineFeatures(weight, bias, math.sqrt(2 / fitted.n_components))


@translates(kernel_approximation.SkewedChi2Sampler, trainable="weights, bias")
def skewed_chi2_sampler(fitted: kernel_approximation.SkewedChi2Sampler) -> LogCosineFeatures:
    """sqrt(2 / n_components) cos(log(x + skewedness) random_weights_ + random_offset_)."""
    weight, bias = tensor(fitted.random_weights_.T), tensor(fitted.random_offset_)
    return LogCosineFeatures(weight, bias, fitted.skewedness, math.sqrt(2 / fitted.n_components))


@translates(kernel_approximation.AdditiveChi2Sampler, notes="no parameters; gradients pass through")
def additive_chi2_sampler(fitted: kernel_approximation.AdditiveChi2Sampler) -> Chi2Features:
    """Sampled frequencies of each column; reads sample_steps and sample_interval."""
    interval = fitted.sample_interval
    return Chi2Features(fitted.sample_steps, INTERVALS[fitted.sample_steps] if interval is None else interval)


@translates(kernel_approximation.PolynomialCountSketch, notes="no parameters; gradients pass through")
def polynomial_count_sketch(fitted: kernel_approximation.PolynomialCountSketch) -> CountSketch:
    """The convolution of ``degree`` sketches of (sqrt(gamma) x, sqrt(coef0)); reads indexHash_ and bitHash_."""
    degree, width = fitted.indexHash_.shape
    if fitted.degree != degree or (fitted.coef0 != 0) != (width > fitted.n_features_in_):
        raise UnsupportedEstimator(
            f"PolynomialCountSketch has degree={fitted.degree} and coef0={fitted.coef0}, which differ from those that "
            "it was fitted with; fit it again"
        )
    places = np.zeros((degree, width, fitted.n_components))
    np.put_along_axis(places, fitted.indexHash_[:, :, None], fitted.bitHash_[:, :, None].astype(np.float64), axis=2)
    columns = fitted.n_features_in_
    shifts = math.sqrt(fitted.coef0) * places[:, columns:].sum(axis=1)
    return CountSketch(tensor(math.sqrt(fitted.gamma) * places[:, :columns]), tensor(shifts))
