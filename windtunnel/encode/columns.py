"""The kind of values in a column of raw rows: numbers, texts, both, or others; and how messages show them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from windtunnel.errors import join_some

NUMBERS = (Real, Decimal, np.bool_)
SHOWN_CHARACTERS = 100
"""The longest value that messages show uncut."""
PLAIN_NUMBERS = {float, int, bool, type(None)}
"""Types whose values are the same number, or missing, in a column of any dtype."""


def is_plain(dtype: Any) -> bool:
    """Whether a column is an array of NumPy's own real numbers or booleans."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def holds_python_values(dtype: Any) -> bool:
    """Whether the Python values of a column determine its encoding: NumPy numbers and booleans, texts, objects."""
    return isinstance(dtype, pd.StringDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "fiubO")


def is_arrow_dictionary(dtype: Any) -> bool:
    """Whether Arrow stores the distinct values of a column, and codes of them."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype)


def to_float64(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column, NaN where they are missing.

    Raises
    ------
    TypeError, OverflowError
        The column holds other values; a whole number beyond float64.
    """
    if is_plain(column.dtype):
        return column.to_numpy().astype(np.float64, copy=False)
    if isinstance(column.dtype, pd.CategoricalDtype):
        categories = np.append(to_float64(pd.Series(column.cat.categories)), np.nan)
        return categories[column.cat.codes.to_numpy()]
    kind = column_kind(column)
    if kind == "mixed" and all(isinstance(value, NUMBERS) for value in column.dropna()):  # numbers and booleans
        column, kind = column.astype(object), "number"
    if kind != "number" and not column.isna().all():
        raise TypeError(f"{kind} where numbers are read")
    if kind != "number":
        return np.full(len(column), np.nan)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def to_floats(values: list[Any]) -> NDArray[np.float64] | None:
    """Python numbers as an array, NaN for None; None if other values, or numbers beyond float64, are among them."""
    if not {*map(type, values)} <= PLAIN_NUMBERS:
        return None
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        return None


def is_whole(value: float | None) -> bool:
    """Whether a Python number is missing, or a whole number that float64 represents."""
    return value is None or value != value or (abs(value) < 2**53 and value == int(value))


def numbers_among(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column without missing values; NaN for other values and for numbers beyond float64."""
    try:
        return to_float64(column)
    except (TypeError, OverflowError):
        return np.array([_float(value) for value in column], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value) if isinstance(value, NUMBERS) else math.nan
    except OverflowError:
        return math.nan


def fractions_among(column: pd.Series) -> list[float]:
    """The distinct numbers of a column that are not whole, or infinite, or beyond int64."""
    numbers = numbers_among(column[column.notna()])
    with np.errstate(invalid="ignore"):
        fractions = numbers[(numbers.astype(np.int64) != numbers) & ~np.isnan(numbers)]
    return np.unique(fractions).tolist()  # type: ignore[no-any-return]


def mixes_texts(column: pd.Series) -> bool:
    """Whether a column holds texts and other values, which NumPy would convert to texts."""
    return column_kind(column) == "mixed" and len({isinstance(value, str) for value in column.dropna()}) == 2


def column_kind(column: pd.Series) -> str:
    """The kind of a column: "number", "text", "mixed", "empty" (all missing), or pandas' name of another kind."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column_kind(pd.Series(column.cat.categories))
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
        return "number"
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    groups = {
        "string": "text", "floating": "number", "integer": "number", "mixed-integer-float": "number",
        "boolean": "number", "decimal": "number", "empty": "empty", "mixed-integer": "mixed",
    }  # fmt: skip
    if inferred in ("mixed", "mixed-integer"):  # a value without a hash is no category
        without = next((type(value).__name__ for value in column if not isinstance(value, Hashable)), None)
        return without or groups.get(inferred, "mixed")
    return groups.get(inferred, inferred)


def sample_value(column: pd.Series, expected: tuple[type, ...] = ()) -> str:
    """A value for a message about a column, preferably of none of the expected types, and no text that is a number."""
    present = column.dropna()
    if not len(present):
        return "no values"
    others = [value for value in present if not isinstance(value, expected)] or [present.iloc[0]]
    return f"values such as {show_value(next((value for value in others if not _is_number_text(value)), others[0]))}"


def _is_number_text(value: Any) -> bool:
    """Whether a value is the text of a number, as in a column of a CSV file that holds other texts, too."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def show_value(value: Any) -> str:
    """The repr of a value for messages, cut if it is long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pd.NA."""
    return value is None or value is pd.NA or bool(value != value)


def quote_names(names: Sequence[Any]) -> str:
    """Names for messages, quoted, and cut if they are long."""
    return join_some(map(show_value, names))
