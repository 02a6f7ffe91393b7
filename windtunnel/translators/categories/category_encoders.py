"""The per-column encoders of category_encoders."""

from __future__ import annotations

import math
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
from category_encoders.count_target import CountTargetEncoder
from pandas.api.types import infer_dtype

from windtunnel.encode.columns import is_missing
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.categories.sklearn_encoders import plain_categories
from windtunnel.translators.conversions import CategoryEncoding
from windtunnel.translators.registry import translates

try:
    from category_encoders.glmm import GLMMEncoder
except ImportError:  # it needs statsmodels
    MIXED_MODELS: tuple[type, ...] = ()
else:
    MIXED_MODELS = (GLMMEncoder,)

ROWS = "one row of a table per category"


@translates(
    ce.OneHotEncoder,
    ce.BinaryEncoder,
    ce.BaseNEncoder,
    ce.GrayEncoder,
    ce.RankHotEncoder,
    ce.BackwardDifferenceEncoder,
    ce.HelmertEncoder,
    ce.PolynomialEncoder,
    ce.SumEncoder,
    trainable=ROWS,
    notes="all handle_* options",
)
def digits_encoder(fitted: Any) -> CategoryEncoding:
    """Category -> one-hot, digits, ranks or contrasts. Reads cols, ordinal_encoder.mapping and min_group_lumping_."""
    return _encoding(fitted, _ordinal(fitted))


@translates(
    ce.TargetEncoder,
    ce.JamesSteinEncoder,
    ce.MEstimateEncoder,
    ce.WOEEncoder,
    ce.QuantileEncoder,
    CountTargetEncoder,
    *MIXED_MODELS,
    trainable=ROWS,
    notes="as transform has it, without a target; hierarchy and composite_cols are rejected",
)
def target_encoder(fitted: Any) -> CategoryEncoding:
    """Category -> what its target was, smoothed. Reads cols, ordinal_encoder.mapping and min_group_lumping_."""
    _check_single(fitted)
    return _encoding(fitted, _ordinal(fitted))


@translates(
    ce.CatBoostEncoder,
    ce.LeaveOneOutEncoder,
    trainable=ROWS,
    notes="as transform has it, without a target; composite_cols are rejected",
)
def left_out_encoder(fitted: Any) -> CategoryEncoding:
    """Category -> mean of the target. Reads cols and mapping, where None has no place beside NaN."""
    _check_single(fitted)
    types = dict(zip(fitted.feature_names_in_, fitted.feature_dtypes_in_, strict=True))
    known = {column: counts.index for column, counts in fitted.mapping.items()}
    if booleans := [name for name, index in known.items() if _holds_booleans(types[name], index)]:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} encodes the booleans in {', '.join(map(repr, booleans))} by their type in each "
            "call, which no table can hold; convert them to text and fit again"
        )
    objects = [name for name, index in known.items() if types[name] == np.dtype(object) and index.hasnans]
    if mixed := [name for name in objects if infer_dtype(known[name]) != "string"]:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} was fitted on missing values among the objects in {', '.join(map(repr, mixed))}, "
            "where None counts as missing or as unknown, depending on the other rows of a call; convert the column to "
            "float or to text and fit again"
        )
    return _encoding(fitted, known, tells_none=True)


def _holds_booleans(dtype: Any, index: pd.Index) -> bool:
    """Whether the categories of a column are booleans, which the index of a mapping may hold as numbers."""
    categories = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else index
    return str(dtype) == "bool" or infer_dtype(categories) == "boolean"


@translates(ce.SummaryEncoder, trainable=ROWS, notes="as transform has it, without a target")
def summary_encoder(fitted: ce.SummaryEncoder) -> CategoryEncoding:
    """Category -> several quantiles of the target. Reads the first of encoder_list."""
    return target_encoder(fitted.encoder_list[0])  # type: ignore[no-any-return]


@translates(
    ce.OrdinalEncoder,
    trainable="one number per category",
    notes="handle_unknown as a function is rejected; codes that a tree looks up are not trained",
)
def ordinal_encoder(fitted: ce.OrdinalEncoder) -> CategoryEncoding:
    """Category -> code. Reads cols, mapping, min_group_lumping_ and handle_unknown."""
    if callable(fitted.handle_unknown):
        raise UnsupportedEstimator(
            "OrdinalEncoder calls its handle_unknown function on each unknown category, which no table can hold; "
            "'value', 'return_nan', 'error' or a number can be translated"
        )
    return _encoding(fitted, {entry["col"]: entry["mapping"].index for entry in fitted.mapping})


@translates(ce.CountEncoder, trainable=ROWS, notes="all handle_* options")
def count_encoder(fitted: ce.CountEncoder) -> CategoryEncoding:
    """Category -> count or frequency. Reads cols, ordinal_encoder.mapping and the groups of small categories."""
    return _encoding(fitted, _ordinal(fitted), lumped=fitted._min_group_categories)


@translates(
    ce.HashingEncoder,
    trainable="one row of a table per bucket and column",
    notes="md5 only; in an object column a missing value is taken as None, which is not hashed",
)
def hashing_encoder(fitted: ce.HashingEncoder) -> CategoryEncoding:
    """Category -> one-hot of the md5 of str(category) modulo n_components, summed over cols. Has no vocabulary."""
    if fitted.hash_method != "md5" or fitted.min_group_lumping_:
        raise UnsupportedEstimator(
            f"HashingEncoder was fitted with hash_method={fitted.hash_method!r}, min_group_size="
            f"{fitted.min_group_size!r}; hash_method='md5' and min_group_size=None can be translated"
        )
    dtypes = dict(zip(fitted.feature_names_in_, fitted.feature_dtypes_in_, strict=True))
    hashed = {column: dtypes[column] for column in fitted.cols}
    if inexact := sorted({str(dtype) for dtype in hashed.values() if not _hashed_by_value(dtype)}):
        raise UnsupportedEstimator(
            f"HashingEncoder hashes values of the types {inexact} as texts that depend on the other values of a call; "
            "fit it on text, whole numbers or float64"
        )
    kinds = {getattr(dtype, "kind", "O") for dtype in hashed.values()}
    # Columns of numbers of several types are hashed as the texts of one common type: 1 as "1.0".
    if kinds - set("O") and (len({str(dtype) for dtype in hashed.values()}) > 1 or kinds - set("iuf")):
        raise UnsupportedEstimator(
            f"HashingEncoder hashes columns of the types {sorted({str(dtype) for dtype in hashed.values()})} together, "
            "after converting them to one; columns of text, or of one type of number, can be translated"
        )

    def missing(column: Any) -> list[Any]:
        return [None] if hashed[column] == np.dtype(object) else [math.nan]

    categories = [missing(column) if column in hashed else None for column in fitted.feature_names_in_]
    return CategoryEncoding(categories, buckets=fitted.n_components)


def _hashed_by_value(dtype: Any) -> bool:
    """Whether a column of this type is hashed as the texts of its values, whatever else the rows hold."""
    if isinstance(dtype, pd.CategoricalDtype):
        return bool(infer_dtype(dtype.categories) == "string")
    if isinstance(dtype, pd.StringDtype):
        return dtype.na_value is not pd.NA
    return isinstance(dtype, np.dtype) and dtype not in (np.float16, np.float32)


def _ordinal(fitted: Any) -> dict[Any, Any]:
    """The labels that the ordinal encoder inside knows, of each column."""
    return {entry["col"]: entry["mapping"].index for entry in fitted.ordinal_encoder.mapping}


def _check_single(fitted: Any) -> None:
    """Reject what reads several columns at once."""
    rejected = [name for name in ("hierarchy", "composite_cols") if getattr(fitted, name, None) is not None]
    if rejected:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} was fitted with {' and '.join(rejected)}, which cannot be translated; "
            "only means per category of one column can: leave the option out"
        )


def _encoding(
    fitted: Any, labels: dict[Any, Any], *, lumped: dict[Any, Any] | None = None, tells_none: bool = False
) -> CategoryEncoding:
    """The vocabulary of each column in ``cols``: its labels, and those that are lumped together (column -> groups)."""
    groups = fitted.min_group_lumping_ if lumped is None else lumped
    categories: list[list[Any] | None] = []
    for column, dtype in zip(fitted.feature_names_in_, fitted.feature_dtypes_in_, strict=True):
        if column not in labels:
            categories.append(None)
            continue
        small = dict(groups.get(column, {}))
        known = dict.fromkeys([*labels[column], *small, *small.values()])
        missing = [math.nan] if any(map(is_missing, known)) else []
        present = [_as_fitted(label, dtype) for label in known if not is_missing(label)]
        categories.append(plain_categories(fitted, column, [*present, *missing]))
    rejects = isinstance(fitted.handle_unknown, str) and fitted.handle_unknown == "error"
    return CategoryEncoding(categories, rejects_unknown=rejects, tells_none=tells_none)


def _as_fitted(label: Any, dtype: Any) -> Any:
    """Give an integer that became a float in an index beside NaN, as the integer again."""
    if isinstance(label, float | np.floating) and getattr(dtype, "kind", "") in "iu" and float(label).is_integer():
        return int(label)
    return label
