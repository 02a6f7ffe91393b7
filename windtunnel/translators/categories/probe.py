"""Probes a per-column encoder: the fitted encoder itself transforms each category, one column at a time.

Its outputs are the initial rows of the tables, whatever it computes: one-hots, codes, hashes, counts.
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

from windtunnel.encode.columns import is_missing
from windtunnel.encode.labels import labels_index
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.categories.probe_inputs import ProbeColumn, category_column, number_column
from windtunnel.translators.conversions import CategoryEncoding

Array = NDArray[Any]

# Cells of the encoder's output in memory at a time; 32 MB in float64.
CELLS = 4_000_000
# Random rows on which the tables are compared with the encoder.
SAMPLED_ROWS = 64
# scikit-learn warns of unknown categories, which are probed on purpose; category_encoders 2.11 sets an option that
# pandas 3 has deprecated.
EXPECTED_WARNINGS = [
    ("Found unknown categories in columns", UserWarning),
    ("'future.no_silent_downcasting' is deprecated", DeprecationWarning),
]


@dataclass(frozen=True)
class Probed:
    """The table of each input column of an encoder."""

    tables: list[Tensor | sparse.csr_array | None]
    """Float64 ``[V_j, w_j]``: row i is the output for value i of input column j; None for a number that passes through.
    Tables of more than ``CELLS`` numbers from encoders with sparse output are CSR arrays."""
    positions: list[list[int]]
    """The w_j output columns of input column j; for a number, the one that it passes through to."""
    additive: bool
    """True if columns share outputs: every table is ``[V_j, width]``, the tables add up to the output (apart from
    numbers that pass through), and ``positions`` lists all shared columns for each table."""
    width: int  # number of output columns
    rejected: list[list[int]]  # the rows on which the source raises; they are zeros
    flat: bool  # whether the output of the encoder has one dimension


def probe(fitted: Any, encoding: CategoryEncoding, columns: Sequence[Sequence[Any] | None]) -> Probed:
    """Find the table of each input column of a fitted encoder.

    A base row holds a known category of every column (0.0 for a number that passes through). Then one column at a time
    takes all of its values while the others are constant; the output columns that change are its own. At the end the
    tables are compared with the encoder on random rows.

    Parameters
    ----------
    fitted : estimator
        Left untouched.
    encoding : CategoryEncoding
        The conversion of the encoder.
    columns : sequence of (sequence or None)
        For each input column the values to probe: ``UNKNOWN`` is a category in no vocabulary, None or NaN a missing
        value; None for a column of numbers that passes through. With ``encoding.buckets`` each table has one more row
        per bucket after the last value.
    """
    inputs = [
        number_column() if values is None else category_column(fitted, encoding, column, values)
        for column, values in enumerate(columns)
    ]
    source = _ProbedEncoder(fitted, encoding, inputs)
    inputs = source.probe_rejections()
    effects = [source.vary(column) for column in range(len(inputs))]
    owners = np.bincount(
        np.concatenate([np.zeros(0, np.int64), *(effect.columns for effect in effects)]), minlength=source.width
    )
    _check_numbers(fitted, inputs, effects, owners)
    additive = bool((owners > 1).any())
    if additive:
        effects = _split_sums(source, inputs, effects)
    elif (owners == 0).any():
        effects = _assign_constants(source, inputs, effects, np.flatnonzero(owners == 0))
    effects = [
        _Effect(effect.columns, _without_rejected(effect.rows, column.rejected))
        for column, effect in zip(inputs, effects, strict=True)
    ]
    probed = Probed(
        tables=[None if column.number else _table(effect.rows) for column, effect in zip(inputs, effects, strict=True)],
        positions=[effect.columns.tolist() for effect in effects],
        additive=additive,
        width=source.width,
        rejected=[column.rejected for column in inputs],
        flat=source.flat,
    )
    _verify(source, inputs, probed)
    return probed


@dataclass(frozen=True)
class _Effect:
    """The output columns [w] that an input column changes, sorted, and their values for each input, float64 [V, w]."""

    columns: NDArray[np.int64]
    rows: Any  # sparse if large, unless sums are split or constants are added

    @property
    def plain(self) -> NDArray[np.float64]:
        """The rows as an array."""
        return _dense(self.rows)


class _ProbedEncoder:
    """A fitted encoder with float64 rows as its output."""

    def __init__(self, fitted: Any, encoding: CategoryEncoding, inputs: list[ProbeColumn]) -> None:
        self.fitted, self.encoding = fitted, encoding
        if hasattr(fitted, "max_process"):
            # HashingEncoder starts a pool of processes for each call; the copy runs in this process.
            self.fitted = copy.copy(fitted)
            self.fitted.max_process = 1
        self.inputs = inputs
        self.names = list(getattr(fitted, "feature_names_in_", range(len(inputs))))
        base = self._base()
        self.flat = np.ndim(base) == 1
        self.sparse = sparse.issparse(base)
        # [width], the output for the base row
        self.origin = _dense(_rows(base))[0]
        self.width = len(self.origin)

    def _base(self) -> Any:
        try:
            return self._output([column.constant(1) for column in self.inputs])
        except Exception as error:  # libraries have errors of their own
            raise UnsupportedEstimator(
                f"{type(self.fitted).__name__} accepts no value at all in some input column: not even "
                f"{[column.base for column in self.inputs]!r} ({error})"
            ) from error

    def probe_rejections(self) -> list[ProbeColumn]:
        """The columns with the rows that the encoder rejects; it is probed with each kind of unlisted value."""
        for position, column in enumerate(self.inputs):
            rejected: list[int] = []
            # One unlisted category stands for all; None and NaN are kinds of their own.
            rejects: dict[str, bool] = {}
            for row in column.rejected:
                value = column.original[row]
                kind = repr(value) if is_missing(value) else "unknown"
                if kind not in rejects:
                    listed = self.encoding.rejects_missing if is_missing(value) else self.encoding.rejects_unknown
                    rejects[kind] = listed or self._rejects(position, row)
                rejected += [row] * rejects[kind]
            self.inputs[position] = column if column.number else column.rejecting(rejected)
        return self.inputs

    def _rejects(self, position: int, row: int) -> bool:
        columns = [column.constant(2) for column in self.inputs]
        columns[position] = self.inputs[position].base_and(row)
        try:
            self.transform(columns)
        except Exception:  # libraries have errors of their own
            return True
        return False

    def transform(self, columns: Sequence[Array]) -> Any:
        """The encoder's output for columns of values, as float64 ``[rows, width]`` or as a CSR array."""
        return _rows(self._output(columns))

    def _output(self, columns: Sequence[Array]) -> Any:
        with warnings.catch_warnings():
            for message, category in EXPECTED_WARNINGS:
                warnings.filterwarnings("ignore", message, category)
            return self.fitted.transform(columns[0] if self.encoding.flat else self._frame(columns))

    def _frame(self, columns: Sequence[Array]) -> pd.DataFrame:
        series = [pd.Series(column, dtype=column.dtype) for column in columns]
        frame = pd.concat(series, axis=1) if series else pd.DataFrame(index=range(1))
        return frame.set_axis(labels_index(self.names), axis=1)

    def vary(self, column: int) -> _Effect:
        """The effect of one column's values while the other columns are constant."""
        values = self.inputs[column].values
        if self.sparse and len(values) ** 2 > CELLS:
            return self._sparse_effect(column, values)
        size = max(64, CELLS // max(1, self.width))
        parts = [self._effect(column, values[start : start + size]) for start in range(0, len(values), size)]
        columns = np.unique(np.concatenate([np.zeros(0, np.int64), *(part.columns for part in parts)]))
        rows = np.tile(self.origin[columns], (len(values), 1))
        for start, part in zip(range(0, len(values), size), parts, strict=True):
            rows[start : start + len(part.rows), np.searchsorted(columns, part.columns)] = part.rows
        return _Effect(columns, rows)

    def _varied(self, column: int, values: Array) -> Any:
        constant = [other.constant(len(values)) for other in self.inputs]
        return self.transform([*constant[:column], values, *constant[column + 1 :]])

    def _effect(self, column: int, values: Array) -> _Effect:
        """The output columns that differ from the base row anywhere, for a chunk of values."""
        output = self._varied(column, values)
        if sparse.issparse(output):
            # Only columns with an entry in the output or in the base row can differ.
            candidates = np.union1d(output.indices, np.flatnonzero(self.origin)).astype(np.int64)
            output = output[:, candidates].toarray()
        else:
            candidates = np.arange(self.width)
        origin = self.origin[candidates]
        changed = ~((output == origin) | (np.isnan(output) & np.isnan(origin))).all(axis=0)
        return _Effect(candidates[changed], output[:, changed])

    def _sparse_effect(self, column: int, values: Array) -> _Effect:
        """``_effect`` as a sparse matrix, for about as many values as columns."""
        output = self._varied(column, values)
        change = output - sparse.csr_array(np.ones((len(values), 1))) @ sparse.csr_array(self.origin[None, :])
        change.eliminate_zeros()
        columns = np.unique(change.indices).astype(np.int64)
        return _Effect(columns, output[:, columns])


def _table(rows: Any) -> Tensor | sparse.csr_array:
    return rows if sparse.issparse(rows) else torch.from_numpy(np.ascontiguousarray(rows))


def _without_rejected(rows: Any, rejected: list[int]) -> Any:
    """The rows with zeros in those that the source rejects."""
    if sparse.issparse(rows):
        accepted = np.ones(rows.shape[0])
        accepted[rejected] = 0
        return sparse.csr_array(sparse.diags_array(accepted) @ rows)
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


def _check_numbers(fitted: Any, inputs: list[ProbeColumn], effects: list[_Effect], owners: NDArray[np.int64]) -> None:
    changed = [
        j
        for j, (column, effect) in enumerate(zip(inputs, effects, strict=True))
        if column.number
        and (len(effect.columns) > 1 or (owners[effect.columns] > 1).any() or (effect.plain.T != column.values).any())
    ]
    if changed:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} changes its input columns {changed}, which have no vocabulary; "
            "only numbers passed through as they are can be translated beside categories"
        )


def _split_sums(source: _ProbedEncoder, inputs: list[ProbeColumn], effects: list[_Effect]) -> list[_Effect]:
    """Split a sum over columns into a full-width table each: least entries are 0, the first table gets the rest."""
    numbers = [effect.columns for column, effect in zip(inputs, effects, strict=True) if column.number]
    passed = np.concatenate([np.zeros(0, np.int64), *numbers])
    rest = source.origin.copy()
    split = []
    for column, effect in zip(inputs, effects, strict=True):
        if column.number:
            split.append(effect)
            continue
        change = np.zeros((len(effect.plain), source.width))
        change[:, effect.columns] = effect.plain - source.origin[effect.columns]
        least = change[column.accepted].min(axis=0)
        rest += least
        split.append(_Effect(np.setdiff1d(np.arange(source.width), passed), (change - least)))
    first = next(j for j, column in enumerate(inputs) if not column.number)
    split[first] = _Effect(split[first].columns, split[first].rows + rest)
    return split


def _assign_constants(
    source: _ProbedEncoder, inputs: list[ProbeColumn], effects: list[_Effect], constants: NDArray[np.int64]
) -> list[_Effect]:
    """Add the constant output columns to a categorical column: the first without effect, or else the first."""
    categorical = [j for j, column in enumerate(inputs) if not column.number]
    if not categorical:
        raise UnsupportedEstimator(
            f"{type(source.fitted).__name__} adds the constant output columns {constants.tolist()} to numbers that it "
            "passes through; only constants that belong to a categorical column can be translated"
        )
    owner = next((j for j in categorical if not len(effects[j].columns)), categorical[0])
    effect = effects[owner]
    columns = np.concatenate([effect.columns, constants])
    order = np.argsort(columns)
    repeated = np.tile(source.origin[constants], (len(effect.plain), 1))
    rows = np.concatenate([effect.plain, repeated], axis=1)[:, order]
    return [*effects[:owner], _Effect(columns[order], rows), *effects[owner + 1 :]]


def _verify(source: _ProbedEncoder, inputs: list[ProbeColumn], probed: Probed) -> None:
    """Compare the tables with the encoder on random rows."""
    random = np.random.default_rng(0)
    tabled = np.zeros((SAMPLED_ROWS, probed.width))
    columns: list[Array] = []
    for column, table, positions in zip(inputs, probed.tables, probed.positions, strict=True):
        if table is None:
            columns.append(random.normal(size=SAMPLED_ROWS))
            tabled[:, positions] = columns[-1][:, None]
            continue
        accepted = column.accepted if len(column.accepted) else np.arange(len(column.values))
        sampled = random.choice(accepted, SAMPLED_ROWS)
        columns.append(column.values[sampled])
        rows = _dense(table[sampled])
        if probed.additive:
            tabled += rows
        else:
            tabled[:, positions] = rows
    if not columns:
        return
    expected = _dense(source.transform(columns))
    if not np.allclose(tabled, expected, rtol=1e-12, atol=1e-12 if probed.additive else 0, equal_nan=True):
        raise UnsupportedEstimator(
            f"{type(source.fitted).__name__} is not a table per column: what it makes of a column depends on the "
            "values of others. Encoders that treat each column by itself, or add columns up, can be translated"
        )
