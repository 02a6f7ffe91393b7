"""What a column of raw rows holds: numbers, texts, both, or something else; and how messages show it."""

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

NUMBERS = (Real, Decimal)
LONGEST = 100
"""Characters of a value that messages show."""
PLAIN_NUMBERS = {float, int, bool, type(None)}
"""The types of values that are the same number, or missing, in a column of any dtype."""


def is_plain(dtype: Any) -> bool:
    """Whether a column is an array of NumPy's own real numbers or booleans."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def holds_python_values(dtype: Any) -> bool:
    """Whether a column is what its Python values are: numbers and booleans of NumPy, texts, or any objects."""
    return isinstance(dtype, pd.StringDtype) or (isinstance(dtype, np.dtype) and dtype.kind in "fiubO")


def is_arrow_dictionary(dtype: Any) -> bool:
    """Whether Arrow holds the values of a column once each, and codes of them."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype)


def to_float64(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column, NaN where they are missing.

    Raises
    ------
    TypeError, OverflowError
        It holds something else; a whole number beyond float64.
    """
    if is_plain(column.dtype):
        return column.to_numpy().astype(np.float64, copy=False)
    if isinstance(column.dtype, pd.CategoricalDtype):
        of_category = np.append(to_float64(pd.Series(column.cat.categories)), np.nan)
        return of_category[column.cat.codes.to_numpy()]
    kind = column_kind(column)
    if kind == "mixed" and all(isinstance(value, NUMBERS) for value in column.dropna()):  # numbers and booleans
        column, kind = column.astype(object), "number"
    if kind != "number" and not column.isna().all():
        raise TypeError(f"{kind} where numbers are read")
    if kind != "number":
        return np.full(len(column), np.nan)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def to_floats(values: list[Any]) -> NDArray[np.float64] | None:
    """Python's own numbers, NaN for None; None where other values, or numbers beyond float64, are among them."""
    if not {*map(type, values)} <= PLAIN_NUMBERS:
        return None
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:
        return None


def is_whole(value: float | None) -> bool:
    """Whether one of Python's own numbers is missing, or a whole one that float64 holds."""
    return value is None or value != value or (abs(value) < 2**53 and value == int(value))


def numbers_among(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column without missing values, and NaN where it holds something else, or what no float64 is."""
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
    """The numbers of a column that are not whole, infinite ones and those beyond int64 among them; each once."""
    numbers = numbers_among(column[column.notna()])
    with np.errstate(invalid="ignore"):
        odd = numbers[(numbers.astype(np.int64) != numbers) & ~np.isnan(numbers)]
    return np.unique(odd).tolist()  # type: ignore[no-any-return]


def mixes(column: pd.Series) -> bool:
    """Whether there are texts beside other values, of which NumPy would make texts too."""
    return column_kind(column) == "mixed" and len({isinstance(value, str) for value in column.dropna()}) == 2


def column_kind(column: pd.Series) -> str:
    """What a column holds: "number", "text", "mixed", "empty" (all missing), or what pandas calls another kind."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column_kind(pd.Series(column.cat.categories))
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
        return "number"
    inferred = pd.api.types.infer_dtype(column, skipna=True)
    groups = {
        "string": "text", "floating": "number", "integer": "number", "mixed-integer-float": "number",
        "boolean": "number", "decimal": "number", "empty": "empty", "mixed-integer": "mixed",
    }  # fmt: skip
    if inferred == "mixed":  # what cannot be hashed is never among categories
        return next((type(value).__name__ for value in column if not isinstance(value, Hashable)), "mixed")
    return groups.get(inferred, inferred)


def sample_value(column: pd.Series, expected: tuple[type, ...] = ()) -> str:
    """What a message quotes of a column: a value that is none of the expected types, if there is one."""
    present = column.dropna()
    if not len(present):
        return "no values"
    return f"values such as {shown(next((v for v in present if not isinstance(v, expected)), present.iloc[0]))}"


def shown(value: Any) -> str:
    """A value as messages show it, cut where it is long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def quoted(names: Sequence[Any]) -> str:
    """Names as messages list them."""
    return listed([*map(repr, names)])


def listed(texts: Sequence[str]) -> str:
    """The first dozen of several texts."""
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "")
