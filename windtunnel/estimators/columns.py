"""The columns of a table that hold categories, and how their values map to a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from windtunnel.errors import BadInput, InvalidOption

Table = pd.DataFrame | NDArray[Any]
Column = pd.Series | NDArray[Any]


class ReadsCategories:
    """Mixin of estimators over tables: columns may hold categories, texts and missing values."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.categorical = tags.input_tags.string = tags.input_tags.allow_nan = True
        return tags


def read_table(estimator: BaseEstimator, X: Any, *, fitting: bool) -> Table:
    """Check a table as scikit-learn does, and return it: a DataFrame unchanged, anything else as an array.

    Columns may have several types. ``fitting`` sets ``n_features_in_`` and ``feature_names_in_``; otherwise the table
    must match them. A table without rows can be transformed, but not fitted on.
    """
    if not isinstance(X, pd.DataFrame):
        return _read_array(estimator, X, fitting)
    if fitting and 0 in X.shape:
        raise BadInput(
            f"the DataFrame has {X.shape[0]} rows and {X.shape[1]} columns; fitting needs at least 1 of each"
        )
    validate_data(estimator, X, reset=fitting, skip_check_array=True)
    return X


def _read_array(estimator: BaseEstimator, X: Any, fitting: bool) -> NDArray[Any]:
    least = 1 if fitting else 0
    array: NDArray[Any] = validate_data(
        estimator, X, dtype=None, ensure_all_finite=False, ensure_min_samples=least, reset=fitting
    )
    # NumPy turns a list of strings and numbers into strings; with dtype object, numbers stay numbers.
    if array.dtype.kind == "U" and not hasattr(X, "dtype"):
        array = np.array(X, dtype=object)
    return array


def categorical_columns(table: Table, columns: Any) -> list[int]:
    """Positions of the columns that hold categories.

    ``"auto"``: in a DataFrame the columns of string, object or category dtype; in an array the columns in which some
    value is a string. Otherwise a list of names (of a DataFrame) and positions (of either, from -n to n - 1).
    """
    width = table.shape[1]
    if isinstance(columns, str) and columns == "auto":
        return [at for at in range(width) if _holds_categories(column_at(table, at))]
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidOption(f"columns={columns!r}; give 'auto' or a list of names or positions, such as [{columns!r}]")
    names = [str(name) for name in table.columns] if isinstance(table, pd.DataFrame) else []
    positions, wrong = set[int](), list[str]()
    for column in columns:
        if isinstance(column, str) and column in names:
            positions.add(names.index(column))
        elif isinstance(column, int | np.integer) and not isinstance(column, bool) and -width <= column < width:
            positions.add(int(column) % width)
        else:
            close = get_close_matches(str(column), names, n=1)
            wrong.append(f"{column!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
    if wrong:
        known = f"has the columns {names}" if names else "is an array without column names"
        raise InvalidOption(
            f"no column {', '.join(wrong)}: the input {known}; positions go from {-width} to {width - 1}"
        )
    return sorted(positions)


def _holds_categories(column: Column) -> bool:
    if isinstance(column, pd.Series):
        # Not by the dtype's name: besides object, pandas has `str`, `string[python]` and `string[pyarrow]`.
        dtype = column.dtype
        return (
            isinstance(dtype, pd.CategoricalDtype)
            or pd.api.types.is_object_dtype(dtype)
            or pd.api.types.is_string_dtype(dtype)
        )
    return column.dtype.kind == "U" or (column.dtype.kind == "O" and any(isinstance(value, str) for value in column))


def column_at(table: Table, at: int) -> Column:
    """One column of a table."""
    return table.iloc[:, at] if isinstance(table, pd.DataFrame) else table[:, at]


def column_name(table: Table, at: int) -> str:
    """Name a column for an error message."""
    return f"{table.columns[at]!r}" if isinstance(table, pd.DataFrame) else f"{at}"


def factorize_column(column: Column) -> tuple[NDArray[np.int64], list[Any]]:
    """The code of each value, int64 ``[rows]``, and the categories that the codes number.

    Missing values (None, NaN, NA, NaT) have the code -1. Categories are distinct values as str, int, float or bool, in
    no particular order; some may not occur.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        cat = pd.Series(column).cat
        return np.asarray(cat.codes, dtype=np.int64), cat.categories.tolist()
    texts = not isinstance(column, pd.Series) and column.dtype.kind == "U"
    codes, categories = pd.factorize(column.astype(object) if texts else column)
    # NumPy scalars inside an object column equal the plain ones, but JSON does not take them.
    return codes.astype(np.int64), [v.item() if isinstance(v, np.generic) else v for v in categories.tolist()]


def count_categories(table: Table, at: int) -> dict[Any, int]:
    """The number of rows of each category in a column; sorted: numbers first, then by type name; then by value."""
    try:
        codes, categories = factorize_column(column_at(table, at))
        counts = np.bincount(codes[codes >= 0], minlength=len(categories)).tolist()
        seen = {category: count for category, count in zip(categories, counts, strict=True) if count}
        return dict(sorted(seen.items(), key=lambda item: (_type_name(item[0]), item[0])))
    except TypeError as error:
        raise BadInput(
            f"column {column_name(table, at)} cannot be read as categories ({error}); "
            "categories are strings, numbers or booleans: convert the values, or leave the column out of `columns`"
        ) from error


def _type_name(value: Any) -> str:
    return "" if isinstance(value, int | float) else type(value).__name__


def vocabulary_positions(column: Column, vocabulary: Sequence[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Position of each value in ``vocabulary``, int64 ``[rows]``, and the values that the vocabulary lacks.

    Missing and unknown values have the position -1; missing ones are not in the list.
    """
    position = {category: at for at, category in enumerate(vocabulary)}
    codes, categories = factorize_column(column)
    # One lookup per distinct value; the last entry serves the code -1 of missing values.
    table = np.array([position.get(category, -1) for category in categories] + [-1], dtype=np.int64)
    seen = np.zeros(len(table), dtype=bool)
    seen[codes] = True
    return table[codes], [categories[at] for at in np.flatnonzero(seen[:-1] & (table[:-1] < 0))]
