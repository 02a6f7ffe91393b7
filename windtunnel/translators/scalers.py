"""scikit-learn's scalers of columns and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn import preprocessing

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.affine import Affine, ClippedAffine
from windtunnel.modules.normalizer import Normalizer
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
    return Affine(**_coefficients(fitted, center=center, divisor=scale, seen=True))


@translates(preprocessing.MinMaxScaler, trainable="scale, shift")
def min_max_scaler(fitted: preprocessing.MinMaxScaler) -> Affine | ClippedAffine:
    """(x - data_min_) * scale_ + feature_range[0], clipped to feature_range if clip."""
    low, high = fitted.feature_range
    numbers = _coefficients(fitted, center=fitted.data_min_, divisor=1 / fitted.scale_, start=low, seen=True)
    return ClippedAffine(**numbers, low=low, high=high) if fitted.clip else Affine(**numbers)


@translates(preprocessing.MaxAbsScaler, trainable="scale, shift")
def max_abs_scaler(fitted: preprocessing.MaxAbsScaler) -> Affine | ClippedAffine:
    """X / scale_, clipped to [-1, 1] if clip."""
    numbers = _coefficients(fitted, center=0.0, divisor=fitted.scale_)
    return ClippedAffine(**numbers, low=-1.0, high=1.0) if fitted.clip else Affine(**numbers)


@translates(preprocessing.Normalizer, notes="no parameters; gradients pass through")
def normalizer(fitted: preprocessing.Normalizer) -> Normalizer:
    """X / |x| with the norm ``norm``; rows of zeros stay."""
    return Normalizer(fitted.norm)


def _coefficients(
    fitted: Any, center: ArrayLike, divisor: ArrayLike, start: float = 0.0, *, seen: bool = False
) -> dict[str, torch.Tensor]:
    """Float32 coefficients of (x - center) / divisor + start, worked out in float64.

    What float32 cannot hold of the center (up to 0.03 at 1e6) goes into the shift, unless the center is a value seen
    in the data (a median, a minimum): rows with that value are rounded as it is and have to give ``start`` exactly,
    as LightGBM puts thresholds right beside zero.
    """
    width = fitted.n_features_in_
    exact = np.broadcast_to(np.asarray(center, dtype=np.float64), width)
    unit = np.broadcast_to(np.asarray(divisor, dtype=np.float64), width)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
        values: dict[str, NDArray[Any]] = {
            "scale": np.ones(width),
            "shift": start - (0.0 if seen else exact - rounded) / unit,
            "center": rounded,
            "unit": unit,
        }
        tensors = {name: torch.from_numpy(value.astype(np.float32)) for name, value in values.items()}
    beyond = torch.stack([*map(torch.isinf, tensors.values()), tensors["unit"].abs() < 1e-38]).any(dim=0)
    if beyond.any():
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} has a center or scale beyond the range of float32 in columns "
            f"{beyond.nonzero()[:, 0].tolist()}; WindTunnel computes in float32 (1e-38 to 3e38): bring these columns "
            "to another unit, and fit again"
        )
    return tensors
