"""Columns that the source's own code computes for a stage of a cascade: outputs of host steps, sums of term counts."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.estimators.lookup import Lookup
from windtunnel.pipeline.expressions import columns_read
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.summed_counts import CountSums
from windtunnel.serving.cascade.take_rows import take_rows

Floats = NDArray[np.float64]
_NAN = object()
"""Stands for NaN in a key, as NaN is not equal to itself and its row would never be found."""


@dataclass(eq=False)
class HostFeatures:
    """The features that a stage takes from a host step: some of its columns, and sums over its term counts."""

    host: HostStep
    # positions of the output columns of the step that are taken as they are
    columns: list[int] = field(default_factory=list)
    sums: list[CountSums] = field(default_factory=list)
    cache: FeatureCache | None = None  # keeps the features of rows seen before

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.columns) + sum(sums.width for sums in self.sums)

    @property
    def remote(self) -> bool:
        """Whether a client asks another process for the features."""
        estimator = self.host.step.estimator
        return isinstance(estimator, Lookup) and hasattr(estimator.store, "mget")

    def compute(self, rows: Any, width: int) -> Floats:
        """The features of raw rows, ``[B, self.width]``: the columns, then the sums.

        ``rows`` have all ``width`` raw columns, in the form that the source takes.
        """
        if self.cache is None:
            return self._computed(rows)
        read = columns_read(self.host.step.inputs)
        keys = row_keys(rows, range(width) if read is None else sorted(read))
        return self.cache.columns(keys, lambda positions: self._computed(take_rows(rows, positions)), self.width)

    def _computed(self, rows: Any) -> Floats:
        if self.host.tokens is None:
            return self.host.output(rows).to_numpy(dtype=np.float64)[:, self.columns]
        counts = self.host.count(rows)
        blocks = [sums.compute(counts).astype(np.float64) for sums in self.sums]
        if self.columns:
            blocks.insert(0, counts.tocsc()[:, self.columns].toarray().astype(np.float64))
        return blocks[0] if len(blocks) == 1 else np.hstack(blocks)


@dataclass(eq=False)
class FeatureCache:
    """The columns of the rows seen last, by the raw columns that they are computed from."""

    size: int  # the most entries
    # hits, misses: rows that were found, and rows that were not. Equal rows of one batch are computed once; all but the
    # first are hits.
    hits: int = 0
    misses: int = 0
    _values: OrderedDict[Any, Floats] = field(default_factory=OrderedDict, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @property
    def hit_rate(self) -> float:
        """The share of rows that were found."""
        return self.hits / max(self.hits + self.misses, 1)

    def columns(self, keys: Sequence[Any], compute: Callable[[list[int]], Floats], width: int) -> Floats:
        """The columns of each row, ``[B, width]``; ``compute`` gives those of the rows at some positions."""
        output = np.empty((len(keys), width))
        first: dict[Any, int] = {}
        with self._lock:
            for position, key in enumerate(keys):
                if (values := self._values.get(key)) is None:
                    first.setdefault(key, position)
                else:
                    self._values.move_to_end(key)
                    output[position] = values
            self.misses += len(first)
            self.hits += len(keys) - len(first)
        if not first:
            return output
        computed = dict(zip(first, compute([*first.values()]), strict=True))
        for position, key in enumerate(keys):
            if (values := computed.get(key)) is not None:
                output[position] = values
        with self._lock:
            for key, values in computed.items():
                self._values[key] = values.copy()
            while len(self._values) > self.size:
                self._values.popitem(last=False)
        return output


def row_keys(rows: Any, columns: Sequence[int]) -> list[Any]:
    """A hashable key for the values of some columns in each row."""
    if hasattr(rows, "iloc"):
        values = [rows.iloc[:, column].tolist() for column in columns] if rows.ndim == 2 else [rows.tolist()]
    elif getattr(rows, "ndim", 1) == 2:
        values = [rows[:, column].tolist() for column in columns]
    else:
        values = [rows.tolist() if hasattr(rows, "tolist") else list(rows)]
    return [*zip(*([_comparable(value) for value in column] for column in values), strict=True)]


def _comparable(value: Any) -> Any:
    """A value that is equal to itself alone: steps on the host may tell 1 from True and 1.0, 0.0 from -0.0."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _NAN if math.isnan(value) else (float, math.copysign(1.0, value), value)
    return type(value), value
