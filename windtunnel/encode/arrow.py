"""Tables of Arrow and polars as DataFrames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from windtunnel.encode.vocabulary import EXACT_INTEGERS


def table_to_pandas(table: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """A table as pandas takes it, but whole numbers beyond 2^53 beside missing ones stay exact (``Int64``)."""
    frame: pd.DataFrame = table.to_pandas()
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    return _with_exact_integers(frame, {name: table.column(name) for name in integers if integers.count(name) == 1})


def polars_to_pandas(table: Any) -> pd.DataFrame:
    """A table of polars as pandas takes it, but for missing texts and for whole numbers as in ``table_to_pandas``.

    Missing texts are None, as scikit-learn sees them, and not NaN.
    """
    frame: pd.DataFrame = table.to_pandas().apply(none_for_missing)
    integers = [column for column in table.get_columns() if column.dtype.is_integer() and column.null_count()]
    return _with_exact_integers(frame, {column.name: column.to_arrow() for column in integers})


def none_for_missing(column: pd.Series) -> pd.Series:
    """A column of polars with None for missing texts, as scikit-learn sees it, instead of pandas' NaN."""
    texts = pd.api.types.is_string_dtype(column.dtype) or isinstance(column.dtype, pd.CategoricalDtype)
    if not texts or not (missing := column.isna()).any():
        return column
    return column.astype(object).mask(missing, None)


def is_rounded(column: pd.Series) -> bool:
    """Whether a column of whole numbers has become float64, with some from 2^53 on."""
    return column.dtype == np.float64 and bool((column.abs() >= EXACT_INTEGERS).any())


def _with_exact_integers(frame: pd.DataFrame, columns: dict[str, pa.ChunkedArray | pa.Array]) -> pd.DataFrame:
    """The frame with these columns of whole numbers as they were, where pandas has rounded some."""
    exact = {
        name: pd.Series(pd.array(column.to_pylist(), _nullable(column.type)), frame.index)
        for name, column in columns.items()
        if name in frame and is_rounded(frame[name])  # pandas may have made an index of it
    }
    return frame.assign(**exact) if exact else frame


def _nullable(integers: pa.DataType) -> Any:
    return pd.UInt64Dtype() if pa.types.is_unsigned_integer(integers) else pd.Int64Dtype()
