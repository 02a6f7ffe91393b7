"""Encodes raw rows as a block of numbers and a block of category ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse

from windtunnel.encode.batch import Batch
from windtunnel.encode.category import CategoryColumn
from windtunnel.encode.columns import (
    NUMBERS,
    column_kind,
    is_arrow_dictionary,
    is_plain,
    quote_names,
    sample_value,
    to_float64,
    to_floats,
)
from windtunnel.encode.dense_rows import dense_rows
from windtunnel.encode.labels import labels_index, labels_of
from windtunnel.encode.precision_loss import PrecisionLossWarner
from windtunnel.encode.rows import (
    Rows,
    as_column,
    as_frame,
    check_dense,
    count_rows,
    indexable,
    is_list_of_dicts,
    is_named,
    python_columns,
)
from windtunnel.errors import BadInput

DATES = (
    "Dates become numbers (year, month, weekday, hour, days since a date) by a FunctionTransformer in the pipeline; "
    "docs/howto/translate.md has such a function. "
)


TextIds = Callable[[CategoryColumn, pd.Series], NDArray[np.int64] | None]
"""See ``RowEncoder.encode``."""


def _without_codes(values: pd.Series) -> pd.Series:
    """A column whose distinct values Arrow stores, as a column of all its values."""
    return values.astype(object) if is_arrow_dictionary(values.dtype) else values


@dataclass
class RowEncoder:
    """Encodes raw rows: some columns as numbers, some as ids."""

    names: list[str] | None  # names of the columns that the pipeline was fitted on; None if it was fitted on an array
    # number of columns that the pipeline was fitted on. Columns from ``width`` on are outputs of host steps.
    width: int
    numbers: list[int] = field(default_factory=list)  # the raw column of each column of ``Batch.numbers``
    categories: list[CategoryColumn] = field(default_factory=list)  # the columns of ``Batch.ids``
    dtype: str = "float32"  # "float32" or "float64": the type of ``Batch.numbers``
    flat: bool = False  # whether rows are a sequence with one text, label, dict or list of tokens each, not a table
    # what the entries are that a sparse matrix leaves out: 0, missing, or (as steps of the source disagree) rejected
    unstored: Literal["zero", "missing", "rejected"] = "zero"
    # whether rows without names are rejected, because the source would read their numbers as category codes
    needs_names: bool = False
    # whether a table whose columns are all sparse is rejected like a sparse matrix
    rejects_sparse_columns: bool = False
    _warner: PrecisionLossWarner = field(default_factory=PrecisionLossWarner, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._position_of_column = {column: position for position, column in enumerate(self.numbers)}
        # Columns of counts -> how many numbers there were, and the positions of the counts among them.
        self._cached_positions: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}

    def add_number(self, column: int) -> int:
        """Encode a raw column as a number; return its position in ``Batch.numbers``."""
        position = self._position_of_column.setdefault(column, len(self.numbers))
        if position == len(self.numbers):
            self.numbers.append(column)
        return position

    def add_category(self, category: CategoryColumn) -> int:
        """Encode a raw column as ids; return its position in ``Batch.ids``."""
        if category not in self.categories:
            self.categories.append(category)
        return self.categories.index(category)

    def column_name(self, column: int) -> str:
        """The name of a column in messages."""
        return repr(self.names[column]) if self.names and column < self.width else f"number {column}"

    def columns_by_kind(self) -> tuple[set[int], set[int]]:
        """The raw columns that are encoded as numbers, and those encoded as texts; a column may be in both."""
        numbers, texts = set(self.numbers), set[int]()
        for category in self.categories:
            (numbers if category.vocabulary.kind == "number" else texts).add(category.column)
        return numbers, texts

    def used_columns(self) -> list[int]:
        """The raw columns that are encoded, in order."""
        return sorted(column for column in set.union(*self.columns_by_kind()) if column < self.width)

    def count_rows(self, rows: Rows) -> int:
        """The number of raw rows of any accepted kind; a dict is a single row where rows are dicts."""
        return len(as_column(rows)) if self.flat else count_rows(rows)

    def zeros(self, rows: int) -> Batch:
        """Encoded rows of zeros, and of unknown categories."""
        ids = torch.zeros(rows, len(self.categories), dtype=torch.int64)
        return Batch(torch.zeros(rows, len(self.numbers), dtype=getattr(torch, self.dtype)), ids)

    def check_batch(self, batch: Batch) -> Batch:
        """The batch, with numbers in the type of this encoder; ``BadInput`` unless it has the encoder's columns."""
        widths, expected = [block.shape[1] for block in batch], [len(self.numbers), len(self.categories)]
        if widths != expected or len(batch.numbers) != len(batch.ids):
            raise BadInput(
                f"got a batch of {widths[0]} numbers in {len(batch.numbers)} rows and {widths[1]} ids in "
                f"{len(batch.ids)} rows; this translation reads {expected[0]} numbers and {expected[1]} ids. "
                "Give raw rows, or what its own encode gave."
            )
        return Batch(batch.numbers.to(getattr(torch, self.dtype)), batch.ids)

    def encode_rows(
        self, rows: Rows, *, training: bool = False, shared: bool = False, text_ids: TextIds | None = None
    ) -> Batch:
        """Raw rows of any kind as a batch; ``training`` and ``text_ids`` are those of ``encode``.

        If ``shared``, the batch may share the memory of the rows.
        """
        if (batch := self.encode_array(rows, shared=shared)) is not None:
            return batch
        if (numbers := self.sparse_numbers(rows)) is not None:
            self._check_size(numbers.shape[0])
            return Batch.of_numbers(dense_rows(numbers, self.unstored_number))
        if (batch := self.encode_few(rows)) is not None:
            return batch
        columns = self.columns(rows)
        count = len(rows if isinstance(columns, dict) else columns)
        return self.encode(columns, rows=count, training=training, text_ids=text_ids)

    def encode_array(self, rows: Rows, *, shared: bool = False) -> Batch | None:
        """An array of numbers as a batch; None if columns must be encoded one by one.

        If ``shared``, the batch may share the memory of the array.
        """
        if self.flat or self.categories or max(self.numbers, default=0) >= self.width:
            return None
        if isinstance(rows, pd.DataFrame):
            # Converting the whole table at once is faster if most of its columns are encoded.
            mostly = rows.shape[1] == self.width <= 2 * len(self.numbers)
            if not mostly or not self._in_order(rows) or not all(map(is_plain, rows.dtypes)):
                return None
            rows = rows.to_numpy(dtype=np.float64)
        elif self.needs_names:
            return None
        elif type(rows) is not np.ndarray or rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[1] != self.width:
            return None
        self._check_size(len(rows))
        selected = rows if self.numbers == list(range(self.width)) else np.take(rows, self.numbers, axis=1)
        numbers = np.ascontiguousarray(self._to_dtype(selected), dtype=self.dtype)
        # torch takes no read-only array.
        if not numbers.flags.writeable or (not shared and np.may_share_memory(numbers, rows)):
            numbers = numbers.copy()
        return Batch.of_numbers(torch.from_numpy(numbers))

    def _in_order(self, frame: pd.DataFrame) -> bool:
        """Whether a table has the fitted columns, in their order, and no others."""
        return self.names is None or [*map(str, frame.columns.tolist())] == self.names

    def encode_few(self, rows: Rows) -> Batch | None:
        """Few rows as a batch, from their Python values; None if the slower ``encode`` is needed.

        It is needed if a value may be rejected, or if its id depends on the dtype. Columns of host steps are 0.
        """
        plain = all(category.vocabulary.has_plain_lookup for category in self.categories)
        if not plain or (values := self._values(rows)) is None:
            return None
        count = len(next(iter(values.values())))
        self._check_size(count)
        raw = [position for position, column in enumerate(self.numbers) if column < self.width]
        floats = to_floats([*chain.from_iterable(values[self.numbers[position]] for position in raw)])
        columns = [c.ids_of_values(values[c.column]) if c.column in values else None for c in self.categories]
        if floats is None or None in columns:
            return None
        numbers = np.zeros((count, len(self.numbers)))
        numbers[:, raw] = floats.reshape(len(raw), count).T
        ids = np.array(columns, dtype=np.int64).reshape(len(columns), count).T
        return Batch(torch.from_numpy(self._to_dtype(numbers)), torch.from_numpy(np.ascontiguousarray(ids)))

    def _values(self, rows: Rows) -> dict[int, list[Any]] | None:
        """The Python values of each encoded column, if rows are few and their labels are unambiguous."""
        wide = isinstance(rows, pd.DataFrame) and rows.shape[1] > 2 * (len(self.numbers) + len(self.categories))
        if self.flat or wide or (labelled := python_columns(rows)) is None:
            return None
        labels, columns = labelled
        if (labels is None and self.needs_names) or (self.names is None and isinstance(rows, Mapping)):
            return None
        if labels is None or self.names is None or labels == self.names:
            return dict(enumerate(columns)) if columns and len(columns) == self.width else None
        named = dict(zip(labels, columns, strict=True))
        wanted = {column: self.names[column] for column in self.used_columns()}
        plain = len(named) == len(labels) and {*map(type, labels)} == {str} and named.keys() >= {*wanted.values()}
        return {column: named[name] for column, name in wanted.items()} if wanted and plain else None

    def encode(
        self,
        frame: pd.DataFrame | Mapping[int, pd.Series],
        *,
        rows: int | None = None,
        training: bool = False,
        counts: Mapping[int, sparse.coo_array | NDArray[Any]] | None = None,
        text_ids: TextIds | None = None,
    ) -> Batch:
        """Encode rows whose columns are in fitted order (see ``select``), followed by the outputs of host steps.

        Parameters
        ----------
        frame : DataFrame or dict
            Columns by position 0, 1, ..., as ``select`` or ``columns`` returns them.
        rows : int
            The number of rows, for a dict.
        training : bool
            Whether categories that the source rejects get the id of unknown (or missing) ones. Training moves the
            weights of this id, and from then on it is accepted. Otherwise they raise ``BadInput``.
        counts : dict
            Further columns as matrices, each keyed by its first column.
        text_ids : callable
            ``text_ids(category, values)`` gives the ids of a column, or None for one that ``category.ids`` has to
            encode or reject.
        """
        rows = len(frame) if rows is None else rows
        self._check_size(rows)
        numbers = np.zeros((rows, len(self.numbers)), dtype=self.dtype)
        columns = self.numbers
        if counts:  # the frame has few columns, and ``numbers`` has many
            columns = [column for column in frame if column in self._position_of_column]
        for column in columns:
            numbers[:, self._position_of_column[column]] = self._as_number(frame[column], column)
        ids = np.empty((rows, len(self.categories)), dtype=np.int64)
        for position, category in enumerate(self.categories):
            values, name = frame[category.column], self.column_name(category.column)
            if text_ids is None or (known := text_ids(category, values)) is None:
                known = category.ids(_without_codes(values), name, flat=self.flat, training=training)
            ids[:, position] = known
        return self.add_counts(Batch(torch.from_numpy(numbers), torch.from_numpy(ids)), counts or {})

    def of_counts(self, counts: Mapping[int, sparse.coo_array | NDArray[Any]]) -> Batch:
        """Counts as a batch without raw columns; see ``add_counts``."""
        rows = next(iter(counts.values())).shape[0]
        self._check_size(rows)
        numbers = torch.zeros(rows, len(self.numbers), dtype=getattr(torch, self.dtype))
        return self.add_counts(Batch.of_numbers(numbers), counts)

    def add_counts(self, batch: Batch, counts: Mapping[int, sparse.coo_array | NDArray[Any]]) -> Batch:
        """The batch with counts, or all sums of them, in their columns; a matrix is keyed by its first column."""
        numbers = batch.numbers.numpy()
        for first, matrix in counts.items():
            positions = self._positions_in_batch(first, matrix.shape[1])
            if isinstance(matrix, np.ndarray):
                numbers[:, positions] = matrix
                continue
            positions = positions[matrix.col]
            used = positions >= 0
            with np.errstate(over="ignore"):
                numbers[matrix.row[used], positions[used]] = matrix.data[used]
        return batch

    def sparse_counts(self, first: int, counts: sparse.coo_array) -> sparse.csr_array:
        """Counts of the columns from ``first`` on, sorted by row, as the numbers of a batch; the others are 0."""
        positions = self._positions_in_batch(first, counts.shape[1])[counts.col]
        used = positions >= 0
        starts = np.append(0, np.bincount(counts.row[used], minlength=counts.shape[0]).cumsum())
        with np.errstate(over="ignore"):
            values = counts.data[used].astype(self.dtype)
        return sparse.csr_array((values, positions[used], starts), (counts.shape[0], len(self.numbers)))

    def sparse_numbers(self, rows: Rows) -> sparse.csr_array | None:
        """The numbers of a sparse matrix, in their order and type; None for other rows, or where ids are read too.

        What it leaves out is ``unstored_number``.
        """
        if not sparse.issparse(rows) or rows.dtype.kind not in "biuf" or self.flat or self.categories:
            return None
        positions = self._positions_in_batch(0, self.width)
        if np.count_nonzero(positions >= 0) < len(self.numbers):
            return None  # a host step computes some
        if self.unstored == "rejected":
            self._check_zeros(rows)
        self._labels(rows, [], named=False)
        with np.errstate(over="ignore"):
            matrix = sparse.csr_array(rows, dtype=self.dtype)
        if not matrix.has_canonical_format:
            matrix = matrix.copy() if np.may_share_memory(matrix.data, rows.data) else matrix
            matrix.sum_duplicates()
        return matrix if np.array_equal(positions, np.arange(self.width)) else matrix[:, self.numbers]

    @property
    def unstored_number(self) -> float:
        """The number that an entry of ``sparse_numbers`` is if it is not stored: NaN if it is missing, else 0."""
        return math.nan if self.unstored == "missing" else 0.0

    def _positions_in_batch(self, first: int, count: int) -> NDArray[np.int64]:
        """The positions in ``numbers`` of ``count`` columns from ``first`` on; -1 for columns that are not encoded."""
        cached = self._cached_positions.get((first, count))
        if cached is None or cached[0] != len(self.numbers):
            columns = np.asarray(self.numbers, dtype=np.int64) - first
            inside = np.flatnonzero((columns >= 0) & (columns < count))
            positions = np.full(count, -1)
            positions[columns[inside]] = inside
            cached = self._cached_positions[first, count] = (len(self.numbers), positions)
        return cached[1]

    def _as_number(self, series: pd.Series, column: int) -> NDArray[Any]:
        try:
            values = to_float64(_without_codes(series))
        except (TypeError, ValueError, OverflowError) as error:
            dates = DATES if column_kind(series) in ("datetime64", "datetime", "date") else ""
            raise BadInput(
                f"column {self.column_name(column)} holds {sample_value(series, NUMBERS)} of dtype {series.dtype}; the "
                f"pipeline reads numbers there. {dates}Convert the column, or encode it in the pipeline before fitting."
            ) from error
        if self.dtype == "float64":
            return values
        self._warner.check_column(column, values, self.column_name)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, which compares alike
            return values.astype(np.float32)

    def _to_dtype(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The numbers ``[B, n]`` in the encoder's dtype; warns of columns that lose precision."""
        if self.dtype == "float64":
            return numbers
        self._warner.check_block(self.numbers, numbers, self.column_name)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, which compares alike
            return numbers.astype(np.float32, copy=False)

    def select(self, rows: Rows, columns: Collection[int] | None = None) -> pd.DataFrame:
        """Some fitted columns of raw rows, labelled by position; None stands for those that are encoded."""
        wanted = self.used_columns() if columns is None else sorted(columns)
        if self.flat:
            column = as_column(rows)
            return pd.DataFrame({at: pd.Series(indexable(column)) for at in wanted}, index=range(len(column)))
        self._check_zeros(rows)
        frame = as_frame(rows)
        if self.names is None and (isinstance(rows, Mapping) or is_list_of_dicts(rows)):
            frame = self._in_order_of_positions(frame)
        labels = self._labels(frame, wanted, is_named(rows))
        if labels is not None:
            picked = frame[labels_index(labels)]
        else:
            picked = frame if len(wanted) == self.width else frame.iloc[:, wanted]
        picked = picked.set_axis(wanted, axis=1)
        coded = [column for column, dtype in picked.dtypes.items() if is_arrow_dictionary(dtype)]
        return picked.astype(dict.fromkeys(coded, object)) if coded else picked

    def columns(self, rows: Rows) -> pd.DataFrame | dict[int, pd.Series]:
        """The columns of ``select``; as a dict, which is faster, if the rows are a table with unique names."""
        simple = isinstance(rows, pd.DataFrame) and not self.flat and rows.columns.nlevels == 1
        if not simple or not rows.columns.is_unique:
            return self.select(rows)
        self._check_zeros(rows)
        wanted = self.used_columns()
        labels = self._labels(rows, wanted, named=True)
        if labels is None:
            every = rows.columns.tolist()  # to look up one label of an Index takes longer
            labels = [every[column] for column in wanted]
        return {column: rows[label] for column, label in zip(wanted, labels, strict=True)}

    def _in_order_of_positions(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns of dicts whose keys are positions, as JSON's objects have no order; others are rejected."""
        labels = {str(label): label for label in frame.columns}
        positions = [str(position) for position in range(self.width)]
        if labels.keys() != {*positions} or len(labels) < frame.shape[1]:
            raise BadInput(
                f"got dicts with the columns {quote_names(list(frame.columns))}; this pipeline knows no names of "
                "columns, as it was fitted on an array, or as its first step keeps none. Give an array or a table, "
                f"whose columns go by position, or the positions '0' to '{self.width - 1}' as keys."
            )
        return frame[[labels[position] for position in positions]]

    def _check_size(self, rows: int) -> None:
        """Reject so many rows that their numbers would take too much memory."""
        check_dense(rows, len(self.numbers), np.dtype(self.dtype).itemsize)

    def _check_zeros(self, rows: Rows) -> None:
        """Reject a sparse matrix, and a table that becomes one, if its zeros would be missing values."""
        columns = self.rejects_sparse_columns and isinstance(rows, pd.DataFrame) and rows.shape[1] > 0
        table = columns and all(isinstance(dtype, pd.SparseDtype) for dtype in rows.dtypes)
        if table or (self.unstored != "zero" and hasattr(rows, "toarray")):
            what = "table of sparse columns" if table else "sparse matrix"
            raise BadInput(
                f"got a {what}, whose zeros a step of the source tells from those that are left out; give a dense "
                f"{'one' if table else 'array'}, with NaN where they are meant to be missing."
            )

    def _labels(self, frame: pd.DataFrame, wanted: list[int], named: bool) -> list[Any] | None:
        """The labels of the wanted columns in a table; None if the columns are in fitted order."""
        if self.needs_names and self.names is not None and not named:
            raise BadInput(
                "got rows without names; the model was fitted on a table, and would read numbers in an array as "
                f"category codes. Give a DataFrame with the columns {quote_names(self.names)}."
            )
        if self.names is None or not named:
            if frame.shape[1] != self.width:
                raise BadInput(
                    f"got {frame.shape[1]} columns; the pipeline was fitted on {self.width}"
                    + (f": {quote_names(self.names)}. Give a DataFrame with these names." if self.names else ".")
                )
            return None
        return None if self._in_order(frame) else labels_of(frame, [self.names[column] for column in wanted])

    def source_rows(self, rows: Rows, read: Collection[int] | None = None) -> Any:
        """All fitted columns of raw rows in the form that the source takes: a DataFrame, an array or a sequence.

        Of a table, only the columns ``read`` need be there, None for all; the others are full of NaN, unless all are
        there in their order.
        """
        if self.flat:
            return as_column(rows)
        if isinstance(rows, pd.DataFrame) and rows.columns.tolist() == self.names:
            if not any(map(is_arrow_dictionary, rows.dtypes)):
                return rows.copy(deep=False)
        every = range(self.width)
        if read is None or self.names is None:  # without names there are all columns
            frame = self.select(rows, every)
        else:
            frame = self.select(rows, read).reindex(columns=every)
        return frame.to_numpy() if self.names is None else frame.set_axis(labels_index(self.names), axis=1)
