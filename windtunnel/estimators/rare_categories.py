"""Drop the rare categories of categorical columns."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from windtunnel.errors import InvalidOption, is_whole_number
from windtunnel.estimators.columns import (
    Column,
    ReadsCategories,
    categorical_columns,
    count_categories,
    read_table,
    vocabulary_positions,
)


class RareCategories(ReadsCategories, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Make rare categories missing, and with them those that were never seen.

    In a categorical column with n rows that are not missing, category c with n(c) rows is rare if

        n(c) < min_count    or    (sum of n(d) over the categories d with n(d) <= n(c)) / n <= min_frequency_quantile

    that is, if it has too few rows, or if it lies wholly in the lower ``min_frequency_quantile`` of the rows sorted by
    the frequency of their category. Of equally frequent categories all are rare or none. With both at 0, the default,
    only categories not seen in ``fit`` become missing.

    A DataFrame gives a DataFrame with the same columns and index, an array gives an array. In a categorical column,
    dropped and unseen categories become NaN, and so do values that were missing before as None or NA, so that
    encoders that tell None from NaN give the same output for every type of column:

    - object columns and arrays stay object, and string arrays become object;
    - string columns of a DataFrame become or stay pandas' ``str``;
    - category columns lose the categories that are not kept;
    - integers and booleans, which cannot be missing, become object.

    Exception: numbers and booleans of pandas' nullable types keep their type and NA, which scikit-learn reads as NaN.

    Parameters
    ----------
    min_count : int, default 0
        Categories with fewer rows than this are rare.
    min_frequency_quantile : float in [0, 1), default 0.0
        Largest fraction of the rows that the least frequent categories, all rare, have together.
    columns : "auto" or list of str and int, default "auto"
        Names or positions of the categorical columns. "auto": in a DataFrame the columns of string, object or category
        dtype, in an array the columns in which some value is a string. All others pass through unchanged.

    Attributes
    ----------
    categories_ : list of (list or None) [columns]
        Kept categories of each input column, sorted; None where the column passes through.
    rare_ : list of (list or None) [columns]
        Categories seen in ``fit`` and dropped, sorted; None where the column passes through.
    n_features_in_ : int
    feature_names_in_ : object array [columns]
        Only where ``fit`` got a table whose column names are all strings.

    Examples
    --------
    >>> import pandas as pd
    >>> from windtunnel.estimators import RareCategories
    >>> cities = pd.DataFrame({"city": ["Rome", "Rome", "Oslo"], "age": [1.0, 2.0, 3.0]}, dtype=object)
    >>> RareCategories(min_count=2, columns=["city"]).fit_transform(cities)["city"].tolist()
    ['Rome', 'Rome', nan]
    """

    def __init__(
        self, *, min_count: int = 0, min_frequency_quantile: float = 0.0, columns: str | Sequence[str | int] = "auto"
    ) -> None:
        self.min_count = min_count
        self.min_frequency_quantile = min_frequency_quantile
        self.columns = columns

    def fit(self, X: Any, y: Any = None) -> Self:
        """Count the categories of each column [rows, columns]; ``y`` is not used."""
        self._check_options()
        table = read_table(self, X, fitting=True)
        width = table.shape[1]
        self.categories_: list[list[Any] | None] = [None] * width
        self.rare_: list[list[Any] | None] = [None] * width
        for at in categorical_columns(table, self.columns):
            counts = count_categories(table, at)
            rare = self._rare(counts)
            self.categories_[at] = [category for category in counts if category not in rare]
            self.rare_[at] = [category for category in counts if category in rare]
        return self

    def transform(self, X: Any) -> pd.DataFrame | NDArray[Any]:
        """The table [rows, columns] with rare and unseen categories missing."""
        check_is_fitted(self)
        table = read_table(self, X, fitting=False)
        chosen = {at: kept for at, kept in enumerate(self.categories_) if kept is not None}
        if isinstance(table, pd.DataFrame):
            return _frame_without(table, chosen)
        return _array_without(table, chosen)

    def _check_options(self) -> None:
        count, quantile = self.min_count, self.min_frequency_quantile
        if not is_whole_number(count, 0):
            raise InvalidOption(f"min_count={count!r}; give a whole number of rows, 0 or more")
        if not isinstance(quantile, Real) or not 0 <= quantile < 1:
            raise InvalidOption(f"min_frequency_quantile={quantile!r}; give a fraction of the rows from 0 to below 1")

    def _rare(self, counts: dict[Any, int]) -> set[Any]:
        if not counts:
            return set()
        levels, inverse, sizes = np.unique(list(counts.values()), return_inverse=True, return_counts=True)
        mass = np.cumsum(levels * sizes)
        rare = (levels < self.min_count) | (mass / mass[-1] <= self.min_frequency_quantile)
        return {category for category, drop in zip(counts, rare[inverse], strict=True) if drop}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _frame_without(frame: pd.DataFrame, chosen: dict[int, list[Any]]) -> pd.DataFrame:
    out = frame.copy(deep=False)
    for at, kept in chosen.items():
        out[frame.columns[at]] = _series_without(frame.iloc[:, at], kept)
    return out


def _series_without(series: pd.Series, kept: list[Any]) -> pd.Series:
    if isinstance(series.dtype, pd.CategoricalDtype):
        keep = set(kept)
        return series.cat.remove_categories([category for category in series.cat.categories if category not in keep])
    if isinstance(series.dtype, np.dtype):
        values = _values_without(series.to_numpy(), kept)
        # With an explicit dtype; pandas would convert an object array of strings to its string dtype.
        return pd.Series(values, index=series.index, dtype=values.dtype)
    if isinstance(series.dtype, pd.StringDtype | pd.ArrowDtype) and pd.api.types.is_string_dtype(series.dtype):
        series = series.astype("str")  # the string type whose missing value is NaN
    return series.where(_is_kept(series, kept))


def _array_without(array: NDArray[Any], chosen: dict[int, list[Any]]) -> NDArray[Any]:
    if not chosen:
        return array
    out = array.copy() if array.dtype.kind == "f" else array.astype(object)
    for at, kept in chosen.items():
        out[:, at] = _values_without(array[:, at], kept)
    return out


def _values_without(values: NDArray[Any], kept: list[Any]) -> NDArray[Any]:
    if values.dtype.kind == "f":
        return np.where(_is_kept(values, kept), values, values.dtype.type(np.nan))
    out = values.astype(object)
    out[~_is_kept(values, kept)] = np.nan
    return out


def _is_kept(column: Column, kept: list[Any]) -> NDArray[np.bool_]:
    positions, _ = vocabulary_positions(column, kept)
    return positions >= 0
