"""The per-column encoders of category_encoders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd

from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.encoders import plain_categories
from windtunnel.translators.registry import Encoding, translates
from windtunnel.translators.shown import is_missing

ROWS = "one row of a table per category"


@translates(ce.OneHotEncoder, ce.BinaryEncoder, ce.BaseNEncoder, trainable=ROWS, notes="all handle_* options")
def digits_encoder(fitted: Any) -> Encoding:
    """Category -> one-hot or digits. Reads cols, ordinal_encoder.mapping, min_group_lumping_ and handle_unknown."""
    return _encoding(fitted, fitted.ordinal_encoder.mapping)


@translates(
    ce.OrdinalEncoder,
    trainable="one number per category",
    notes="handle_unknown as a function is refused; codes that a tree looks up are not trained",
)
def ordinal_encoder(fitted: ce.OrdinalEncoder) -> Encoding:
    """Category -> code. Reads cols, mapping, min_group_lumping_ and handle_unknown."""
    if callable(fitted.handle_unknown):
        raise UnsupportedEstimator(
            "OrdinalEncoder calls its handle_unknown function on each unknown category, which no table can hold; "
            "'value', 'return_nan', 'error' or a number can be translated"
        )
    return _encoding(fitted, fitted.mapping)


@translates(ce.TargetEncoder, trainable=ROWS, notes="as transform has it; hierarchy and composite_cols are refused")
def target_encoder(fitted: ce.TargetEncoder) -> Encoding:
    """Category -> smoothed mean of the target. Reads cols, ordinal_encoder.mapping and handle_unknown."""
    refused = [name for name in ("hierarchy", "composite_cols") if getattr(fitted, name) is not None]
    if refused:
        raise UnsupportedEstimator(
            f"TargetEncoder was fitted with {' and '.join(refused)}, which cannot be translated; "
            "only means per category of one column can: leave the option out"
        )
    return _encoding(fitted, fitted.ordinal_encoder.mapping)


@translates(ce.CountEncoder, trainable=ROWS, notes="handle_unknown='error' only for all columns at once")
def count_encoder(fitted: ce.CountEncoder) -> Encoding:
    """Category -> count or frequency. Reads cols, ordinal_encoder.mapping, mapping and the handle_* of each column."""
    raising = [column for column in fitted.cols if fitted._handle_unknown[column] == "error"]
    if raising and len(raising) < len(fitted.cols):
        raise UnsupportedEstimator(
            f"CountEncoder refuses unknown categories in the columns {raising} but not in all that it encodes; "
            "give handle_unknown as one value for all columns"
        )

    def counts_missing(column: Any, known: pd.Series) -> bool:
        name = next((to for label, to in lumped(column).items() if is_missing(label)), math.nan)
        counts = fitted.mapping[column]
        return any(
            (is_missing(label) if is_missing(name) else label == name) and not is_missing(value)
            for label, value in counts.items()
        )

    def lumped(column: Any) -> dict[Any, Any]:
        return dict(fitted._min_group_categories.get(column, {}))

    return _encoding(
        fitted,
        fitted.ordinal_encoder.mapping,
        refuses_unknown=bool(raising),
        lumped=lumped,
        knows_missing=counts_missing,
    )


@translates(
    ce.HashingEncoder,
    trainable="one row of a table per bucket and column",
    notes="md5 only; in an object column a missing value is taken as None, which is not hashed",
)
def hashing_encoder(fitted: ce.HashingEncoder) -> Encoding:
    """Category -> one-hot of the md5 of str(category) modulo n_components, summed over cols. Has no vocabulary."""
    if fitted.hash_method != "md5" or fitted.min_group_lumping_:
        raise UnsupportedEstimator(
            f"HashingEncoder was fitted with hash_method={fitted.hash_method!r}, min_group_size="
            f"{fitted.min_group_size!r}; hash_method='md5' and min_group_size=None can be translated"
        )
    dtypes = dict(zip(fitted.feature_names_in_, fitted.feature_dtypes_in_, strict=True))
    hashed = {column: dtypes[column] for column in fitted.cols}
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
    return Encoding(categories, buckets=fitted.n_components)


def _encoding(
    fitted: Any,
    mapping: list[dict[str, Any]],
    *,
    refuses_unknown: bool | None = None,
    lumped: Callable[[Any], dict[Any, Any]] | None = None,
    knows_missing: Callable[[Any, pd.Series], bool] | None = None,
) -> Encoding:
    """List the vocabulary of each column in ``cols``: the labels of its ordinal mapping and those lumped together.

    A missing value is listed, as NaN, where the encoder has an answer for it.
    """
    of_column = {entry["col"]: entry["mapping"] for entry in mapping}
    lumped = lumped or (lambda column: fitted.min_group_lumping_.get(column, {}))
    knows_missing = knows_missing or (lambda column, known: bool(known.index.isna().any()))
    categories: list[list[Any] | None] = []
    for column, dtype in zip(fitted.feature_names_in_, fitted.feature_dtypes_in_, strict=True):
        if column not in of_column:
            categories.append(None)
            continue
        known, small = of_column[column], lumped(column)
        labels = dict.fromkeys([*known.index, *small, *small.values()])
        missing = [math.nan] if fitted.handle_missing != "error" and knows_missing(column, known) else []
        present = [_as_fitted(label, dtype) for label in labels if not is_missing(label)]
        categories.append(plain_categories(fitted, column, [*present, *missing]))
    if refuses_unknown is None:
        refuses_unknown = fitted.handle_unknown == "error"
    return Encoding(categories, refuses_unknown=refuses_unknown)


def _as_fitted(label: Any, dtype: Any) -> Any:
    """Give an integer that became a float in an index beside NaN, as the integer again."""
    if isinstance(label, float | np.floating) and getattr(dtype, "kind", "") in "iu" and float(label).is_integer():
        return int(label)
    return label
