"""Ids of whole columns of texts, looked up in C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from windtunnel.compiler.native.build import library
from windtunnel.encode import MISSING_ID, UNKNOWN_ID, CategoryColumn
from windtunnel.encode.vocabulary import Vocabulary

Ids = NDArray[np.int64]


class TextColumns:
    """The vocabularies of a program as tables in C, made when a column first needs one."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[Vocabulary, Any]] = {}
        # The categories of the last categorical column of each vocabulary, and their ids: parts of a frame share them.
        self._categories: dict[int, tuple[pd.Index[Any], Ids]] = {}

    def ids(self, category: CategoryColumn, values: pd.Series) -> Ids | None:
        """The id of each value; None if some are neither text nor missing, or the source may reject them."""
        vocabulary = category.vocabulary
        if vocabulary.kind != "text" or not vocabulary.has_plain_lookup:
            return None
        ids = self._of_series(vocabulary, values)
        rejected = ids is not None and (
            (category.rejects_unknown and UNKNOWN_ID in ids) or (category.rejects_missing and MISSING_ID in ids)
        )
        return None if rejected else ids

    def _of_series(self, vocabulary: Vocabulary, values: pd.Series) -> Ids | None:
        dtype = values.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            ids = self._of_categories(vocabulary, dtype.categories)
            return None if ids is None else ids[values.array.codes]  # -1 is the last one
        return _of_array(self._table(vocabulary), values.array)

    def _of_categories(self, vocabulary: Vocabulary, categories: pd.Index[Any]) -> Ids | None:
        """The ids of categories, and behind them that of a missing one."""
        cached, ids = self._categories.get(id(vocabulary), (None, np.empty(0, np.int64)))
        if cached is not categories:
            known = _of_array(self._table(vocabulary), categories.array)
            if known is None:
                return None
            ids = np.append(known, MISSING_ID)
            self._categories[id(vocabulary)] = categories, ids
        return ids

    def _table(self, vocabulary: Vocabulary) -> Any:
        kept, table = self._tables.get(id(vocabulary), (None, None))
        if kept is not vocabulary:
            table = library().Vocabulary(vocabulary.id_by_value)
            self._tables[id(vocabulary)] = vocabulary, table
        return table


def _of_array(table: Any, values: Any) -> Ids | None:
    """The ids of an array of pandas."""
    if isinstance(values.dtype, pd.StringDtype | pd.ArrowDtype):
        return _of_arrow(table, pa.array(values))
    objects, ids = values.to_numpy(), np.empty(len(values), np.int64)
    return ids if objects.dtype == object and table.of_objects(objects, ids) else None


def _of_arrow(table: Any, values: pa.Array | pa.ChunkedArray) -> Ids | None:
    """The ids of texts, or of a dictionary of texts, of Arrow."""
    if isinstance(values, pa.ChunkedArray):
        if values.num_chunks == 1:
            return _of_arrow(table, values.chunk(0))
        parts = [_of_arrow(table, chunk) for chunk in values.chunks]
        return None if any(part is None for part in parts) else np.concatenate([np.empty(0, np.int64), *parts])
    if pa.types.is_dictionary(values.type):
        known = _of_arrow(table, values.dictionary)
        codes = values.indices.cast(pa.int64())  # a narrow type may not hold one more
        codes = codes.fill_null(len(values.dictionary)) if values.null_count else codes
        return None if known is None else np.append(known, MISSING_ID)[codes.to_numpy()]
    wide = pa.types.is_large_string(values.type)
    if not wide and not pa.types.is_string(values.type):
        return None
    ids = np.empty(len(values), np.int64)
    return ids if table.of_arrow(*values.buffers(), wide, values.offset, ids) else None
