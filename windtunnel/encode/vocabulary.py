"""The categories of a column, and the id of each."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import md5
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from windtunnel.encode.cityhash import city_hash
from windtunnel.encode.columns import column_kind, is_plain, numbers_among, show_value, to_float64, to_floats
from windtunnel.encode.labels import labels_index

UNKNOWN_ID, MISSING_ID, FIRST_ID = 0, 1, 2
NONE_CATEGORY = "\ue000None"
"""Stands in a vocabulary for None if the source distinguishes it from NaN, as an imputer of NaN does."""
EXACT_INTEGERS = 2**53
"""From here on float64 does not represent every whole number."""
FEW_ROWS = 32
"""Rows up to which a look-up one by one is faster than a call of Arrow or pandas."""


@dataclass(frozen=True)
class Vocabulary:
    """The categories of one column: id 0 is an unknown one, 1 a missing one, 2 + i is ``values[i]``.

    With ``buckets`` above 0 an unknown category gets one of that many ids after the values, by the md5 of its text.

    With ``hashes``, from 0 to 2^32 - 1, values, whole numbers too, are identified by their text, and every text has an
    id: first those of the values, then one for each entry of ``hashes`` (``cityhash.city_hash``). Any other text gets
    ``len(self) - 1`` plus its hash, an id that may be beyond ``len(self)``. ``texts`` are those of ``hashes``, None
    where it is not known; empty where none is.
    """

    values: tuple[str | int | float | bool, ...]
    buckets: int = 0
    hashes: tuple[int, ...] | None = None
    texts: tuple[str | None, ...] = field(default=(), compare=False)  # they change no id

    def __len__(self) -> int:
        return FIRST_ID + len(self.values) + self.buckets + (0 if self.hashes is None else len(self.hashes) + 1)

    @cached_property
    def kind(self) -> str:
        """The kind of the values: "text", "number", "mixed" or "empty"."""
        kinds = {"text" if isinstance(value, str) else "number" for value in self.values}
        return "mixed" if len(kinds) == 2 else next(iter(kinds), "empty")

    @property
    def reads_texts(self) -> bool:
        """Whether a value is looked up by its text: in files of rows, numbers of such a column stay as written."""
        return self.kind == "text" or self.hashes is not None

    def has_text(self, text: str) -> bool:
        """Whether a text is one of the categories."""
        return text in self.id_by_value or (self.hashes is not None and city_hash(text) in self._id_of_hash)

    @cached_property
    def wide(self) -> bool:
        """Whether some values are whole numbers beyond float64's exact range, as long ids are."""
        return any(isinstance(value, int) and abs(value) >= EXACT_INTEGERS for value in self.values)

    def fits(self, column: pd.Series) -> bool:
        """Whether values of a column can be among the categories: never texts among numbers, and no dates."""
        kind = column_kind(column)
        plain = kind in ("text", "number", "mixed")
        fits = kind == self.kind or (plain and (kind == "mixed" or self.kind in ("mixed", "empty")))
        return fits or self.buckets > 0 or bool(column.isna().all())

    @cached_property
    def _texts(self) -> pa.Array:
        return pa.array(self.values, type=pa.large_string())

    @cached_property
    def _index(self) -> pd.Index[Any]:
        dtype = np.float64 if self.kind == "number" and not self.wide else object
        values = np.array(self.values, dtype=dtype)
        return pd.Index(values, dtype=object) if self.wide else labels_index(values)

    @cached_property
    def _rounded_index(self) -> tuple[pd.Index[Any], NDArray[np.int64]]:
        """The distinct values as float64, and the position of the first value that is rounded to each."""
        rounded, positions = np.unique(np.array(self.values, dtype=np.float64), return_index=True)
        return pd.Index(rounded), positions

    def ids(self, column: pd.Series) -> NDArray[np.int64]:
        """The id of each value of a column, int64 [B]."""
        if column.dtype == object and NONE_CATEGORY in self.values:
            column = column.mask(np.array([value is None for value in column], dtype=bool), NONE_CATEGORY)
        if self.hashes is not None:
            return self._hashed_ids(column)
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes = column.cat.codes.to_numpy()
            category_ids = np.append(self.ids(pd.Series(column.cat.categories)), MISSING_ID)
            return category_ids[codes].astype(np.int64)
        few = len(column) <= FEW_ROWS
        if self.kind == "text" and pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty"):
            if few:
                return self._ids_of_few([text if isinstance(text, str) else None for text in column.tolist()], column)
            with contextlib.suppress(UnicodeEncodeError):  # half a surrogate pair, which Arrow cannot store
                return self._ids_of_texts(pa.array(column, type=pa.large_string(), from_pandas=True), column)
        if self.kind == "number" and few and is_plain(column.dtype) and self._index.is_unique and not self.wide:
            return self._ids_of_few([None if n != n else n for n in to_float64(column).tolist()], column)
        return self._ids_of_objects(column)

    def ids_of_values(self, values: list[Any]) -> list[int] | None:
        """The id of each Python value; None if the ids, or a rejection, depend on the dtype of the column."""
        if not self.has_plain_lookup:
            return None
        if self.kind == "text":
            if not all(type(text) is str or text is None or (type(text) is float and text != text) for text in values):
                return None
            return self._look_up([text if type(text) is str else None for text in values])
        numbers = to_floats(values)
        return None if numbers is None else self._look_up([None if n != n else n for n in numbers.tolist()])

    @cached_property
    def has_plain_lookup(self) -> bool:
        """Whether the id of a value does not depend on the dtype of its column."""
        plain = self.kind in ("text", "number") and self.buckets == 0 and self.hashes is None
        return plain and NONE_CATEGORY not in self.values and self._index.is_unique and not self.wide

    def _ids_of_few(self, values: list[Any], column: pd.Series) -> NDArray[np.int64]:
        """The ids of texts or of floats; None is missing."""
        ids = np.array(self._look_up(values), dtype=np.int64)
        return self._finish(ids, ids == MISSING_ID, column) if self.buckets else ids

    def _look_up(self, values: list[Any]) -> list[int]:
        return [MISSING_ID if value is None else self.id_by_value.get(value, UNKNOWN_ID) for value in values]

    @cached_property
    def id_by_value(self) -> dict[Any, int]:
        """The id of each value: of texts, or of numbers as floats; of hashed ones the id of their text."""
        if self.hashes is not None:
            return self.id_by_text
        return {value: FIRST_ID + index for index, value in enumerate(self._index.tolist())}

    def _ids_of_texts(self, texts: pa.Array | pa.ChunkedArray, column: pd.Series) -> NDArray[np.int64]:
        positions = pc.fill_null(pc.index_in(texts, value_set=self._texts), -FIRST_ID)
        ids = np.asarray(positions).astype(np.int64) + FIRST_ID
        missing = np.asarray(pc.is_null(texts))
        return self._finish(ids, missing, column)

    def _ids_of_objects(self, column: pd.Series) -> NDArray[np.int64]:
        missing = column.isna().to_numpy()
        if self.kind == "number" and self.wide and pd.api.types.is_float_dtype(column.dtype):
            # A column of long ids is float64 if one is missing; sources then compare rounded ids.
            index, first = self._rounded_index
            rounded = index.get_indexer(pd.Index(column.to_numpy(np.float64, na_value=np.nan)))
            position = np.where(rounded < 0, rounded, first[rounded])
        elif self.kind == "number" and not self.wide:
            numbers = np.full(len(column), np.nan)
            numbers[~missing] = numbers_among(column[~missing])
            position = self._positions(numbers)
        else:  # as objects, else pandas converts them to texts of Arrow
            position = self._positions(pd.Index(column.astype(object), dtype=object))
        return self._finish(np.where(position < 0, UNKNOWN_ID, position + FIRST_ID), missing, column)

    def _positions(self, keys: Any) -> NDArray[Any]:
        return self._index.get_indexer(keys) if len(self.values) else np.full(len(keys), -1)

    @cached_property
    def id_by_text(self) -> dict[str, int]:
        """The id of each category whose text is known, by its text."""
        as_text = str if self.hashes is None else category_text
        texts = (*map(as_text, self.values), *self.texts)
        return {text: FIRST_ID + index for index, text in enumerate(texts) if text is not None}

    def text_of(self, identifier: int) -> str | None:
        """The text of an id from ``FIRST_ID`` on; None where it is not known."""
        place = identifier - FIRST_ID
        if place < len(self.values):
            return str(self.values[place])
        place -= len(self.values)
        return self.texts[place] if place < len(self.texts) else None

    @property
    def knows_texts(self) -> bool:
        """Whether the text of each hash is known."""
        return not self.hashes or (bool(self.texts) and None not in self.texts)

    @property
    def unknown_id(self) -> int:
        """The id of a text that is no category, where it is not hashed: the first beyond those of ``hashes``."""
        return UNKNOWN_ID if self.hashes is None else len(self) - 1

    def with_texts_of(self, column: pd.Series, ids: NDArray[np.int64]) -> Vocabulary:
        """The vocabulary with the texts of those hashes that values of a column have; ``ids`` are their ids."""
        if self.knows_texts:
            return self
        texts = list(self.texts or [None] * len(self.hashes or ()))
        places, rows = np.unique(ids - FIRST_ID - len(self.values), return_index=True)
        new = [(place, row) for place, row in zip(places.tolist(), rows, strict=True) if 0 <= place < len(texts)]
        for place, row in new:
            texts[place] = category_text(column.iloc[row])
        return replace(self, texts=tuple(texts)) if new else self

    @cached_property
    def _id_of_hash(self) -> dict[int, int]:
        return {code: FIRST_ID + len(self.values) + index for index, code in enumerate(self.hashes or ())}

    def _hashed_ids(self, column: pd.Series) -> NDArray[np.int64]:
        codes, values = pd.factorize(column)
        ids = np.array([*map(self._hashed_id, values), MISSING_ID], dtype=np.int64)
        return ids[codes]  # the code of a missing value is -1

    def _hashed_id(self, value: Any) -> int:
        text = category_text(value)
        if (known := self.id_by_text.get(text)) is not None:
            return known
        hashed = city_hash(text)
        return self._id_of_hash.get(hashed, len(self) - 1 + hashed)

    def _finish(self, ids: NDArray[Any], missing: NDArray[np.bool_], column: pd.Series) -> NDArray[np.int64]:
        ids = np.where(missing, MISSING_ID, ids).astype(np.int64)
        if self.buckets:
            unknown = ids == UNKNOWN_ID
            codes, texts = pd.factorize(column[unknown].astype(object).map(str))
            buckets = np.array([hash_bucket(text, self.buckets) for text in texts], dtype=np.int64)
            ids[unknown] = FIRST_ID + len(self.values) + buckets[codes]
        return ids


def category_text(value: Any) -> str:
    """The text that identifies a hashed category; ``TypeError`` for a value that is neither text nor whole number."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_ | Integral):
        return str(int(value))
    raise TypeError(f"{show_value(value)} is neither a text nor a whole number")


def hash_bucket(text: str, buckets: int) -> int:
    """The bucket of a text: its md5, read as one integer, modulo the number of buckets."""
    return int(md5(text.encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % buckets
