"""The one mechanism for per-column encoders: the fitted encoder itself transforms each category, one column at a time.

The answers are the initial rows of the tables, whatever the encoder does inside: one-hots, codes, hashes, counts.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from windtunnel.encode import hash_bucket
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.categories.probe_inputs import (
    UNKNOWN,
    Shown,
    Unknown,
    is_missing,
    shown_categories,
    shown_number,
)
from windtunnel.translators.registry import CategoryEncoding

__all__ = ["UNKNOWN", "Probed", "Unknown", "hash_bucket", "probe"]

Array = NDArray[Any]

# Cells of the encoder's output held at a time; 32 MB in float64.
CELLS = 4_000_000
# Rows of random combinations on which the tables are held against the encoder.
COMBINATIONS = 64
# scikit-learn warns of an unknown category, and here one is shown on purpose; category_encoders 2.11 sets an option
# that pandas 3 has deprecated.
EXPECTED_WARNINGS = [
    ("Found unknown categories in columns", UserWarning),
    ("'future.no_silent_downcasting' is deprecated", DeprecationWarning),
]


@dataclass(frozen=True)
class Probed:
    """What an encoder does to each of its input columns.

    Attributes
    ----------
    tables : list of (float64 Tensor [V_j, w_j], the same as a CSR array, or None)
        Row i is what value i of input column j becomes; None for a number passed through. Sparse are those of more
        than ``CELLS`` numbers, from encoders that answer sparsely.
    positions : list of list of int
        The output columns that input column j owns, w_j of them; for a number, the one that it passes through to.
    additive : bool
        True where columns share outputs: every table then is ``[V_j, width]`` and the tables add up to the output
        (numbers passed through aside); ``positions`` then lists for each table all the shared columns.
    width : int
        Number of output columns.
    rejected : list of list of int
        The rows on which the source raises; they are zeros.
    flat : bool
        Whether the encoder answers with a sequence, and no table of one column.
    """

    tables: list[Tensor | sparse.csr_array | None]
    positions: list[list[int]]
    additive: bool
    width: int
    rejected: list[list[int]]
    flat: bool


def probe(fitted: Any, encoding: CategoryEncoding, columns: Sequence[Sequence[Any] | None]) -> Probed:
    """Ask a fitted encoder what it makes of each value of each column.

    A base row holds a known category of every column (0.0 where a number passes through). Then one column at a time
    runs through all of its values while the others stand still; the output columns that move are its own. At the end
    the tables are held against the encoder on random combinations.

    Parameters
    ----------
    fitted : estimator
        Left untouched.
    encoding : CategoryEncoding
        What its reader made of it.
    columns : sequence of (sequence or None)
        For each input column the values to show, where ``UNKNOWN`` stands for a category in no vocabulary and None or
        NaN for a missing value; None for a column of numbers passed through. With ``encoding.buckets`` each table gets
        one more row per bucket after the last value.
    """
    shown = [
        shown_number() if values is None else shown_categories(fitted, encoding, column, values)
        for column, values in enumerate(columns)
    ]
    source = _Source(fitted, encoding, shown)
    shown = source.asked()
    moves = [source.vary(column) for column in range(len(shown))]
    owners = np.bincount(
        np.concatenate([np.zeros(0, np.int64), *(move.columns for move in moves)]), minlength=source.width
    )
    _check_numbers(fitted, shown, moves, owners)
    additive = bool((owners > 1).any())
    if additive:
        moves = _shared(source, shown, moves)
    elif (owners == 0).any():
        moves = _adopted(source, shown, moves, np.flatnonzero(owners == 0))
    moves = [
        _Move(move.columns, _without(move.rows, column.rejected)) for column, move in zip(shown, moves, strict=True)
    ]
    probed = Probed(
        tables=[None if column.number else _table(move.rows) for column, move in zip(shown, moves, strict=True)],
        positions=[move.columns.tolist() for move in moves],
        additive=additive,
        width=source.width,
        rejected=[column.rejected for column in shown],
        flat=source.flat,
    )
    _verify(source, shown, probed)
    return probed


@dataclass(frozen=True)
class _Move:
    """The output columns [w] that an input column moves, sorted, and what they are for each value, float64 [V, w].

    Rows are sparse where there are many; what splits sums or adds constants makes them dense.
    """

    columns: NDArray[np.int64]
    rows: Any

    @property
    def plain(self) -> NDArray[np.float64]:
        """The rows as an array."""
        return _dense(self.rows)


class _Source:
    """A fitted encoder that answers with plain rows."""

    def __init__(self, fitted: Any, encoding: CategoryEncoding, shown: list[Shown]) -> None:
        self.fitted, self.encoding = fitted, encoding
        if hasattr(fitted, "max_process"):
            # HashingEncoder starts a pool of processes for each call; the copy works in this one.
            self.fitted = copy.copy(fitted)
            self.fitted.max_process = 1
        self.shown = shown
        self.names = list(getattr(fitted, "feature_names_in_", range(len(shown))))
        base = self._base()
        self.flat = np.ndim(base) == 1
        self.sparse = sparse.issparse(base)
        # [width], what the encoder makes of the base row
        self.origin = _dense(_rows(base))[0]
        self.width = len(self.origin)

    def _base(self) -> Any:
        try:
            return self._answer([column.still(1) for column in self.shown])
        except Exception as error:  # libraries have errors of their own
            raise UnsupportedEstimator(
                f"{type(self.fitted).__name__} accepts no value at all in some input column: not even "
                f"{[column.base for column in self.shown]!r} ({error})"
            ) from error

    def asked(self) -> list[Shown]:
        """The columns as the encoder takes them: it is asked about each kind of value that is in no vocabulary."""
        for column, shown in enumerate(self.shown):
            rejected: list[int] = []
            # Of values that are in no vocabulary, one speaks for all; None and NaN speak for themselves.
            answers: dict[str, bool] = {}
            for row in shown.rejected:
                value = shown.wanted[row]
                kind = repr(value) if is_missing(value) else "unknown"
                if kind not in answers:
                    told = self.encoding.rejects_missing if is_missing(value) else self.encoding.rejects_unknown
                    answers[kind] = told or self._rejects(column, row)
                rejected += [row] * answers[kind]
            self.shown[column] = shown if shown.number else shown.accepting(rejected)
        return self.shown

    def _rejects(self, column: int, row: int) -> bool:
        still = [other.still(2) for other in self.shown]
        still[column] = self.shown[column].alone(row)
        try:
            self.transform(still)
        except Exception:  # libraries have errors of their own
            return True
        return False

    def transform(self, columns: Sequence[Array]) -> Any:
        """Give the encoder's output for columns of values, as float64 ``[rows, width]`` or as a CSR array."""
        return _rows(self._answer(columns))

    def _answer(self, columns: Sequence[Array]) -> Any:
        with warnings.catch_warnings():
            for message, category in EXPECTED_WARNINGS:
                warnings.filterwarnings("ignore", message, category)
            return self.fitted.transform(columns[0] if self.encoding.flat else self._frame(columns))

    def _frame(self, columns: Sequence[Array]) -> pd.DataFrame:
        series = [pd.Series(column, dtype=column.dtype) for column in columns]
        frame = pd.concat(series, axis=1) if series else pd.DataFrame(index=range(1))
        return frame.set_axis(self.names, axis=1)

    def vary(self, column: int) -> _Move:
        """Run one column through its values while the others stand still."""
        values = self.shown[column].values
        if self.sparse and len(values) ** 2 > CELLS:
            return self._moved_sparsely(column, values)
        size = max(64, CELLS // max(1, self.width))
        parts = [self._moved(column, values[start : start + size]) for start in range(0, len(values), size)]
        columns = np.unique(np.concatenate([np.zeros(0, np.int64), *(part.columns for part in parts)]))
        rows = np.tile(self.origin[columns], (len(values), 1))
        for start, part in zip(range(0, len(values), size), parts, strict=True):
            rows[start : start + len(part.rows), np.searchsorted(columns, part.columns)] = part.rows
        return _Move(columns, rows)

    def _moved(self, column: int, values: Array) -> _Move:
        """Find the output columns that differ from the base row anywhere, for a chunk of values."""
        still = [other.still(len(values)) for other in self.shown]
        output = self.transform([*still[:column], values, *still[column + 1 :]])
        if sparse.issparse(output):
            # Only columns with an entry here or in the base row can differ, which keeps a wide output sparse.
            candidates = np.union1d(output.indices, np.flatnonzero(self.origin)).astype(np.int64)
            output = output[:, candidates].toarray()
        else:
            candidates = np.arange(self.width)
        origin = self.origin[candidates]
        moved = ~((output == origin) | (np.isnan(output) & np.isnan(origin))).all(axis=0)
        return _Move(candidates[moved], output[:, moved])

    def _moved_sparsely(self, column: int, values: Array) -> _Move:
        """The same for as many values as columns, where all that is equal to the base row is left out."""
        still = [other.still(len(values)) for other in self.shown]
        output = self.transform([*still[:column], values, *still[column + 1 :]])
        change = output - sparse.csr_array(np.ones((len(values), 1))) @ sparse.csr_array(self.origin[None, :])
        change.eliminate_zeros()
        columns = np.unique(change.indices).astype(np.int64)
        return _Move(columns, output[:, columns])


def _table(rows: Any) -> Tensor | sparse.csr_array:
    return rows if sparse.issparse(rows) else torch.from_numpy(np.ascontiguousarray(rows))


def _without(rows: Any, rejected: list[int]) -> Any:
    """The rows, those that the source rejects as zeros."""
    if sparse.issparse(rows):
        kept = np.ones(rows.shape[0])
        kept[rejected] = 0
        return sparse.csr_array(sparse.diags_array(kept) @ rows)
    rows[rejected] = 0
    return rows


def _rows(output: Any) -> Any:
    """An encoder's output as float64 ``[rows, width]``, or as a CSR array."""
    if sparse.issparse(output):
        return sparse.csr_array(output)
    rows = np.asarray(output).astype(np.float64)
    return rows[:, None] if rows.ndim == 1 else rows


def _dense(output: Any) -> Array:
    return np.asarray(output.toarray() if sparse.issparse(output) else output)


def _check_numbers(fitted: Any, shown: list[Shown], moves: list[_Move], owners: NDArray[np.int64]) -> None:
    changed = [
        j
        for j, (column, move) in enumerate(zip(shown, moves, strict=True))
        if column.number
        and (len(move.columns) > 1 or (owners[move.columns] > 1).any() or (move.plain.T != column.values).any())
    ]
    if changed:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} changes its input columns {changed}, which have no vocabulary; "
            "only numbers passed through as they are can be translated beside categories"
        )


def _shared(source: _Source, shown: list[Shown], moves: list[_Move]) -> list[_Move]:
    """Split an output that is a sum over columns into one full-width table per column.

    Only sums are observed; each table is fixed by making its least entry 0 in every output column, and what is left
    of the base row, 0 for hashed one-hots, goes to the first table.
    """
    numbers = [move.columns for column, move in zip(shown, moves, strict=True) if column.number]
    passed = np.concatenate([np.zeros(0, np.int64), *numbers])
    rest = source.origin.copy()
    answer = []
    for column, move in zip(shown, moves, strict=True):
        if column.number:
            answer.append(move)
            continue
        change = np.zeros((len(move.plain), source.width))
        change[:, move.columns] = move.plain - source.origin[move.columns]
        least = change[column.accepted].min(axis=0)
        rest += least
        answer.append(_Move(np.setdiff1d(np.arange(source.width), passed), (change - least)))
    first = next(j for j, column in enumerate(shown) if not column.number)
    answer[first] = _Move(answer[first].columns, (answer[first].rows + rest))
    return answer


def _adopted(source: _Source, shown: list[Shown], moves: list[_Move], orphans: NDArray[np.int64]) -> list[_Move]:
    """Give the constant output columns to a categorical column: the first that moves nothing, or else the first."""
    categorical = [j for j, column in enumerate(shown) if not column.number]
    if not categorical:
        raise UnsupportedEstimator(
            f"{type(source.fitted).__name__} adds the constant output columns {orphans.tolist()} to numbers that it "
            "passes through; only constants that belong to a categorical column can be translated"
        )
    heir = next((j for j in categorical if not len(moves[j].columns)), categorical[0])
    own = moves[heir]
    constants = np.tile(source.origin[orphans], (len(own.plain), 1))
    columns = np.concatenate([own.columns, orphans])
    order = np.argsort(columns)
    rows = np.concatenate([own.plain, constants], axis=1)[:, order]
    return [*moves[:heir], _Move(columns[order], rows), *moves[heir + 1 :]]


def _verify(source: _Source, shown: list[Shown], probed: Probed) -> None:
    """Hold the tables against the encoder on random combinations of values."""
    random = np.random.default_rng(0)
    composed = np.zeros((COMBINATIONS, probed.width))
    given = []
    for column, table, positions in zip(shown, probed.tables, probed.positions, strict=True):
        if table is None:
            given.append(random.normal(size=COMBINATIONS))
            composed[:, positions] = given[-1][:, None]
            continue
        accepted = column.accepted if len(column.accepted) else np.arange(len(column.values))
        picked = random.choice(accepted, COMBINATIONS)
        given.append(column.values[picked])
        rows = _dense(table[picked])
        if probed.additive:
            composed += rows
        else:
            composed[:, positions] = rows
    if not given:
        return
    expected = _dense(source.transform(given))
    if not np.allclose(composed, expected, rtol=1e-12, atol=1e-12 if probed.additive else 0, equal_nan=True):
        raise UnsupportedEstimator(
            f"{type(source.fitted).__name__} is not a table per column: what it makes of a column depends on the "
            "values of others. Encoders that treat each column by itself, or add columns up, can be translated"
        )
