"""Raw rows of any accepted kind, as a DataFrame or as a single column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from torch import Tensor

from windtunnel.encode.columns import holds_python_values, quoted
from windtunnel.encode.vocabulary import FEW_ROWS
from windtunnel.errors import BadInput

DENSE_BYTES = 2**34
"""The most memory that rows may take when they are made dense: 16 GiB."""
Rows = Any
"""A DataFrame, an Arrow table, a NumPy array or a dict of columns; for vectorizers and label encoders a sequence."""


def as_frame(rows: Rows) -> pd.DataFrame:
    """Rows of any accepted kind as a DataFrame; ``BadInput`` for anything else."""
    if isinstance(rows, pd.DataFrame):
        return rows
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows.to_pandas()  # type: ignore[no-any-return]
    if hasattr(rows, "to_pandas") and np.ndim(rows) != 1:  # polars
        return rows.to_pandas().apply(_none_for_missing)  # type: ignore[no-any-return]
    if hasattr(rows, "toarray"):
        check_dense(rows.shape[0], rows.shape[1], rows.dtype.itemsize)
        return pd.DataFrame(rows.toarray())
    if isinstance(rows, Mapping):
        return _frame_of_columns(rows)
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().numpy()
    if isinstance(rows, (np.ndarray, list, tuple)) and dimensions(rows) == 2:
        array = np.asarray(rows, dtype=None if isinstance(rows, np.ndarray) else object)
        # Objects stay what they are: pandas would take columns of text for its string type, and None in them for NaN.
        return pd.DataFrame(array, dtype=object if array.dtype == object else None)
    raise BadInput(
        f"rows given as {type(rows).__name__} with {dimensions(rows)} dimensions; accepted are a pandas DataFrame, an "
        "Arrow table, a dict of columns, or an array with two dimensions. A single row is X.reshape(1, -1) of an array "
        "or X.iloc[[0]] of a DataFrame; of a list of dicts it is pd.DataFrame(rows)."
    )


def python_columns(rows: Rows) -> tuple[list[Any] | None, list[list[Any]]] | None:
    """The labels, if there are any, and the Python values of each column; None unless rows are few and values tell all.

    To ask pandas for one column, or to make it one of a list, takes longer than to look up what is in it.
    """
    if isinstance(rows, pd.DataFrame):
        if not 0 < len(rows) <= FEW_ROWS or not all(map(holds_python_values, dtypes := rows.dtypes.tolist())):
            return None
        # A row of numbers alone would come in one type, which may hold some of them for others.
        if len(rows) == 1 and any(isinstance(dtype, pd.StringDtype) for dtype in dtypes):
            return rows.columns.tolist(), [[_python(one)] for one in rows.iloc[0].tolist()]
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


def _python(value: Any) -> Any:
    """A number of NumPy as Python's own, as ``tolist`` has it."""
    return value.item() if isinstance(value, np.number | np.bool_) else value


def as_column(rows: Any) -> Any:
    """Rows with one text, label, dict or list of tokens each, as the list, array or Series that was given."""
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().numpy()
    if isinstance(rows, Mapping):
        return [rows]  # a single dict is a single row
    if isinstance(rows, pd.DataFrame) or (hasattr(rows, "to_pandas") and np.ndim(rows) == 2):
        frame = as_frame(rows)
        if frame.shape[1] == 1:
            return frame.iloc[:, 0]
    elif isinstance(rows, pa.Array | pa.ChunkedArray):
        return rows.to_pandas()
    elif hasattr(rows, "to_pandas"):  # polars
        return _none_for_missing(rows.to_pandas())
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
    """A sequence that a list of positions picks from: a Series or array as it is, a list as an array of its objects."""
    if isinstance(rows, pd.Series):
        return rows.reset_index(drop=True)
    return rows if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=object, count=len(rows))


def count_rows(rows: Rows) -> int:
    """The number of rows of any accepted kind."""
    return len(rows) if isinstance(rows, list | tuple) or dimensions(rows) == 1 else len(as_frame(rows))


def check_dense(rows: int, columns: int, itemsize: int) -> None:
    """Reject to make more dense numbers than ``DENSE_BYTES`` hold."""
    if (wanted := rows * columns * itemsize) > DENSE_BYTES:
        raise BadInput(
            f"{rows:,} rows of {columns:,} columns take {wanted / 2**30:,.1f} GiB as dense numbers; "
            f"windtunnel.encode.rows.DENSE_BYTES allows {DENSE_BYTES / 2**30:,.1f}. Give fewer rows at once, or, to "
            'train behind a step on the host, take translate(untranslated="stream").'
        )


def _none_for_missing(column: pd.Series) -> pd.Series:
    """A column of polars as scikit-learn sees it: missing texts are None, where pandas has made NaN of them."""
    texts = pd.api.types.is_string_dtype(column.dtype) or isinstance(column.dtype, pd.CategoricalDtype)
    if not texts or not (missing := column.isna()).any():
        return column
    return column.astype(object).mask(missing, None)


def _frame_of_columns(columns: Mapping[Any, Any]) -> pd.DataFrame:
    if single := [name for name, column in columns.items() if dimensions(column) != 1]:
        raise BadInput(
            f"the columns {quoted(single)} of a dict have not one dimension; give a list or an array with one value "
            "per row, of length 1 for a single row."
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise BadInput(f"columns of different lengths: {lengths}; every column needs one value per row.")
    return pd.DataFrame({name: _as_series(column) for name, column in columns.items()})


def _as_series(column: Any) -> pd.Series:
    """A column whose rows are told by their place; None of a list is missing, whatever else there is in the list."""
    if type(column) is list and not any(one is not None for one in column):
        column = [np.nan] * len(column)  # of None alone pandas makes objects, and not texts with a missing one
    try:
        return pd.Series(column).reset_index(drop=True)
    except UnicodeEncodeError:  # half a surrogate pair, which pandas' own type of texts does not hold
        return pd.Series(column, dtype=object).reset_index(drop=True)


def dimensions(values: Any) -> int:
    """How many dimensions rows or a column have; a sequence of sequences has two."""
    if hasattr(values, "ndim"):
        return int(values.ndim)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return 0
    return 2 if len(values) and all(isinstance(row, list | tuple | np.ndarray) for row in values) else 1


def is_named(rows: Rows) -> bool:
    """Whether the columns of rows have names."""
    return isinstance(rows, pd.DataFrame | Mapping) or hasattr(rows, "to_pandas")
