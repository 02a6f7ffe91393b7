"""scikit-learn's SimpleImputer, for numbers and for categories."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.conversions import CategoryRecoding
from windtunnel.translators.preprocessing.nearest_imputer import missing_marker
from windtunnel.translators.registry import translates


@translates(SimpleImputer, trainable="fill values", notes="indicators and dropped columns only among numbers")
def simple_imputer(fitted: SimpleImputer) -> CategoryRecoding | Imputer:
    """statistics_ where x is missing_values; columns without a statistic dropped; flags for indicator_.features_.

    A ``CategoryRecoding`` keeps each column in its place. An imputer of numbers that drops columns or adds indicators
    is a plain ``Imputer``, which cannot stand before an encoder.
    """
    # scikit-learn drops on NaN alone; the fill value of a constant imputer may itself be None.
    empty = [isinstance(value, numbers.Real) and math.isnan(value) for value in fitted.statistics_]
    kept = [column for column, is_empty in enumerate(empty) if fitted.keep_empty_features or not is_empty]
    flagged = fitted.indicator_.features_ if fitted.add_indicator else np.zeros(0, dtype=np.int64)
    reshapes = len(kept) < len(fitted.statistics_) or len(flagged) > 0
    filled_as = getattr(fitted, "_fill_dtype", fitted._fit_dtype)  # scikit-learn 1.9 added _fill_dtype
    statistics = fitted.statistics_[kept].astype(filled_as, copy=False).tolist()
    # For other steps that read the raw column, the value that marks missing numbers is a category.
    marked = [None if pd.isna(fitted.missing_values) else [fitted.missing_values]] * len(statistics)
    marks_numbers = pd.isna(fitted.missing_values) or isinstance(fitted.missing_values, numbers.Real)
    are_numbers = [isinstance(value, numbers.Real | np.bool_) for value in statistics]
    if not marks_numbers or not all(are_numbers):
        if reshapes or fitted.add_indicator:
            raise UnsupportedEstimator(
                f"SimpleImputer over text drops the all-missing columns {sorted({*range(len(empty))} - {*kept})} "
                f"and adds indicators of the columns {list(map(int, flagged))}; over text only plain filling is "
                "translated: set keep_empty_features=True and add_indicator=False, or leave those columns out"
            )
        # A column that is filled with a text is no number after that.
        listed = [marked[at] or [] if isinstance(fill, str) else marked[at] for at, fill in enumerate(statistics)]
        recoding = CategoryRecoding(_filling(fitted.missing_values, statistics), listed)
        if not marks_numbers or not any(are_numbers):
            return recoding
        columns = [column for column, is_number in enumerate(are_numbers) if is_number]
        fill = tensor([float(statistics[column]) for column in columns])
        number = Imputer(fill, missing_marker(fitted), indices(range(len(columns))), indices([]))
        return replace(recoding, number=number, number_columns=columns)
    module = Imputer(
        fill=tensor([float(value) for value in statistics]),
        missing=missing_marker(fitted),
        kept=indices(kept),
        flagged=indices(flagged),
    )
    if reshapes:
        return module
    return CategoryRecoding(_filling(fitted.missing_values, statistics), marked, number=module)


def _filling(missing_values: Any, statistics: list[Any]) -> Callable[[int, list[Any]], list[Any]]:
    """The ``recode`` of an imputer: missing values become the statistic of their column."""
    by_nan = missing_values is not None and bool(pd.isna(missing_values))

    def is_filled(value: Any) -> bool:
        if missing_values is pd.NA:
            return bool(pd.isna(value))
        # An imputer of NaN leaves None alone, and one of None leaves NaN alone.
        return bool(value != value) if by_nan else value is None if missing_values is None else value == missing_values

    def fill(column: int, values: list[Any]) -> list[Any]:
        return [statistics[column] if is_filled(value) else value for value in values]

    return fill
