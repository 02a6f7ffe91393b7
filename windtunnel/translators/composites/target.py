"""scikit-learn's regressors of a transformed target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from numpy.typing import ArrayLike
from sklearn import preprocessing
from sklearn.compose import TransformedTargetRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.outputs.inverse_transforms import InversePower, InverseQuantiles
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.arrays import per_column, tensor
from windtunnel.translators.conversions import Composite, Part, Predictor
from windtunnel.translators.not_fitted import NotFitted
from windtunnel.translators.preprocessing.functions import KNOWN, known_name, options_of
from windtunnel.translators.preprocessing.quantile import quantiles_and_levels
from windtunnel.translators.registry import translates


@translates(
    TransformedTargetRegressor,
    trainable="as the regressor inside, and the scale of the target",
    notes="functions of NumPy and SciPy by value, scalers, PowerTransformer, QuantileTransformer; others are rejected; "
    "fine-tuned with the quantile or absolute loss of the regressor inside, with squared errors of the logarithm if it "
    "has squared errors and the target is transformed by log or log1p, else with squared errors of the target",
)
def transformed_target(fitted: TransformedTargetRegressor) -> Composite:
    """The inverse of ``transformer_`` over what ``regressor_`` predicts."""
    inverse = _inverse(fitted.transformer_)
    then = Predictor(inverse, flat=fitted._training_dim == 1)
    if not hasattr(fitted, "regressor_"):
        raise NotFitted("TransformedTargetRegressor is fitted in part: its regressor failed; fit it again.")
    parts = [Part("regressor_", fitted.regressor_, "predict")]
    shared_loss: Literal["", "quantiles"] = "quantiles" if _increases(inverse) else ""
    return Composite(parts, then, shared_loss=shared_loss, then_of_squares=_of_logarithms(fitted.transformer_, then))


def _of_logarithms(transformer: Any, then: Predictor) -> Predictor | None:
    """A predictor whose raw scores are what was predicted of the logarithm of the target, so that links keep its range.

    None for another transformed target.
    """
    if type(transformer) is not preprocessing.FunctionTransformer or transformer.kw_args or transformer.inv_kw_args:
        return None
    functions = known_name(transformer.func), known_name(transformer.inverse_func)
    if functions not in LOGARITHMS:
        return None
    return replace(then, scores=Identity(), link=functions[1], loss="log_squared", loss_options=LOGARITHMS[functions])


def _increases(inverse: Module) -> bool:
    """Whether the inverse never decreases, so that it maps quantiles to quantiles."""
    if isinstance(inverse, Affine):
        return bool((inverse.scale * inverse.unit > 0).all())
    return not isinstance(inverse, Elementwise) or inverse.function in INCREASING


def _inverse(transformer: Any) -> Module:
    """The module of ``inverse_transform`` of a fitted transformer."""
    match type(transformer):
        case preprocessing.FunctionTransformer:
            return _function(transformer)
        case preprocessing.StandardScaler:
            scale = transformer.scale_ if transformer.with_std else 1.0
            return _scaled(transformer, scale, transformer.mean_ if transformer.with_mean else 0.0)
        case preprocessing.RobustScaler:
            scale = transformer.scale_ if transformer.with_scaling else 1.0
            return _scaled(transformer, scale, transformer.center_ if transformer.with_centering else 0.0)
        case preprocessing.MaxAbsScaler:
            return _scaled(transformer, transformer.scale_, 0.0)
        case preprocessing.MinMaxScaler:
            width = transformer.n_features_in_
            numbers = (1.0, 0.0, transformer.min_, transformer.scale_)
            return Affine(*(per_column(number, width) for number in numbers))
        case preprocessing.PowerTransformer:
            return _power(transformer)
        case preprocessing.QuantileTransformer:
            quantiles, levels = quantiles_and_levels(transformer)
            return InverseQuantiles(levels, quantiles, transformer.output_distribution == "normal")
    raise UnsupportedEstimator(
        f"TransformedTargetRegressor(transformer={type(transformer).__name__}) has no translated inverse; accepted "
        "are FunctionTransformer, StandardScaler, RobustScaler, MinMaxScaler, MaxAbsScaler, PowerTransformer and "
        "QuantileTransformer"
    )


def _function(transformer: preprocessing.FunctionTransformer) -> Module:
    function = transformer.inverse_func
    if function is None:
        return Identity()
    name = known_name(function)
    if name is None or transformer.inv_kw_args:
        raise UnsupportedEstimator(
            f"TransformedTargetRegressor calls inverse_func={getattr(function, '__name__', function)!r}"
            + (f" with {transformer.inv_kw_args}" if transformer.inv_kw_args else "")
            + f", which has no translation; accepted are {', '.join(sorted({known.__name__ for known in KNOWN}))} of "
            "NumPy or SciPy, without arguments"
        )
    return Elementwise(tensor(options_of(name, {})), name)


LOGARITHMS = {("log", "exp"): {"shift": 0.0}, ("log1p", "expm1"): {"shift": 1.0}}
"""A function of the target and its inverse, which is a link -> the options of the ``log_squared`` loss."""
INCREASING = (
    "log1p", "log", "log2", "log10", "exp", "exp2", "expm1", "sqrt", "cbrt", "square", "tanh", "arctan", "sinh",
    "arcsinh", "clip", "nan_to_num", "expit", "logit",
)  # fmt: skip
"""Increasing functions; the square is one over the non-negative roots that it inverts."""


def _scaled(transformer: Any, scale: ArrayLike, shift: ArrayLike) -> Affine:
    """X scale + shift."""
    width = transformer.n_features_in_
    return Affine(*(per_column(number, width) for number in (scale, shift, 0.0, 1.0)))


def _power(transformer: preprocessing.PowerTransformer) -> InversePower:
    width = transformer.n_features_in_
    scale, shift = (transformer._scaler.scale_, transformer._scaler.mean_) if transformer.standardize else (1.0, 0.0)
    power, scale, shift = (per_column(numbers, width) for numbers in (transformer.lambdas_, scale, shift))
    return InversePower(power, scale, shift, positive=transformer.method == "box-cox")
