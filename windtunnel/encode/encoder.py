"""Which raw columns become numbers and which become ids, and the two blocks that they become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from windtunnel.encode.category import CategoryColumn
from windtunnel.encode.columns import (
    NUMBERS,
    is_arrow_dictionary,
    is_plain,
    listed,
    quoted,
    sample_value,
    to_float64,
    to_floats,
)
from windtunnel.encode.precision_loss import Blur
from windtunnel.encode.rows import Rows, as_column, as_frame, check_dense, indexable, is_named, python_columns
from windtunnel.encode.sparse_rows import SparseRows
from windtunnel.errors import BadInput


class Batch(NamedTuple):
    """Encoded rows: ``numbers`` float32 or float64 [B, n] (NaN where missing) and ``ids`` int64 [B, m]."""

    numbers: Tensor
    ids: Tensor


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
    rejects_sparse : bool
        Whether a sparse matrix is rejected, whose zeros the source takes for missing values.
    needs_names : bool
        Whether rows without names are rejected, in which the source takes numbers for codes of categories.
    rejects_sparse_columns : bool
        Whether a table of nothing but sparse columns is rejected, as a sparse matrix is.
    """

    names: list[str] | None
    width: int
    numbers: list[int] = field(default_factory=list)
    categories: list[CategoryColumn] = field(default_factory=list)
    dtype: str = "float32"
    flat: bool = False
    rejects_sparse: bool = False
    needs_names: bool = False
    rejects_sparse_columns: bool = False
    _blur: Blur = field(default_factory=Blur, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._position = {column: position for position, column in enumerate(self.numbers)}
        # Columns of counts -> how many numbers there were, and the positions: found out once, not for every few rows.
        self._found: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}

    def add_number(self, column: int) -> int:
        """The position in ``Batch.numbers`` of a raw column, which is read as a number from now on."""
        position = self._position.setdefault(column, len(self.numbers))
        if position == len(self.numbers):
            self.numbers.append(column)
        return position

    def add_category(self, wanted: CategoryColumn) -> int:
        """The position in ``Batch.ids`` of a raw column under a vocabulary."""
        if wanted not in self.categories:
            self.categories.append(wanted)
        return self.categories.index(wanted)

    def column_name(self, column: int) -> str:
        """How messages call a column."""
        return repr(self.names[column]) if self.names and column < self.width else f"number {column}"

    def columns_by_kind(self) -> tuple[set[int], set[int]]:
        """The raw columns that some step reads as numbers, and those that some step reads as texts."""
        numbers, texts = set(self.numbers), set[int]()
        for one in self.categories:
            (numbers if one.vocabulary.kind == "number" else texts).add(one.column)
        return numbers, texts

    def used_columns(self) -> list[int]:
        """The raw columns that something reads, in order."""
        read = {*self.numbers, *(category.column for category in self.categories)}
        return sorted(column for column in read if column < self.width)

    def check_batch(self, batch: Batch) -> Batch:
        """An encoded batch, if it has the columns of this encoder."""
        given, wanted = [block.shape[1] for block in batch], [len(self.numbers), len(self.categories)]
        if given != wanted or len(batch.numbers) != len(batch.ids):
            raise BadInput(
                f"got a batch of {given[0]} numbers in {len(batch.numbers)} rows and {given[1]} ids in "
                f"{len(batch.ids)} rows; this translation reads {wanted[0]} numbers and {wanted[1]} ids. "
                "Give raw rows, or what its own encode gave."
            )
        return batch

    def encode_array(self, rows: Rows, *, shared: bool = False) -> Batch | None:
        """An array of numbers as a batch, in one piece; None where columns have to be looked at one by one.

        Where ``shared``, the numbers may be those of the array itself.
        """
        if self.flat or self.categories or max(self.numbers, default=0) >= self.width:
            return None
        if isinstance(rows, pd.DataFrame):
            # One array of all columns is worth it where most are read.
            mostly = rows.shape[1] == self.width <= 2 * len(self.numbers)
            if not mostly or not self._in_order(rows) or not all(map(is_plain, rows.dtypes)):
                return None
            rows = rows.to_numpy(dtype=np.float64)
        elif type(rows) is not np.ndarray or rows.ndim != 2 or rows.dtype.kind != "f" or rows.shape[1] != self.width:
            return None
        check_dense(len(rows), len(self.numbers), np.dtype(self.dtype).itemsize)
        read = rows if self.numbers == list(range(self.width)) else np.take(rows, self.numbers, axis=1)
        numbers = np.ascontiguousarray(self._in_dtype(read), dtype=self.dtype)
        # Of what cannot be written to torch makes no tensor.
        if not numbers.flags.writeable or (not shared and np.may_share_memory(numbers, rows)):
            numbers = numbers.copy()
        return Batch(torch.from_numpy(numbers), torch.from_numpy(np.empty((len(rows), 0), dtype=np.int64)))

    def _in_order(self, frame: pd.DataFrame) -> bool:
        """Whether a table has the fitted columns and no others, as they were."""
        return self.names is None or [*map(str, frame.columns.tolist())] == self.names

    def encode_few(self, rows: Rows) -> Batch | None:
        """Few rows as a batch, by the Python values in them; None where these do not tell all that ``encode`` tells.

        What is rejected, and what might be read otherwise because of its dtype, is left to ``encode``. The columns of
        answers of steps kept on the host are 0.
        """
        told = all(category.vocabulary.has_plain_lookup for category in self.categories)
        if not told or (cells := self._cells(rows)) is None:
            return None
        count = len(next(iter(cells.values())))
        check_dense(count, len(self.numbers), np.dtype(self.dtype).itemsize)
        raw = [position for position, column in enumerate(self.numbers) if column < self.width]
        floats = to_floats([*chain.from_iterable(cells[self.numbers[position]] for position in raw)])
        known = [one.ids_of_values(cells[one.column]) if one.column in cells else None for one in self.categories]
        if floats is None or None in known:
            return None
        numbers = np.zeros((count, len(self.numbers)))
        numbers[:, raw] = floats.reshape(len(raw), count).T
        ids = np.array(known, dtype=np.int64).reshape(len(known), count).T
        return Batch(torch.from_numpy(self._in_dtype(numbers)), torch.from_numpy(np.ascontiguousarray(ids)))

    def _cells(self, rows: Rows) -> dict[int, list[Any]] | None:
        """The Python values of each column that is read, if rows are few and it is plain which column is which."""
        wide = isinstance(rows, pd.DataFrame) and rows.shape[1] > 2 * (len(self.numbers) + len(self.categories))
        if self.flat or wide or (found := python_columns(rows)) is None:
            return None
        labels, columns = found
        if labels is None and self.needs_names:
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
            Whether categories that the source rejects get the row of the unknown (or missing) one, which is then no
            longer rejected, as training moves it; or raise ``BadInput``.
        counts : dict
            The columns that are not in the frame, as sparse matrices under the first column of each.
        """
        rows = len(frame) if rows is None else rows
        check_dense(rows, len(self.numbers), np.dtype(self.dtype).itemsize)
        numbers = np.zeros((rows, len(self.numbers)), dtype=self.dtype)
        # Of a table beside counts the few columns are gone through, and not the many terms.
        read = [column for column in frame if column in self._position] if counts else self.numbers
        for column in read:
            numbers[:, self._position[column]] = self._as_number(frame[column], column)
        ids = np.empty((rows, len(self.categories)), dtype=np.int64)
        for position, category in enumerate(self.categories):
            values, name = frame[category.column], self.column_name(category.column)
            ids[:, position] = category.ids(values, name, flat=self.flat, training=training)
        return self.add_counts(Batch(torch.from_numpy(numbers), torch.from_numpy(ids)), counts or {})

    def add_counts(self, batch: Batch, counts: Mapping[int, sparse.coo_array]) -> Batch:
        """A batch with counts in their columns, which were 0; as sparse matrices under the first column of each."""
        numbers = batch.numbers.numpy()
        for first, matrix in counts.items():
            positions = self._places(first, matrix.shape[1])[matrix.col]
            read = positions >= 0
            with np.errstate(over="ignore"):
                numbers[matrix.row[read], positions[read]] = matrix.data[read]
        return batch

    def sparse_counts(self, first: int, counts: sparse.coo_array) -> SparseRows:
        """Counts from a column on, which come row by row, as the numbers of a batch without their zeros."""
        positions = self._places(first, counts.shape[1])[counts.col]
        read = positions >= 0
        starts = np.append(0, np.bincount(counts.row[read], minlength=counts.shape[0]).cumsum())
        with np.errstate(over="ignore"):
            values = counts.data[read].astype(self.dtype)
        return SparseRows(*map(torch.from_numpy, (values, positions[read], starts)))

    def _places(self, first: int, count: int) -> NDArray[np.int64]:
        """The positions in ``numbers`` of ``count`` columns from ``first`` on, -1 for those that are not read."""
        known = self._found.get((first, count))
        if known is None or known[0] != len(self.numbers):
            columns = np.asarray(self.numbers, dtype=np.int64) - first
            here = np.flatnonzero((columns >= 0) & (columns < count))
            places = np.full(count, -1)
            places[columns[here]] = here
            known = self._found[first, count] = (len(self.numbers), places)
        return known[1]

    def _as_number(self, given: pd.Series, column: int) -> NDArray[Any]:
        try:
            values = to_float64(given)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(
                f"column {self.column_name(column)} holds {sample_value(given, NUMBERS)} of dtype {given.dtype}; "
                "the pipeline reads numbers there. Convert the column, or encode it in the pipeline before fitting."
            ) from error
        if self.dtype == "float64":
            return values
        self._blur.look_at(column, values, self.column_name)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, as any comparison would have it
            return values.astype(np.float32)

    def _in_dtype(self, read: NDArray[Any]) -> NDArray[Any]:
        """The numbers ``[B, n]``, rounded where float32 is computed in, with a word on columns that this blurs."""
        if self.dtype == "float64":
            return read
        self._blur.look(self.numbers, read, self.column_name)
        with np.errstate(over="ignore"):  # beyond float32's range: infinite, as any comparison would have it
            return read.astype(np.float32, copy=False)

    def select(self, rows: Rows, *, every: bool = False) -> pd.DataFrame:
        """The fitted columns of raw rows, under their positions; only those that are read unless ``every``."""
        wanted = list(range(self.width)) if every else self.used_columns()
        if self.flat:
            column = as_column(rows)
            return pd.DataFrame({at: pd.Series(indexable(column)) for at in wanted}, index=range(len(column)))
        self._check_dense(rows)
        frame = as_frame(rows)
        labels = self._labels(frame, wanted, is_named(rows))
        if labels is not None:
            picked = frame[labels]
        else:
            picked = frame if len(wanted) == self.width else frame.iloc[:, wanted]
        picked = picked.set_axis(wanted, axis=1)
        coded = [column for column, dtype in picked.dtypes.items() if is_arrow_dictionary(dtype)]
        return picked.astype(dict.fromkeys(coded, object)) if coded else picked

    def columns(self, rows: Rows) -> pd.DataFrame | dict[int, pd.Series]:
        """The columns of ``select``, without a table of their own where the names of a given one tell them apart."""
        simple = isinstance(rows, pd.DataFrame) and not self.flat and rows.columns.nlevels == 1
        if not simple or not rows.columns.is_unique:
            return self.select(rows)
        self._check_dense(rows)
        wanted = self.used_columns()
        labels = self._labels(rows, wanted, named=True)
        if labels is None:
            given = rows.columns.tolist()  # to look up one label of an Index takes longer
            labels = [given[column] for column in wanted]
        columns = {column: rows[label] for column, label in zip(wanted, labels, strict=True)}
        for column, values in columns.items():
            if is_arrow_dictionary(values.dtype):
                columns[column] = values.astype(object)
        return columns

    def _check_dense(self, rows: Rows) -> None:
        """Reject a sparse matrix, and a table that becomes one, where the zeros of it would be missing values."""
        columns = self.rejects_sparse_columns and isinstance(rows, pd.DataFrame) and rows.shape[1] > 0
        table = columns and all(isinstance(dtype, pd.SparseDtype) for dtype in rows.dtypes)
        if table or (self.rejects_sparse and hasattr(rows, "toarray")):
            what = "table of sparse columns" if table else "sparse matrix"
            raise BadInput(
                f"got a {what}, whose zeros XGBoost takes for missing values; give a dense "
                f"{'one' if table else 'array'}, with NaN where they are meant to be missing."
            )

    def _labels(self, frame: pd.DataFrame, wanted: list[int], named: bool) -> list[Any] | None:
        """The labels in a table of the wanted columns; None where the columns stand as they were fitted."""
        if self.needs_names and self.names is not None and not named:
            raise BadInput(
                "got rows without names; the model was fitted on a table, and takes numbers in an array for the codes "
                f"of its categories, and not for these. Give a DataFrame with the columns {quoted(self.names)}."
            )
        if self.names is None or not named:
            if frame.shape[1] != self.width:
                raise BadInput(
                    f"got {frame.shape[1]} columns; the pipeline was fitted on {self.width}"
                    + (f": {quoted(self.names)}. Give a DataFrame with these names." if self.names else ".")
                )
            return None
        return None if self._in_order(frame) else self._present(frame, [self.names[column] for column in wanted])

    def source_rows(self, rows: Rows) -> Any:
        """All fitted columns of raw rows as the source takes them: a DataFrame with its names, an array, a sequence."""
        if self.flat:
            return as_column(rows)
        if isinstance(rows, pd.DataFrame) and rows.columns.tolist() == self.names:
            if not any(map(is_arrow_dictionary, rows.dtypes)):
                return rows.copy(deep=False)
        frame = self.select(rows, every=True)
        return frame.to_numpy() if self.names is None else frame.set_axis(self.names, axis=1)

    def _present(self, frame: pd.DataFrame, names: list[str]) -> list[Any]:
        """The labels in the frame of the columns of these names."""
        label = {str(given): given for given in frame.columns}
        # LightGBM writes a blank in a name as an underscore.
        label = {given.replace(" ", "_"): one for given, one in label.items()} | label
        count = Counter(map(str, frame.columns))
        if twice := sorted({name for name in names if count[name] > 1}):
            raise BadInput(f"columns given twice: {quoted(twice)}; each name must be there once.")
        if missing := [name for name in names if name not in label]:
            close = {name: get_close_matches(name, count, n=1) for name in missing[:12]}
            hints = [f"{name!r} (given: {match[0]!r})" if match else repr(name) for name, match in close.items()]
            raise BadInput(
                f"columns missing: {listed(hints + missing[12:])}. Given: {quoted(list(count))}. "
                f"The pipeline reads {quoted(names)}; rename or add the missing ones."
            )
        return [label[name] for name in names]
