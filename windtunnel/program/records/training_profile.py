"""The profile of the training rows: how often the values of each raw column occur. It holds no row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.encode import FIRST_ID, UNKNOWN_ID, Batch, CategoryColumn, RowEncoder
from windtunnel.encode.columns import to_float64
from windtunnel.encode.evenly_spaced import evenly_spaced
from windtunnel.pipeline.host_step import HostStep, computed_names

BINS = 20
"""Bins of numbers."""
FREQUENT = 20
"""Categories that drift compares one by one; the other ones count as one."""
SMOOTHING = 0.5
"""Rows that drift adds to each bin, so that an empty one has a logarithm."""
BACKGROUND_ROWS = 1000
MOST_ROWS = 200_000
"""The most rows that are counted; of more rows, evenly spaced ones are taken."""


@dataclass(frozen=True)
class ColumnDrift:
    """How much the values of a raw column differ between new rows and the training rows."""

    column: str
    index: float
    """Population stability index: the sum over bins of (q - p) ln(q / p), with the fraction p of the training rows and
    q of the new rows in the bin. A rule of thumb calls values from 0.1 on a drift, from 0.25 on a large one."""
    chance: float  # its mean for as many new rows without drift: (bins - 1) (1 / training rows + 1 / new rows)

    @property
    def drifts(self) -> bool:
        """Whether it is at least 0.1 and more than twice what chance gives."""
        return self.index >= 0.1 and self.index > 2 * self.chance

    def __str__(self) -> str:
        return f"{self.column} {self.index:.3f}"


@dataclass(frozen=True)
class ColumnProfile:
    """Counts of the values of a raw column."""

    column: int  # the raw column
    counts: Tensor
    """int64. Of numbers ``[2 + E]``: missing ones, those up to each edge, those above the last one. Of categories
    ``[V]``: unknown ones, missing ones, then each of the vocabulary."""
    edges: Tensor  # float64 [E], quantiles of numbers, ascending; [0] for categories
    means: Tensor  # float64 [2 + E], the mean number of each bin, 0 where it is empty; [0] for categories

    @property
    def numeric(self) -> bool:
        """Whether the column holds numbers."""
        return len(self.means) > 0

    @classmethod
    def of_numbers(cls, column: int, values: NDArray[np.float64]) -> ColumnProfile:
        """Count numbers between their quantiles."""
        is_finite = np.isfinite(values)
        finite = values[is_finite]
        levels = np.linspace(0, 1, BINS + 1)[1:-1]
        edges = np.unique(np.quantile(finite, levels, method="inverted_cdf")) if len(finite) else np.empty(0)
        code = _bins(values, edges)
        counts = np.bincount(code, minlength=len(edges) + 2)
        sums, filled = (np.bincount(code[is_finite], weights, len(edges) + 2) for weights in (finite, None))
        means = sums / np.maximum(filled, 1)
        return cls(column, torch.from_numpy(counts), torch.from_numpy(edges), torch.from_numpy(means))

    @classmethod
    def of_ids(cls, column: int, ids: NDArray[np.int64], vocabulary: int) -> ColumnProfile:
        """Count ids; those of hashes beyond the vocabulary are unknown."""
        empty = torch.empty(0, dtype=torch.float64)
        return cls(column, torch.from_numpy(_count_ids(ids, vocabulary)), empty, empty)

    def count(self, values: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts of other numbers or ids in the same bins."""
        if self.numeric:
            return np.bincount(_bins(np.asarray(values, np.float64), self.edges.numpy()), minlength=len(self.counts))
        return _count_ids(np.asarray(values, np.int64), len(self.counts))

    def drift(self, name: str, values: NDArray[np.float64] | NDArray[np.int64]) -> ColumnDrift:
        """The drift of other numbers or ids."""
        old, new = self._merged(self.counts.numpy()), self._merged(self.count(values))
        used = (old > 0) | (new > 0)
        bins = int(used.sum())
        p, q = ((part[used] + SMOOTHING) / (part.sum() + SMOOTHING * bins) for part in (old, new))
        chance = (bins - 1) * (1 / max(old.sum(), 1) + 1 / max(new.sum(), 1))
        return ColumnDrift(name, float(((q - p) * np.log(q / p)).sum()), float(chance))

    def _merged(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The counts with rare categories of the vocabulary as one."""
        if self.numeric or len(counts) <= FIRST_ID + FREQUENT:
            return counts
        order = FIRST_ID + np.argsort(-self.counts.numpy()[FIRST_ID:], kind="stable")
        rest = counts[order[FREQUENT:]].sum()
        return np.concatenate([counts[:FIRST_ID], counts[order[:FREQUENT]], [rest]])

    def draw(self, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Bins or ids in a random order, each as often as in the profile but for rounding, int64 ``[rows]``."""
        total = np.cumsum(self.counts.numpy())
        places = (np.arange(rows) + 0.5) / rows * total[-1]
        return generator.permutation(np.searchsorted(total, places, side="right"))


@dataclass(frozen=True)
class TrainingProfile:
    """How often the values of each raw column occur in the training rows: counts, quantiles and means of bins.

    The columns that steps on the host compute are in it too, up to ``HostStep.is_listed``.
    """

    rows: int
    columns: tuple[ColumnProfile, ...]

    @classmethod
    def of(cls, encoder: RowEncoder, hosts: Sequence[HostStep], batch: Batch) -> TrainingProfile:
        """Count the values of encoded rows."""
        count = len(batch.ids)
        rows = evenly_spaced(count, MOST_ROWS)
        numbers, ids = (block.cpu()[rows].numpy() for block in batch)
        columns, places = [], _BatchPlaces.of(encoder)
        computed = {column for host in hosts if host.is_listed for column in host.columns}
        used = set.union(*encoder.columns_by_kind())
        for column in [*encoder.used_columns(), *sorted(used & computed)]:
            if column in places.categories:
                position = max(places.categories[column], key=lambda place: places.lengths[place])
                columns.append(ColumnProfile.of_ids(column, ids[:, position], places.lengths[position]))
            else:
                values = numbers[:, places.numbers[column]].astype(np.float64)
                columns.append(ColumnProfile.of_numbers(column, values))
        return cls(len(rows), tuple(columns))

    def drift(self, encoder: RowEncoder, hosts: Sequence[HostStep], batch: Batch) -> tuple[ColumnDrift, ...]:
        """The drift of each column of other encoded rows, the largest first."""
        drifts, names, places = [], _column_names(encoder, hosts), _BatchPlaces.of(encoder)
        for profile in self.columns:
            if (position := places.counted(profile)) is not None:
                block = batch.numbers if profile.numeric else batch.ids
                drifts.append(profile.drift(names[profile.column], block[:, position].numpy(force=True)))
        return tuple(sorted(drifts, key=lambda drift: -drift.index))

    def background(self, encoder: RowEncoder) -> Batch | None:
        """``BACKGROUND_ROWS`` encoded rows with independent columns, whose values occur as often as in the profile.

        A number is the mean of its bin. None if the profile lacks a column, such as one of a step on the host.
        """
        generator, filled, places = np.random.default_rng(0), set(), _BatchPlaces.of(encoder)
        numbers = torch.full((BACKGROUND_ROWS, len(encoder.numbers)), torch.nan, dtype=getattr(torch, encoder.dtype))
        ids = torch.zeros((BACKGROUND_ROWS, len(encoder.categories)), dtype=torch.int64)
        for profile in self.columns:
            if (position := places.counted(profile)) is None:
                continue
            filled.add(profile.column)
            drawn = profile.draw(BACKGROUND_ROWS, generator)
            if profile.numeric:
                means = np.append(np.nan, profile.means[1:].numpy())
                numbers[:, position] = torch.from_numpy(means[drawn])
                continue
            values = _values(encoder.categories[position], drawn)
            for place in places.categories[profile.column]:
                category = encoder.categories[place]
                known = drawn if place == position else category.vocabulary.ids(values)
                ids[:, place] = torch.from_numpy(np.where(drawn < FIRST_ID, drawn, known))
            if profile.column in places.numbers:
                numbers[:, places.numbers[profile.column]] = torch.from_numpy(to_float64(values))
        needed = set.union(*encoder.columns_by_kind())
        return Batch(numbers, ids) if needed <= filled else None


@dataclass(frozen=True)
class _BatchPlaces:
    """Where a batch holds the values of each raw column."""

    numbers: dict[int, int]
    categories: dict[int, list[int]]  # a column may have several vocabularies
    lengths: list[int]  # of the vocabularies

    @classmethod
    def of(cls, encoder: RowEncoder) -> _BatchPlaces:
        categories = defaultdict[int, list[int]](list)
        for place, category in enumerate(encoder.categories):
            categories[category.column].append(place)
        numbers = {column: place for place, column in enumerate(encoder.numbers)}
        return cls(numbers, dict(categories), [len(category.vocabulary) for category in encoder.categories])

    def counted(self, profile: ColumnProfile) -> int | None:
        """The place in ``numbers`` or ``ids`` of the values that a profile counts; None if they are not encoded."""
        if profile.numeric:
            return self.numbers.get(profile.column)
        places = self.categories.get(profile.column, [])
        return next((place for place in places if self.lengths[place] == len(profile.counts)), None)


def _column_names(encoder: RowEncoder, hosts: Sequence[HostStep]) -> dict[int, str]:
    """The names of raw columns and of those that steps on the host compute."""
    raw = {column: encoder.names[column] if encoder.names else f"x{column}" for column in range(encoder.width)}
    places = {
        column: f"{host.name} ({place} of {len(host.columns)})"
        for host in hosts
        for place, column in enumerate(host.columns, 1)
    }
    return {**raw, **places, **computed_names(hosts, encoder)}


def _values(category: CategoryColumn, ids: NDArray[np.int64]) -> pd.Series:
    """The categories of ids; None for missing and unknown ones, and for those that only a hash tells."""
    values = np.empty(len(category.vocabulary), dtype=object)
    known = category.vocabulary.values
    values[FIRST_ID : FIRST_ID + len(known)] = known
    return pd.Series(values[ids], dtype=object)


def _bins(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for a missing number, 1 up to the first edge, and so on."""
    return np.where(np.isnan(values), 0, 1 + np.searchsorted(edges, values, side="left"))


def _count_ids(ids: NDArray[np.int64], vocabulary: int) -> NDArray[np.int64]:
    return np.bincount(np.where(ids < vocabulary, ids, UNKNOWN_ID), minlength=vocabulary)
