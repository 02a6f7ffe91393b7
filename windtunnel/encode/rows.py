"""Raw rows of any accepted kind, as a DataFrame or as a single column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from torch import Tensor

from windtunnel.encode.arrow import (
    exact_integers,
    is_rounded,
    none_for_missing,
    polars_to_pandas,
    python_integers,
    table_to_pandas,
)
from windtunnel.encode.columns import holds_python_values, quote_names
from windtunnel.encode.labels import labels_index
from windtunnel.encode.row_values import to_arrays
from windtunnel.encode.vocabulary import FEW_ROWS
from windtunnel.errors import BadInput, join_some

DENSE_BYTES = 2**34
"""The largest size of rows as dense numbers: 16 GiB."""
Rows = Any
"""A DataFrame, Arrow table, NumPy array, dict of columns or list of dicts; for vectorizers and the like a sequence."""


def as_frame(rows: Rows) -> pd.DataFrame:
    """Rows of any accepted kind as a DataFrame; ``BadInput`` for anything else."""
    if isinstance(rows, pd.DataFrame):
        return rows
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        try:
            return table_to_pandas(rows)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise BadInput(f"the Arrow table has a column that pandas cannot take: {error}") from error
    if hasattr(rows, "to_pandas") and dimensions(rows) != 1:  # polars
        try:
            return polars_to_pandas(rows)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise BadInput(f"the polars table has a column that pandas cannot take: {error}") from error
    if hasattr(rows, "toarray"):
        check_dense(rows.shape[0], rows.shape[1], rows.dtype.itemsize)
        return pd.DataFrame(rows.toarray())
    if is_list_of_dicts(rows):
        rows = columns_of_dicts(rows)
    if isinstance(rows, Mapping):
        return _frame_of_columns(rows)
    if isinstance(rows, Tensor):
        rows = to_arrays(rows)
    if isinstance(rows, (np.ndarray, list, tuple)) and dimensions(rows) == 2:
        array = np.asarray(rows, dtype=None if isinstance(rows, np.ndarray) else object)
        # Objects stay objects: pandas would convert texts to its string type, and None in them to NaN.
        return pd.DataFrame(array, dtype=object if array.dtype == object else None)
    if type(rows).__name__ == "LazyFrame":  # polars, which need not be installed
        raise BadInput("rows given as a LazyFrame, which holds none yet; give rows.collect()")
    raise BadInput(
        f"rows given as {type(rows).__name__} with {dimensions(rows)} dimensions; accepted are a pandas DataFrame, an "
        "Arrow table, a dict of columns, a list of dicts, or an array with two dimensions. A single row is "
        "X.reshape(1, -1) of an array or X.iloc[[0]] of a DataFrame."
    )


def python_columns(rows: Rows) -> tuple[list[Any] | None, list[list[Any]]] | None:
    """The labels, if any, and the Python values of each column; None if rows are many or their dtypes matter.

    For few rows, to get a column from pandas takes longer than to encode its values.
    """
    if isinstance(rows, pd.DataFrame):
        if not 0 < len(rows) <= FEW_ROWS:
            return None
        # One value tells its kind, whatever the dtype of its column, but a table of sparse columns may be rejected.
        if len(rows) == 1 and not isinstance((row := rows.iloc[0]).dtype, pd.SparseDtype):
            return rows.columns.tolist(), [[_to_python(value)] for value in row.tolist()]
        if not all(map(holds_python_values, rows.dtypes.tolist())):
            return None
        return rows.columns.tolist(), rows.to_numpy(dtype=object).T.tolist()
    if type(rows) is np.ndarray:
        few = rows.dtype == object and rows.ndim == 2 and 0 < len(rows) <= FEW_ROWS
        return (None, rows.T.tolist()) if few else None
    if isinstance(rows, Mapping):
        columns = [*rows.values()]
        lists = all(
            type(column) is list and 0 < len(column) <= FEW_ROWS and dimensions(column) == 1 for column in columns
        )
        return ([*rows], columns) if lists and len({*map(len, columns)}) == 1 else None
    return None


def _to_python(value: Any) -> Any:
    """A NumPy number as a Python number, and pandas' missing value as None."""
    if value is pd.NA:
        return None
    return value.item() if isinstance(value, np.number | np.bool_) else value


def as_column(rows: Any) -> Any:
    """Rows with one text, label, dict or list of tokens each, as a list, array or Series."""
    if isinstance(rows, Tensor):
        rows = to_arrays(rows)
    if isinstance(rows, Mapping):
        return [rows]  # a single dict is a single row
    if isinstance(rows, pd.DataFrame) or (hasattr(rows, "to_pandas") and dimensions(rows) == 2):
        frame = as_frame(rows)
        if frame.shape[1] == 1:
            return frame.iloc[:, 0]
    elif isinstance(rows, pa.Array | pa.ChunkedArray):
        return rows.to_pandas()
    elif hasattr(rows, "to_pandas"):  # polars
        return none_for_missing(rows.to_pandas())
    elif isinstance(rows, list | pd.Series) or (isinstance(rows, np.ndarray) and rows.ndim == 1):
        return rows
    elif isinstance(rows, tuple):
        return list(rows)
    elif isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == 1:
        return rows[:, 0]
    raise BadInput(
        f"rows given as {type(rows).__name__}{f' of shape {rows.shape}' if hasattr(rows, 'shape') else ''}; the "
        "pipeline was fitted on a sequence of texts, labels, dicts or lists of tokens: give a list, a Series or an "
        "array with one of them per row, or a table with that one column."
    )


def indexable(rows: Any) -> Any:
    """A sequence that positions can index: a Series or array as it is, a list as an array of objects."""
    if isinstance(rows, pd.Series):
        return rows.reset_index(drop=True)
    return rows if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=object, count=len(rows))


def count_rows(rows: Rows) -> int:
    """The number of rows of any accepted kind; ``BadInput`` for what has no rows."""
    if isinstance(rows, Mapping):
        rows = next(iter(rows.values()), ())
    if shape := getattr(rows, "shape", None):
        return int(shape[0])
    return len(rows) if shape is None and hasattr(rows, "__len__") else len(as_frame(rows))


def check_dense(rows: int, columns: int, itemsize: int) -> None:
    """Raise ``BadInput`` if rows as dense numbers take more than ``DENSE_BYTES``."""
    if (size := rows * columns * itemsize) > DENSE_BYTES:
        raise BadInput(
            f"{rows:,} rows of {columns:,} columns take {size / 2**30:,.1f} GiB as dense numbers; "
            f"windtunnel.encode.rows.DENSE_BYTES allows {DENSE_BYTES / 2**30:,.1f}. Give fewer rows at once, or, to "
            'train behind a step on the host, take translate(untranslated="stream").'
        )


def is_list_of_dicts(rows: Rows) -> bool:
    """Whether rows are a list with a dict of columns per row."""
    return isinstance(rows, list) and len(rows) > 0 and all(isinstance(row, Mapping) for row in rows)


def columns_of_dicts(rows: list[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """The columns of a list of dicts, each of which must have them all."""
    names = rows[0].keys()
    if wrong := [position for position, row in enumerate(rows) if row.keys() != names]:
        different = quote_names(sorted(map(str, rows[wrong[0]].keys() ^ names)))
        raise BadInput(
            f"row {wrong[0]} and row 0 differ in the columns {different}; give each row all columns, with None where "
            "a value is missing."
        )
    return {name: [row[name] for row in rows] for name in names}


def _frame_of_columns(columns: Mapping[Any, Any]) -> pd.DataFrame:
    if several := [name for name, column in columns.items() if dimensions(column) != 1]:
        raise BadInput(
            f"the columns {quote_names(several)} of a dict must have one dimension; give a list or an array with one "
            "value per row, of length 1 for a single row."
        )
    names_of_length: dict[int, list[Any]] = {}
    for name, column in columns.items():
        names_of_length.setdefault(len(column), []).append(name)
    if len(names_of_length) > 1:
        lengths = join_some(f"{quote_names(names)} of {length}" for length, names in names_of_length.items())
        raise BadInput(f"columns of different lengths: {lengths}; every column needs one value per row.")
    series = [as_series(column) for column in columns.values()]
    try:
        return pd.DataFrame(dict(zip(columns, series, strict=True)))
    except UnicodeEncodeError:  # a name is half a surrogate pair, which pandas' string type cannot store
        return pd.DataFrame(dict(enumerate(series))).set_axis(labels_index(list(columns)), axis=1)


def as_series(column: Any) -> pd.Series:
    """A column with positions as its index; None in a list is missing."""
    if type(column) is list and not any(value is not None for value in column):
        column = [np.nan] * len(column)  # pandas converts None alone to objects, not to missing texts
    try:
        series = pd.Series(column).reset_index(drop=True)
        if is_rounded(series) and (integers := python_integers(column)) is not None:
            return pd.Series(exact_integers(integers))
        return series
    except UnicodeEncodeError:  # half a surrogate pair, which pandas' string type cannot store
        return pd.Series(column, dtype=object).reset_index(drop=True)


def dimensions(values: Any) -> int:
    """The number of dimensions of rows or of a column; a sequence of sequences has two."""
    if hasattr(values, "shape"):
        return len(values.shape)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return 1
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return 0
    return 2 if len(values) and all(isinstance(row, list | tuple | np.ndarray) for row in values) else 1


def is_named(rows: Rows) -> bool:
    """Whether the columns of rows have names."""
    return isinstance(rows, pd.DataFrame | Mapping) or hasattr(rows, "to_pandas") or is_list_of_dicts(rows)
