"""Raw rows to tensors: a block of floating-point numbers and one of int64 category ids. Vocabularies are data."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from hashlib import md5
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from windtunnel.cityhash import hash_of
from windtunnel.errors import BadInput

UNKNOWN_ID, MISSING_ID, FIRST_ID = 0, 1, 2
NONE = "\ue000None"
"""Stands in a vocabulary for None where the source tells it from NaN, as an imputer of NaN does."""
FLOAT32_STEP = 2.0**-24
"""Relative distance of neighbouring float32 numbers."""
FEW_STEPS = 10_000
SAMPLE = 1_000
"""Rows by which columns are told that float32 does not blur."""
DENSE_BYTES = 2**34
"""The most memory that rows may take when they are made dense: 16 GiB."""
FEW = 32
"""Rows whose categories are looked up one by one, as Arrow and pandas take longer to be called."""
_NUMBERS = (Real, Decimal)
Rows = Any
"""A DataFrame, an Arrow table, a NumPy array or a dict of columns; for vectorizers and label encoders a sequence."""


class Batch(NamedTuple):
    """Encoded rows: ``numbers`` float32 or float64 [B, n] (NaN where missing) and ``ids`` int64 [B, m]."""

    numbers: Tensor
    ids: Tensor


@dataclass(frozen=True)
class Vocabulary:
    """The categories of one column: id 0 is an unknown one, 1 a missing one, 2 + i is ``values[i]``.

    With ``buckets`` above 0 an unknown category gets one of as many ids after the values, by the md5 of its text.

    With ``hashes``, which are from 0 to 2^32 - 1, categories are told by their text alone, a whole number by the text
    of it, and no category is unknown: the values, then one whose text has the i-th hash (``cityhash.hash_of``), and any
    other under the greatest of the ``len(self)`` ids plus its hash.
    """

    values: tuple[str | int | float | bool, ...]
    buckets: int = 0
    hashes: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return FIRST_ID + len(self.values) + self.buckets + (0 if self.hashes is None else len(self.hashes) + 1)

    @cached_property
    def kind(self) -> str:
        """What the values are: "text", "number" or "mixed"; "empty" where there is none."""
        kinds = {"text" if isinstance(value, str) else "number" for value in self.values}
        return "mixed" if len(kinds) == 2 else next(iter(kinds), "empty")

    @cached_property
    def _texts(self) -> pa.Array:
        return pa.array(self.values, type=pa.large_string())

    @cached_property
    def _index(self) -> pd.Index[Any]:
        index: pd.Index[Any] = pd.Index(np.array(self.values, dtype=np.float64 if self.kind == "number" else object))
        return index

    def ids(self, column: pd.Series) -> NDArray[np.int64]:
        """The id of each value of a column, int64 [B]."""
        if column.dtype == object and NONE in self.values:
            column = column.mask(np.array([value is None for value in column], dtype=bool), NONE)
        if self.hashes is not None:
            return self._ids_by_hash(column)
        if isinstance(column.dtype, pd.CategoricalDtype):
            codes = column.cat.codes.to_numpy()
            of_category = np.append(self.ids(pd.Series(column.cat.categories)), MISSING_ID)
            return of_category[codes].astype(np.int64)
        few = len(column) <= FEW
        if self.kind == "text" and pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty"):
            if few:
                return self._ids_of_few([text if isinstance(text, str) else None for text in column.tolist()], column)
            return self._ids_of_texts(pa.array(column, type=pa.large_string(), from_pandas=True), column)
        if self.kind == "number" and few and _is_plain(column.dtype) and self._index.is_unique:
            return self._ids_of_few([None if one != one else one for one in _as_float64(column).tolist()], column)
        return self._ids_of_objects(column)

    def _ids_of_few(self, values: list[Any], column: pd.Series) -> NDArray[np.int64]:
        """The ids of texts that are all text, or of floats that are all numbers; missing ones given as None."""
        if self.kind == "text":
            "".join(filter(None, values)).encode()  # refuses what is no Unicode, as Arrow does
        ids = [MISSING_ID if one is None else self._places.get(one, UNKNOWN_ID) for one in values]
        found = np.array(ids, dtype=np.int64)
        return self._settle(found, found == MISSING_ID, column) if self.buckets else found

    @cached_property
    def _places(self) -> dict[Any, int]:
        return {value: FIRST_ID + at for at, value in enumerate(self._index.tolist())}

    def _ids_of_texts(self, texts: pa.Array | pa.ChunkedArray, column: pd.Series) -> NDArray[np.int64]:
        found = pc.fill_null(pc.index_in(texts, value_set=self._texts), -FIRST_ID)
        ids = np.asarray(found).astype(np.int64) + FIRST_ID
        missing = np.asarray(pc.is_null(texts))
        return self._settle(ids, missing, column)

    def _ids_of_objects(self, column: pd.Series) -> NDArray[np.int64]:
        missing = column.isna().to_numpy()
        if self.kind == "number":
            keys: Any = np.full(len(column), np.nan)
            keys[~missing] = _numbers_among(column[~missing])
        else:
            keys = column.astype(object).to_numpy()
        position = self._index.get_indexer(keys) if len(self.values) else np.full(len(column), -1)
        return self._settle(np.where(position < 0, UNKNOWN_ID, position + FIRST_ID), missing, column)

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {text_of(value): FIRST_ID + at for at, value in enumerate(self.values)}

    @cached_property
    def _by_hash(self) -> dict[int, int]:
        return {one: FIRST_ID + len(self.values) + at for at, one in enumerate(self.hashes or ())}

    def _ids_by_hash(self, column: pd.Series) -> NDArray[np.int64]:
        codes, values = pd.factorize(column)
        ids = np.array([*map(self._id_by_hash, values), MISSING_ID], dtype=np.int64)
        return ids[codes]  # of a missing value the last

    def _id_by_hash(self, value: Any) -> int:
        text = text_of(value)
        if (known := self._by_text.get(text)) is not None:
            return known
        hashed = hash_of(text)
        return self._by_hash.get(hashed, len(self) - 1 + hashed)

    def _settle(self, ids: NDArray[Any], missing: NDArray[np.bool_], column: pd.Series) -> NDArray[np.int64]:
        ids = np.where(missing, MISSING_ID, ids).astype(np.int64)
        if self.buckets:
            unknown = ids == UNKNOWN_ID
            codes, texts = pd.factorize(column[unknown].astype(object).map(str))
            buckets = np.array([bucket_of(text, self.buckets) for text in texts], dtype=np.int64)
            ids[unknown] = FIRST_ID + len(self.values) + buckets[codes]
        return ids


def text_of(value: Any) -> str:
    """The text by which a category that is hashed is told; ``TypeError`` for what is neither text nor whole number."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_ | Integral):
        return str(int(value))
    raise TypeError(f"{_shown(value)} is neither a text nor a whole number")


def bucket_of(text: str, buckets: int) -> int:
    """The bucket of a text: its md5, read as one integer, modulo the number of buckets."""
    return int(md5(text.encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % buckets


@dataclass
class CategoryColumn:
    """One column of ``ids``: where it is read from, its vocabulary, and which values the source refuses."""

    column: int
    vocabulary: Vocabulary
    refuses_unknown: bool = False
    refuses_missing: bool = False
    refuses_infinite: bool = False
    refuses_fractions: bool = False


@dataclass
class RowEncoder:
    """Which raw columns become numbers and which become ids.

    Attributes
    ----------
    names : list of str or None
        Names of the columns that the pipeline was fitted on; None where it was fitted on an array.
    width : int
        How many columns the pipeline was fitted on. Columns from ``width`` on are answers of steps kept on the host.
    numbers : list of int
        Column of each column of ``Batch.numbers``.
    categories : list of CategoryColumn
        The columns of ``Batch.ids``.
    dtype : str
        "float32" or "float64": the type of ``Batch.numbers``.
    flat : bool
        Whether rows are a sequence with one text, label, dict or list of tokens each, and no table.
    refuses_sparse : bool
        Whether sparse rows are refused, whose zeros the source takes for missing values.
    """

    names: list[str] | None
    width: int
    numbers: list[int] = field(default_factory=list)
    categories: list[CategoryColumn] = field(default_factory=list)
    dtype: str = "float32"
    flat: bool = False
    refuses_sparse: bool = False
    _blurred: set[int] = field(default_factory=set, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._position = {column: position for position, column in enumerate(self.numbers)}

    def number(self, column: int) -> int:
        """The position in ``Batch.numbers`` of a raw column, which is read as a number from now on."""
        position = self._position.setdefault(column, len(self.numbers))
        if position == len(self.numbers):
            self.numbers.append(column)
        return position

    def category(self, wanted: CategoryColumn) -> int:
        """The position in ``Batch.ids`` of a raw column under a vocabulary."""
        if wanted not in self.categories:
            self.categories.append(wanted)
        return self.categories.index(wanted)

    def name(self, column: int) -> str:
        """How messages call a column."""
        return repr(self.names[column]) if self.names and column < self.width else f"number {column}"

    def read_as(self) -> tuple[set[int], set[int]]:
        """The raw columns that some step reads as numbers, and those that some step reads as texts."""
        numbers, texts = set(self.numbers), set[int]()
        for one in self.categories:
            (numbers if one.vocabulary.kind == "number" else texts).add(one.column)
        return numbers, texts

    def used(self) -> list[int]:
        """The raw columns that something reads, in order."""
        read = {*self.numbers, *(category.column for category in self.categories)}
        return sorted(column for column in read if column < self.width)

    def checked(self, batch: Batch) -> Batch:
        """An encoded batch, if it has the columns of this encoder."""
        given, wanted = [block.shape[1] for block in batch], [len(self.numbers), len(self.categories)]
        if given != wanted or len(batch.numbers) != len(batch.ids):
            raise BadInput(
                f"got a batch of {given[0]} numbers in {len(batch.numbers)} rows and {given[1]} ids in "
                f"{len(batch.ids)} rows; this translation reads {wanted[0]} numbers and {wanted[1]} ids. "
                "Give raw rows, or what its own encode gave."
            )
        return batch

    def block(self, rows: Rows, *, shared: bool = False) -> Batch | None:
        """An array of numbers as a batch, in one piece; None where columns have to be looked at one by one.

        Where ``shared``, the numbers may be those of the array itself.
        """
        if self.flat or self.categories or max(self.numbers, default=0) >= self.width:
            return None
        if isinstance(rows, pd.DataFrame):
            # One array of all columns is worth it where most are read.
            mostly = rows.shape[1] == self.width <= 2 * len(self.numbers)
            if not mostly or not self._in_order(rows) or not all(map(_is_plain, rows.dtypes)):
                return None
            rows = rows.to_numpy(dtype=np.float64)
        elif type(rows) is not np.ndarray or rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[1] != self.width:
            return None
        check_dense(len(rows), len(self.numbers), np.dtype(self.dtype).itemsize)
        read = rows if self.numbers == list(range(self.width)) else np.take(rows, self.numbers, axis=1)
        if self.dtype == "float32":
            self._warn_of_blurs(read)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, as any comparison would have it
            numbers = np.require(read, self.dtype, ["C", "W"])
        if not shared and np.may_share_memory(numbers, rows):
            numbers = numbers.copy()
        return Batch(torch.from_numpy(numbers), torch.from_numpy(np.empty((len(rows), 0), dtype=np.int64)))

    def _in_order(self, frame: pd.DataFrame) -> bool:
        """Whether a table has the fitted columns and no others, as they were."""
        return self.names is None or [*map(str, frame.columns)] == self.names

    def encode(
        self,
        frame: pd.DataFrame | Mapping[int, pd.Series],
        *,
        rows: int | None = None,
        training: bool = False,
        counts: Mapping[int, sparse.coo_array] | None = None,
    ) -> Batch:
        """Encode rows whose columns stand in fitted order (see ``select``), host answers after them.

        Parameters
        ----------
        frame : DataFrame or dict
            Columns under their positions 0, 1, ... as ``select`` or ``columns`` gives them.
        rows : int
            How many rows there are in a dict.
        training : bool
            Whether categories that the source refuses get the row of the unknown (or missing) one, which is then no
            longer refused, as training moves it; or raise ``BadInput``.
        counts : dict
            The columns that are not in the frame, as sparse matrices under the first column of each.
        """
        rows = len(frame) if rows is None else rows
        check_dense(rows, len(self.numbers), np.dtype(self.dtype).itemsize)
        numbers = np.zeros((rows, len(self.numbers)), dtype=self.dtype)
        for position, column in enumerate(self.numbers):
            if not counts or column in frame:
                numbers[:, position] = self._as_number(frame[column], column)
        for first, matrix in (counts or {}).items():
            columns = np.asarray(self.numbers, dtype=np.int64) - first
            here = np.flatnonzero((columns >= 0) & (columns < matrix.shape[1]))
            place = np.full(matrix.shape[1], -1)
            place[columns[here]] = here
            positions = place[matrix.col]
            read = positions >= 0
            with np.errstate(over="ignore"):
                numbers[matrix.row[read], positions[read]] = matrix.data[read]
        ids = np.empty((rows, len(self.categories)), dtype=np.int64)
        for position, category in enumerate(self.categories):
            ids[:, position] = self._as_ids(frame[category.column], category, training)
        return Batch(torch.from_numpy(numbers), torch.from_numpy(ids))

    def _as_number(self, given: pd.Series, column: int) -> NDArray[Any]:
        try:
            values = _as_float64(given)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"column {self.name(column)} holds {_sample(given, _NUMBERS)} of dtype {given.dtype}; "
                "the pipeline reads numbers there. Convert the column, or encode it in the pipeline before fitting."
            ) from error
        if self.dtype == "float64":
            return values
        self._warn_of_blur(column, values)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, as any comparison would have it
            return values.astype(np.float32)

    def _warn_of_blurs(self, read: NDArray[Any]) -> None:
        """Look closer at columns where some of the rows are that near to one another."""
        some = read[:: max(1, len(read) // SAMPLE)]
        if len(some) < 2:
            return
        low, high = some.min(axis=0).astype(np.float64), some.max(axis=0).astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = high - low >= np.maximum(np.abs(low), np.abs(high)) * (FLOAT32_STEP * FEW_STEPS)
        for position in np.flatnonzero(~apart | ~np.isfinite(high - low)):
            self._warn_of_blur(self.numbers[position], read[:, position].astype(np.float64))

    def _warn_of_blur(self, column: int, values: NDArray[np.float64]) -> None:
        """Say once where a column varies so little around a large value that float32 tells few of its values apart."""
        known = values[np.isfinite(values)]
        if len(known) < 2 or column in self._blurred:
            return
        low, high = float(known.min()), float(known.max())
        steps = (high - low) / (max(abs(low), abs(high), 1e-30) * FLOAT32_STEP)
        if 0 < steps < FEW_STEPS:
            self._blurred.add(column)
            warnings.warn(
                f"column {self.name(column)} runs from {low:.10g} to {high:.10g}: float32, in which translations "
                f"compute, tells only about {steps:,.0f} values apart there, so answers may differ from the source's. "
                f"Subtract a constant such as {low:.10g} from the column before fitting.",
                UserWarning,
                stacklevel=2,
            )

    def _as_ids(self, values: pd.Series, category: CategoryColumn, training: bool) -> NDArray[np.int64]:
        vocabulary = category.vocabulary
        if vocabulary.hashes is not None:
            return self._as_hashed_ids(values, category, training)
        if not _fits(values, vocabulary) or (self.flat and _mixes(values)):
            known = f", such as {vocabulary.values[0]!r}" if vocabulary.values else ""
            raise BadInput(
                f"column {self.name(category.column)} holds {_sample(values)} of dtype {values.dtype}, which is "
                f"{_kind(values)}; its categories are {vocabulary.kind}{known}. "
                "Convert the column to what the pipeline saw."
            )
        ids = vocabulary.ids(values)
        if category.refuses_infinite and values.dtype.kind == "f" and np.isinf(values.to_numpy()).any():
            raise BadInput(
                f"column {self.name(category.column)} holds infinite values, which its encoder refuses; "
                "drop these rows, or replace the values."
            )
        if category.refuses_fractions and (fractions := _fractions(values)):
            raise BadInput(
                f"column {self.name(category.column)} holds numbers that are not whole, which its encoder does not "
                f"take for labels: {_some([*map(_shown, fractions)])}. Drop these rows, or round the numbers."
            )
        unknown = (ids == UNKNOWN_ID) & category.refuses_unknown
        missing = (ids == MISSING_ID) & category.refuses_missing
        if training:
            category.refuses_unknown &= not unknown.any()
            category.refuses_missing &= not missing.any()
        elif (unknown | missing).any():
            unseen = sorted({_shown(value) for value in values[unknown]}) + ["missing values"] * bool(missing.any())
            if self.flat:
                raise BadInput(
                    f"the rows hold labels that the encoder was not fitted on: {_some(unseen)}. Fit it on them too, or "
                    "drop these rows."
                )
            raise BadInput(
                f"column {self.name(category.column)} holds categories that its encoder was not fitted on and refuses "
                f"(handle_unknown='error'): {_some(unseen)}. Fit the encoder with handle_unknown='ignore' or a value "
                "for unknown ones, or fine-tune on rows with them first."
            )
        return ids

    def _as_hashed_ids(self, values: pd.Series, category: CategoryColumn, training: bool) -> NDArray[np.int64]:
        try:
            ids = category.vocabulary.ids(values)
        except TypeError as error:
            raise BadInput(
                f"column {self.name(category.column)} of dtype {values.dtype} holds categories that are told by their "
                f"text, and {error}, as CatBoost has it; convert the column to text or whole numbers."
            ) from error
        missing = (ids == MISSING_ID) & category.refuses_missing
        if training:
            category.refuses_missing &= not missing.any()
        elif missing.any():
            raise BadInput(
                f"column {self.name(category.column)} holds missing values, which CatBoost refuses among categories; "
                "give them a text of their own, as in fitting."
            )
        return ids

    def select(self, rows: Rows, *, every: bool = False) -> pd.DataFrame:
        """The fitted columns of raw rows, under their positions; only those that are read unless ``every``."""
        wanted = list(range(self.width)) if every else self.used()
        if self.flat:
            column = as_column(rows)
            return pd.DataFrame({at: pd.Series(objects(column)) for at in wanted}, index=range(len(column)))
        if self.refuses_sparse and hasattr(rows, "toarray"):
            raise BadInput(
                "got a sparse matrix, whose zeros XGBoost takes for missing values; give a dense array, with NaN where "
                "they are meant to be missing."
            )
        frame = as_frame(rows)
        labels = self._labels(frame, wanted, _is_named(rows))
        picked = frame.iloc[:, wanted] if labels is None else frame[labels]
        picked = picked.set_axis(wanted, axis=1)
        coded = [column for column, dtype in picked.dtypes.items() if _is_arrow_dictionary(dtype)]
        return picked.astype(dict.fromkeys(coded, object)) if coded else picked

    def columns(self, rows: Rows) -> pd.DataFrame | dict[int, pd.Series]:
        """The columns of ``select``, without a table of their own where the names of a given one tell them apart."""
        simple = isinstance(rows, pd.DataFrame) and not self.flat and rows.columns.nlevels == 1
        if not simple or not rows.columns.is_unique:
            return self.select(rows)
        wanted = self.used()
        labels = self._labels(rows, wanted, named=True)
        if labels is None:
            given = [*rows.columns]  # to look up one label of an Index takes longer
            labels = [given[column] for column in wanted]
        columns = {column: rows[label] for column, label in zip(wanted, labels, strict=True)}
        for column, values in columns.items():
            if _is_arrow_dictionary(values.dtype):
                columns[column] = values.astype(object)
        return columns

    def _labels(self, frame: pd.DataFrame, wanted: list[int], named: bool) -> list[Any] | None:
        """The labels in a table of the wanted columns; None where the columns stand as they were fitted."""
        if self.names is None or not named:
            if frame.shape[1] != self.width:
                raise BadInput(
                    f"got {frame.shape[1]} columns; the pipeline was fitted on {self.width}"
                    + (f": {_quoted(self.names)}. Give a DataFrame with these names." if self.names else ".")
                )
            return None
        return None if self._in_order(frame) else self._present(frame, [self.names[column] for column in wanted])

    def as_fitted(self, rows: Rows) -> Any:
        """All fitted columns of raw rows as the source takes them: a DataFrame with its names, an array, a sequence."""
        if self.flat:
            return as_column(rows)
        frame = self.select(rows, every=True)
        return frame.to_numpy() if self.names is None else frame.set_axis(self.names, axis=1)

    def _present(self, frame: pd.DataFrame, names: list[str]) -> list[Any]:
        """The labels in the frame of the columns of these names."""
        label = {str(given): given for given in frame.columns}
        # LightGBM writes a blank in a name as an underscore.
        label = {given.replace(" ", "_"): one for given, one in label.items()} | label
        count = Counter(map(str, frame.columns))
        if twice := sorted({name for name in names if count[name] > 1}):
            raise BadInput(f"columns given twice: {_quoted(twice)}; each name must be there once.")
        if missing := [name for name in names if name not in label]:
            close = {name: get_close_matches(name, count, n=1) for name in missing[:12]}
            hints = [f"{name!r} (given: {match[0]!r})" if match else repr(name) for name, match in close.items()]
            raise BadInput(
                f"columns missing: {_some(hints + missing[12:])}. Given: {_quoted(list(count))}. "
                f"The pipeline reads {_quoted(names)}; rename or add the missing ones."
            )
        return [label[name] for name in names]


def as_frame(rows: Rows) -> pd.DataFrame:
    """Rows of any accepted kind as a DataFrame; ``BadInput`` for anything else."""
    if isinstance(rows, pd.DataFrame):
        return rows
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if hasattr(rows, "to_pandas") and np.ndim(rows) != 1:  # Arrow and polars tables
        return rows.to_pandas()  # type: ignore[no-any-return]
    if hasattr(rows, "toarray"):
        check_dense(rows.shape[0], rows.shape[1], rows.dtype.itemsize)
        return pd.DataFrame(rows.toarray())
    if isinstance(rows, Mapping):
        return _frame_of_columns(rows)
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().numpy()
    if isinstance(rows, (np.ndarray, list, tuple)) and _dimensions(rows) == 2:
        array = np.asarray(rows, dtype=None if isinstance(rows, np.ndarray) else object)
        # Objects stay what they are: pandas would take columns of text for its string type, and None in them for NaN.
        return pd.DataFrame(array, dtype=object if array.dtype == object else None)
    raise BadInput(
        f"rows given as {type(rows).__name__} with {_dimensions(rows)} dimensions; accepted are a pandas DataFrame, an "
        "Arrow table, a dict of columns, or an array with two dimensions. A single row is X.reshape(1, -1) of an array "
        "or X.iloc[[0]] of a DataFrame."
    )


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
    elif hasattr(rows, "to_pandas"):
        return rows.to_pandas()
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


def objects(rows: Any) -> Any:
    """A sequence that a list of positions picks from: a Series or array as it is, a list as an array of its objects."""
    if isinstance(rows, pd.Series):
        return rows.reset_index(drop=True)
    return rows if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=object, count=len(rows))


def count_rows(rows: Rows) -> int:
    """The number of rows of any accepted kind."""
    return len(rows) if isinstance(rows, list | tuple) or _dimensions(rows) == 1 else len(as_frame(rows))


def check_dense(rows: int, columns: int, itemsize: int) -> None:
    """Refuse to make more dense numbers than ``DENSE_BYTES`` hold."""
    if (wanted := rows * columns * itemsize) > DENSE_BYTES:
        raise BadInput(
            f"{rows:,} rows of {columns:,} columns take {wanted / 2**30:,.1f} GiB as dense numbers; "
            f"windtunnel.encode.DENSE_BYTES allows {DENSE_BYTES / 2**30:,.1f}. Give fewer rows at once, or, to train "
            'behind a step on the host, take translate(untranslated="stream").'
        )


def _frame_of_columns(columns: Mapping[Any, Any]) -> pd.DataFrame:
    if single := [name for name, column in columns.items() if _dimensions(column) != 1]:
        raise BadInput(
            f"the columns {_quoted(single)} of a dict have not one dimension; give a list or an array with one value "
            "per row, of length 1 for a single row."
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise BadInput(f"columns of different lengths: {lengths}; every column needs one value per row.")
    return pd.DataFrame({name: pd.Series(column).reset_index(drop=True) for name, column in columns.items()})


def _dimensions(values: Any) -> int:
    if hasattr(values, "ndim"):
        return int(values.ndim)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return 0
    return 2 if len(values) and all(isinstance(row, list | tuple | np.ndarray) for row in values) else 1


def _is_named(rows: Rows) -> bool:
    return isinstance(rows, pd.DataFrame | Mapping) or hasattr(rows, "to_pandas")


def _is_plain(dtype: Any) -> bool:
    """Whether a column is an array of NumPy's own real numbers or booleans."""
    return isinstance(dtype, np.dtype) and dtype.kind in "fiub"


def _is_arrow_dictionary(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_dictionary(dtype.pyarrow_dtype)


def _as_float64(column: pd.Series) -> NDArray[np.float64]:
    if _is_plain(column.dtype):
        return column.to_numpy().astype(np.float64, copy=False)
    if isinstance(column.dtype, pd.CategoricalDtype):
        of_category = np.append(_as_float64(pd.Series(column.cat.categories)), np.nan)
        return of_category[column.cat.codes.to_numpy()]
    kind = _kind(column)
    if kind == "mixed" and all(isinstance(value, _NUMBERS) for value in column.dropna()):  # numbers and booleans
        column, kind = column.astype(object), "number"
    if kind != "number" and not column.isna().all():
        raise TypeError(f"{kind} where numbers are read")
    if kind != "number":
        return np.full(len(column), np.nan)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _numbers_among(column: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column without missing values, and NaN where it holds something else."""
    if _kind(column) == "number":
        return _as_float64(column)
    return np.array([value if isinstance(value, _NUMBERS) else np.nan for value in column], dtype=np.float64)


def _fractions(column: pd.Series) -> list[float]:
    """The numbers of a column that are not whole, infinite ones and those beyond int64 among them; each once."""
    numbers = _numbers_among(column[column.notna()])
    with np.errstate(invalid="ignore"):
        odd = numbers[(numbers.astype(np.int64) != numbers) & ~np.isnan(numbers)]
    return np.unique(odd).tolist()  # type: ignore[no-any-return]


def _fits(column: pd.Series, vocabulary: Vocabulary) -> bool:
    """Whether values of a column can be among the categories: never text among numbers, and no dates at all."""
    given, known = _kind(column), vocabulary.kind
    plain = given in ("text", "number", "mixed")
    alike = given == known or (plain and (given == "mixed" or known in ("mixed", "empty")))
    return alike or vocabulary.buckets > 0 or bool(column.isna().all())


def _mixes(column: pd.Series) -> bool:
    """Whether there are texts beside other values, of which NumPy would make texts too."""
    return _kind(column) == "mixed" and len({isinstance(value, str) for value in column.dropna()}) == 2


def _kind(column: pd.Series) -> str:
    """What a column holds: "number", "text", "mixed", "empty" (all missing), or what pandas calls another kind."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return _kind(pd.Series(column.cat.categories))
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


def _sample(column: pd.Series, expected: tuple[type, ...] = ()) -> str:
    present = column.dropna()
    if not len(present):
        return "no values"
    return f"values such as {_shown(next((v for v in present if not isinstance(v, expected)), present.iloc[0]))}"


def _shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _quoted(names: Sequence[Any]) -> str:
    return _some([*map(repr, names)])


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:12]) + (f" and {len(texts) - 12} more" if len(texts) > 12 else "")
