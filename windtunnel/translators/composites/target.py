"""scikit-learn's regressors of a transformed target."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn import preprocessing
from sklearn.compose import TransformedTargetRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.outputs.inverse_transforms import InversePower, InverseQuantiles
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.preprocessing.functions import KNOWN
from windtunnel.translators.registry import Composite, Part, Predictor, translates


@translates(
    TransformedTargetRegressor,
    trainable="as the regressor inside, and the scale of the target",
    notes="functions of NumPy and SciPy by value, scalers, PowerTransformer, QuantileTransformer; others are rejected; "
    "fine-tuned in the unit of the target, with the quantile or absolute loss of the regressor inside, else with "
    "squared errors",
)
def transformed_target(fitted: TransformedTargetRegressor) -> Composite:
    """The inverse of ``transformer_`` over what ``regressor_`` predicts."""
    inverse = _inverse(fitted.transformer_)
    then = Predictor(inverse, flat=fitted._training_dim == 1)
    parts = [Part("regressor_", fitted.regressor_, "predict")]
    return Composite(parts, then, shared_loss="quantiles" if _increases(inverse) else "")


def _increases(inverse: Module) -> bool:
    """Whether larger numbers never give smaller ones, so that quantiles of one are quantiles of the other."""
    if isinstance(inverse, Affine):
        return bool((inverse.scale * inverse.unit > 0).all())
    return not isinstance(inverse, Elementwise) or inverse.function in INCREASING


def _inverse(transformer: Any) -> Module:
    """What ``inverse_transform`` of a fitted transformer computes."""
    match type(transformer):
        case preprocessing.FunctionTransformer:
            return _function(transformer)
        case preprocessing.StandardScaler:
            scale = transformer.scale_ if transformer.with_std else 1.0
            return _stretched(transformer, scale, transformer.mean_ if transformer.with_mean else 0.0)
        case preprocessing.RobustScaler:
            scale = transformer.scale_ if transformer.with_scaling else 1.0
            return _stretched(transformer, scale, transformer.center_ if transformer.with_centering else 0.0)
        case preprocessing.MaxAbsScaler:
            return _stretched(transformer, transformer.scale_, 0.0)
        case preprocessing.MinMaxScaler:
            width = transformer.n_features_in_
            numbers = (1.0, 0.0, transformer.min_, transformer.scale_)
            return Affine(*(_tensor(one, width) for one in numbers))
        case preprocessing.PowerTransformer:
            return _power(transformer)
        case preprocessing.QuantileTransformer:
            return _quantiles(transformer)
    raise UnsupportedEstimator(
        f"TransformedTargetRegressor(transformer={type(transformer).__name__}) has an inverse that is not known; known "
        "are FunctionTransformer, StandardScaler, RobustScaler, MinMaxScaler, MaxAbsScaler, PowerTransformer and "
        "QuantileTransformer"
    )


def _function(transformer: preprocessing.FunctionTransformer) -> Module:
    function = transformer.inverse_func
    if function is None:
        return Identity()
    try:
        name = KNOWN.get(function)
    except TypeError:  # what cannot be hashed is none of them
        name = None
    if name is None or transformer.inv_kw_args:
        raise UnsupportedEstimator(
            f"TransformedTargetRegressor calls inverse_func={getattr(function, '__name__', function)!r}"
            + (f" with {transformer.inv_kw_args}" if transformer.inv_kw_args else "")
            + f", which is not known by value; known are {', '.join(sorted({one.__name__ for one in KNOWN}))} of NumPy "
            "or SciPy, without arguments"
        )
    return Elementwise(torch.tensor(OPTIONS.get(name, (0.0, 0.0, 0.0)), dtype=torch.float64), name)


INCREASING = (
    "log1p", "log", "log2", "log10", "exp", "exp2", "expm1", "sqrt", "cbrt", "square", "tanh", "arctan", "sinh",
    "arcsinh", "clip", "nan_to_num", "expit", "logit",
)  # fmt: skip
"""Functions that increase; the square does over the roots that it is the inverse of."""
OPTIONS = {
    "clip": (-np.inf, np.inf, 0.0),
    "nan_to_num": (0.0, float(np.finfo(np.float64).max), float(np.finfo(np.float64).min)),
}
"""What the functions with arguments take where none is given."""


def _stretched(transformer: Any, scale: ArrayLike, shift: ArrayLike) -> Affine:
    """X scale + shift."""
    width = transformer.n_features_in_
    return Affine(*(_tensor(one, width) for one in (scale, shift, 0.0, 1.0)))


def _tensor(values: ArrayLike, width: int) -> torch.Tensor:
    return torch.from_numpy(np.broadcast_to(np.asarray(values, np.float64), (width,)).copy())


def _power(transformer: preprocessing.PowerTransformer) -> InversePower:
    width = transformer.n_features_in_
    scale, shift = (transformer._scaler.scale_, transformer._scaler.mean_) if transformer.standardize else (1.0, 0.0)
    power, scale, shift = (_tensor(one, width) for one in (transformer.lambdas_, scale, shift))
    return InversePower(power, scale, shift, positive=transformer.method == "box-cox")


def _quantiles(transformer: preprocessing.QuantileTransformer) -> InverseQuantiles:
    quantiles = np.array(transformer.quantiles_.T, np.float64, order="C")
    levels = np.broadcast_to(np.asarray(transformer.references_, np.float64), quantiles.shape).copy()
    if quantiles.shape[1] == 1:
        levels, quantiles = (np.repeat(one, 2, axis=1) for one in (levels, quantiles))
    normal = transformer.output_distribution == "normal"
    return InverseQuantiles(torch.from_numpy(levels), torch.from_numpy(quantiles), normal)
