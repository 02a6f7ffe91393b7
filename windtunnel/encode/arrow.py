"""Columns of Arrow, polars and Python as pandas takes them, but with exact whole numbers beside missing ones.

pandas makes float64 of whole numbers where one is missing, which rounds those beyond 2^53. These become ``Int64``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from windtunnel.encode.vocabulary import EXACT_INTEGERS

PANDAS = b"pandas"
"""The key of pandas' metadata of a table."""


def table_to_pandas(table: pa.Table | pa.RecordBatch) -> pd.DataFrame:
    """A table of Arrow, without the columns that were an index of pandas: in a frame they are no columns either."""
    table = _without_index(table)
    frame: pd.DataFrame = table.to_pandas()
    for place, column in enumerate(table.columns):
        if pa.types.is_integer(column.type) and is_rounded(frame.iloc[:, place]):
            frame.isetitem(place, exact_integers(column.to_pylist()))
    return frame


def _without_index(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """A table without index columns, whose metadata of pandas name no texts where a column holds other values.

    By these metadata pandas would make texts of what has replaced a column of texts.
    """
    metadata = table.schema.metadata or {}
    if PANDAS not in metadata:
        return table
    try:
        described = json.loads(metadata[PANDAS])
        index = [each for each in described["index_columns"] if isinstance(each, str)]  # a RangeIndex has no column
        columns = [
            each
            for each in described["columns"]
            if each["field_name"] not in index and not _was_text(table.schema, each)
        ]
        described = json.dumps(described | {"columns": columns, "index_columns": []})
        table = table.select([place for place, name in enumerate(table.schema.names) if name not in index])
    except (ValueError, KeyError, TypeError, AttributeError):  # not written by pandas
        return table.replace_schema_metadata(None)
    return table.replace_schema_metadata({**metadata, PANDAS: described})


def _was_text(schema: pa.Schema, described: Any) -> bool:
    """Whether the metadata say that a column has texts, and it has none."""
    place = schema.get_field_index(described["field_name"] or "")
    if place < 0 or not described["numpy_type"].startswith("str"):
        return False
    kind = schema.field(place).type
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return not (pa.types.is_string(values) or pa.types.is_large_string(values))


def polars_to_pandas(table: Any) -> pd.DataFrame:
    """A table of polars, with None for missing texts."""
    frame: pd.DataFrame = table.to_pandas().apply(none_for_missing)
    for place, column in enumerate(table.get_columns()):
        if column.dtype.is_integer() and is_rounded(frame.iloc[:, place]):
            frame.isetitem(place, exact_integers(column.to_list()))
    return frame


def none_for_missing(column: pd.Series) -> pd.Series:
    """A column of polars with None for missing texts, as scikit-learn sees it, instead of pandas' NaN."""
    texts = pd.api.types.is_string_dtype(column.dtype) or isinstance(column.dtype, pd.CategoricalDtype)
    if not texts or not (missing := column.isna()).any():
        return column
    return column.astype(object).mask(missing, None)


def is_rounded(column: pd.Series) -> bool:
    """Whether a column of whole numbers has become float64, as some are missing, with others from 2^53 on."""
    if column.dtype != np.float64 or not column.isna().any():
        return False
    return bool((column.abs() >= EXACT_INTEGERS).any())


def exact_integers(values: list[int | None]) -> Any:
    """Whole numbers and None as a nullable array of pandas."""
    unsigned = max((value for value in values if value is not None), default=0) >= 2**63
    return pd.array(values, pd.UInt64Dtype() if unsigned else pd.Int64Dtype())


def python_integers(column: Any) -> list[int | None] | None:
    """The values of a list, tuple, Arrow array or polars column of whole numbers and None; None for any other."""
    if isinstance(column, pa.Array | pa.ChunkedArray):
        column = column.to_pylist()
    elif hasattr(column, "to_list"):
        column = column.to_list()
    if not isinstance(column, list | tuple) or not {*map(type, column)} <= {int, type(None)}:
        return None
    return list(column)
