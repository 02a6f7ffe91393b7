"""Encode each category as two one-hots of about the square root of the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isqrt
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from windtunnel.errors import BadInput, InvalidOption
from windtunnel.estimators.columns import (
    Column,
    ReadsCategories,
    Table,
    categorical_columns,
    column_at,
    column_name,
    count_categories,
    read_table,
    vocabulary_positions,
)


class TwoHotEncoder(ReadsCategories, TransformerMixin, BaseEstimator):
    """Encode category number c of C (from 0, in sorted order) as a pair of one-hots, c // m and c % m.

        m = ceil(sqrt(C)):    one-hot of c // m, width ceil(C / m),    then one-hot of c % m, width m

    Every category has a distinct code, of width about 2 sqrt(C) instead of C. A missing or unknown category is all
    zeros. Other columns pass through as numbers.

    ``transform`` gives a dense, C-contiguous float64 array [rows, columns out]. Each categorical column is replaced by
    its block of one-hots; the order of the columns stays.

    Parameters
    ----------
    columns : "auto" or list of str and int, default "auto"
        Names or positions of the categorical columns. "auto": in a DataFrame the columns of string, object or category
        dtype, in an array the columns in which some value is a string. All others have to be numbers.
    handle_unknown : {"ignore", "error"}, default "ignore"
        What ``transform`` does with a category that ``fit`` has not seen: all zeros, or an error. Missing values are
        all zeros either way.

    Attributes
    ----------
    categories_ : list of (list or None) [columns]
        Categories of each input column, sorted; None where the column passes through.
    n_features_in_ : int
    feature_names_in_ : object array [columns]
        Only where ``fit`` got a table whose column names are all strings.

    Examples
    --------
    >>> import pandas as pd
    >>> from windtunnel.estimators import TwoHotEncoder
    >>> encoder = TwoHotEncoder().fit(pd.DataFrame({"city": ["Bonn", "Lima", "Oslo", "Rome"]}))
    >>> encoder.get_feature_names_out().tolist()
    ['city_a0', 'city_a1', 'city_b0', 'city_b1']
    >>> encoder.transform(pd.DataFrame({"city": ["Oslo", "Paris"]})).tolist()
    [[0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, *, columns: str | Sequence[str | int] = "auto", handle_unknown: str = "ignore") -> None:
        self.columns = columns
        self.handle_unknown = handle_unknown

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the categories of each column [rows, columns]; ``y`` is not used."""
        if self.handle_unknown not in ("ignore", "error"):
            raise InvalidOption(f"handle_unknown={self.handle_unknown!r}; give 'ignore' or 'error'")
        table = read_table(self, X, fitting=True)
        self.categories_: list[list[Any] | None] = [None] * table.shape[1]
        for at in categorical_columns(table, self.columns):
            self.categories_[at] = list(count_categories(table, at))
        for at, categories in enumerate(self.categories_):
            if categories is None:
                _numbers(table, at)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Encode the table [rows, columns] as float64 [rows, columns out]."""
        check_is_fitted(self)
        table = read_table(self, X, fitting=False)
        if self.handle_unknown == "error":
            self._reject_unknown(table)
        starts = np.cumsum([0, *(_width(categories) for categories in self.categories_)])
        out = np.zeros((table.shape[0], starts[-1]))
        for at, categories in enumerate(self.categories_):
            if categories is None:
                out[:, starts[at]] = _numbers(table, at)
            elif categories:
                _set_ones(out, starts[at], column_at(table, at), categories)
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns out: ``city_a0, city_a1, ..., city_b0, ...`` for a categorical column ``city``."""
        check_is_fitted(self)
        out = list[str]()
        for name, categories in zip(_check_feature_names_in(self, input_features), self.categories_, strict=True):
            if categories is None:
                out.append(name)
            else:
                high, low = _sizes(len(categories))
                out += [f"{name}_a{at}" for at in range(high)] + [f"{name}_b{at}" for at in range(low)]
        return np.array(out, dtype=object)

    def _reject_unknown(self, table: Table) -> None:
        wrong = list[str]()
        for at, categories in enumerate(self.categories_):
            unknown = [] if categories is None else vocabulary_positions(column_at(table, at), categories)[1]
            if unknown:
                more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
                wrong.append(f"{unknown[:5]}{more} in column {column_name(table, at)}")
        if wrong:
            raise BadInput(
                f"unknown categories {'; '.join(wrong)}: only those seen in fit are accepted (see categories_); "
                "make the others missing, or set handle_unknown='ignore'"
            )


def _sizes(count: int) -> tuple[int, int]:
    """Widths of the two one-hots for ``count`` categories: ceil(count / m) and m = ceil(sqrt(count))."""
    if count == 0:
        return 0, 0
    low = isqrt(count - 1) + 1
    return ceil(count / low), low


def _width(categories: list[Any] | None) -> int:
    return 1 if categories is None else sum(_sizes(len(categories)))


def _set_ones(out: NDArray[np.float64], start: int, column: Column, categories: list[Any]) -> None:
    positions, _ = vocabulary_positions(column, categories)
    rows = np.flatnonzero(positions >= 0)
    high, low = _sizes(len(categories))
    out[rows, start + positions[rows] // low] = 1
    out[rows, start + high + positions[rows] % low] = 1


def _numbers(table: Table, at: int) -> NDArray[np.float64]:
    column = column_at(table, at)
    try:
        if isinstance(column, pd.Series):
            return column.to_numpy(dtype=np.float64, na_value=np.nan)
        return column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"column {column_name(table, at)} passes through as a number, but not all of it is one ({error}); "
            "name it in `columns`, or convert it"
        ) from error
