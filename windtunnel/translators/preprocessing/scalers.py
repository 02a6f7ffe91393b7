"""scikit-learn's scalers of columns and rows."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from sklearn import preprocessing

from windtunnel.modules.columns.affine import Affine, ClippedAffine
from windtunnel.modules.columns.normalizer import Normalizer
from windtunnel.translators.arrays import per_column, tensor
from windtunnel.translators.registry import translates


@translates(preprocessing.StandardScaler, trainable="scale, shift")
def standard_scaler(fitted: preprocessing.StandardScaler) -> Affine:
    """(x - mean_) / scale_; 0 and 1 where with_mean or with_std is off."""
    mean = fitted.mean_ if fitted.with_mean else 0.0
    scale = fitted.scale_ if fitted.with_std else 1.0
    return Affine(**_coefficients(fitted, center=mean, divisor=scale))


@translates(preprocessing.RobustScaler, trainable="scale, shift")
def robust_scaler(fitted: preprocessing.RobustScaler) -> Affine:
    """(x - center_) / scale_; 0 and 1 where with_centering or with_scaling is off."""
    center = fitted.center_ if fitted.with_centering else 0.0
    scale = fitted.scale_ if fitted.with_scaling else 1.0
    coefficients = _coefficients(fitted, center=center, divisor=scale)
    module = Affine(**coefficients)
    module.in_float32 = coefficients  # medians are values of the data
    return module


@translates(preprocessing.MinMaxScaler, trainable="scale, shift")
def min_max_scaler(fitted: preprocessing.MinMaxScaler) -> Affine | ClippedAffine:
    """X scale_ + min_, clipped to feature_range if clip; in float32 (x - data_min_) scale_ + feature_range[0]."""
    low, high = fitted.feature_range
    coefficients = _coefficients(fitted, center=0.0, divisor=1.0, shift=fitted.min_)
    coefficients["scale"] = tensor(fitted.scale_)
    module = ClippedAffine(**coefficients, low=low, high=high) if fitted.clip else Affine(**coefficients)
    # Minima are values of the data. With a large one, x scale_ + min_ would keep few digits.
    module.in_float32 = _coefficients(fitted, center=fitted.data_min_, divisor=1 / fitted.scale_, shift=low)
    return module


@translates(preprocessing.MaxAbsScaler, trainable="scale, shift")
def max_abs_scaler(fitted: preprocessing.MaxAbsScaler) -> Affine | ClippedAffine:
    """X / scale_, clipped to [-1, 1] if clip, which scikit-learn 1.9 added."""
    coefficients, clips = _coefficients(fitted, center=0.0, divisor=fitted.scale_), getattr(fitted, "clip", False)
    return ClippedAffine(**coefficients, low=-1.0, high=1.0) if clips else Affine(**coefficients)


@translates(preprocessing.Normalizer, notes="no parameters; gradients pass through")
def normalizer(fitted: preprocessing.Normalizer) -> Normalizer:
    """X / |x| with the norm ``norm``; rows of zeros stay."""
    return Normalizer(fitted.norm)


def _coefficients(
    fitted: Any, center: ArrayLike, divisor: ArrayLike, shift: ArrayLike = 0.0
) -> dict[str, torch.Tensor]:
    """Coefficients of (x - center) / divisor + shift."""
    values = {"scale": 1.0, "shift": shift, "center": center, "unit": divisor}
    return {name: per_column(value, fitted.n_features_in_) for name, value in values.items()}
