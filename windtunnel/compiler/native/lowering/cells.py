"""Interactions of columns and their tables, see ``cells.c``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windtunnel.compiler.native.image import Fact
from windtunnel.compiler.native.lowering.traced import EXACT, NotNative
from windtunnel.modules.linear.residual_model import ResidualModel
from windtunnel.modules.tables.cell_statistics import CellStatistics

DIGIT = np.dtype([("column", np.uint32), ("wraps", np.uint32), ("size", np.float64)])
"""The struct ``cell_digit`` of ``cells.c``."""
INTERACTION = np.dtype(
    [
        ("count", np.float64),
        ("inverse", np.float64),
        *(
            (name, np.uint32)
            for name in ("digit", "digits", "wraps", "row", "slots", "slot", "bucket", "shift", "factor", "unused")
        ),
    ]
)
"""The struct ``cell_interaction`` of ``cells.c``."""
DENSE = 8
"""If there are at most this many cells per stored cell, every cell has a row, which takes half the time of a hash."""
SMALL = 1 << 14
"""Up to this many cells, every cell has a row, however few are stored: the rows nearly fit the first-level cache."""
SLOTS = 1.25
"""The fewest slots per stored cell."""
BUCKET_SLOTS = 4
"""Slots per bucket."""
MOST_HASHES = 200
"""Hashes that are tried before the cells have no native form."""
MOST_DISPLACEMENTS = 200
"""Displacements of buckets that are tried before another hash."""
SCRATCH_PER_ROW = 16

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CellRows:
    """Where the row of each cell is."""

    facts: tuple[Fact, ...]  # ``cell_facts`` of C
    source: Ints  # [rows], the row of the module's table that each row of the native table holds


def cell_rows(module: ResidualModel | CellStatistics) -> CellRows:
    """The layout of the tables of all interactions of a module.

    Raises ``NotNative`` if computing a cell needs whole numbers beyond 2^53, or if no perfect hash is found.
    """
    interactions, size = module.interactions.tolist(), module.size.tolist()
    counts, keys = module.cell_count.tolist(), module.keys.long().numpy()
    first = np.cumsum([0, *counts])
    digits: list[tuple[int, int, float]] = []
    records = np.zeros(len(interactions), INTERACTION)
    source, displacements, slots = list[Ints](), list[Ints](), list[Ints]()
    row = slot = bucket = 0
    for at, (columns, count) in enumerate(zip(interactions, counts, strict=True)):
        record = records[at]
        record["count"], record["inverse"], record["digit"], record["row"] = count, 1 / count, len(digits), row
        used = [column for column in columns if column >= 0]
        record["digits"], record["wraps"] = len(used), _add_digits(digits, used, size, count)
        start, stop = np.searchsorted(keys, first[at : at + 2])
        cells, place = np.unique(keys[start:stop] - first[at], return_index=True)
        others = len(keys) + at
        if count <= max(SMALL, DENSE * len(cells)):
            rows = np.full(count, others)
            rows[cells] = start + place
        else:
            placed = _place(cells)
            rows = np.full(placed.slots + 1, others)
            rows[placed.slot] = start + place
            stored = np.full(placed.slots, count)  # empty slots hold ``count``, which is no cell
            stored[placed.slot] = cells
            record["slots"], record["slot"], record["bucket"] = placed.slots, slot, bucket
            record["shift"], record["factor"] = placed.shift, placed.factor
            displacements.append(placed.displacement)
            slots.append(stored)
            slot, bucket = slot + placed.slots, bucket + len(placed.displacement)
        source.append(rows)
        row += len(rows)
    facts: tuple[Fact, ...] = (records, len(records), np.array(digits, DIGIT), _joined(displacements), _joined(slots))
    return CellRows(facts, np.concatenate(source))


def _joined(parts: list[Ints]) -> NDArray[np.uint32]:
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.uint32)


def _add_digits(digits: list[tuple[int, int, float]], columns: list[int], size: list[int], count: int) -> bool:
    """Add the digits of an interaction; tells whether the number that they form can reach the count of cells."""
    limit = 1
    for column in columns:
        wraps = limit * size[column] > EXACT
        limit = (count if wraps else limit) * size[column]
        if limit > EXACT:
            raise NotNative("computing the cell of an interaction needs whole numbers beyond 2^53")
        digits.append((column, int(wraps), float(size[column])))
    return limit > count


@dataclass(frozen=True)
class _Placed:
    """A perfect hash: the slot of each cell, and what gives it."""

    slot: Ints
    slots: int
    displacement: Ints  # [buckets]
    shift: int
    factor: int


def _place(cells: Ints) -> _Placed:
    """A slot for each cell, by displacing buckets of hashes, the largest ones first (Pagh, WADS 1999)."""
    bits = max(3, int(np.ceil(np.log2(SLOTS * len(cells)))))
    slots, bucket_bits = 1 << bits, bits - BUCKET_SLOTS.bit_length() + 1
    random = np.random.default_rng(0)
    for _ in range(MOST_HASHES):
        factor = int(random.integers(1 << 32)) | 1
        hashes = _hashes(cells, factor)
        bucket = hashes >> (32 - bucket_bits)
        if (displacement := _displacements(bucket, hashes & (slots - 1), slots, 1 << bucket_bits)) is not None:
            slot = (hashes + displacement[bucket]) & (slots - 1)
            return _Placed(slot, slots, displacement, 32 - bucket_bits, factor)
    raise NotNative("no perfect hash was found for the cells of an interaction")


def _hashes(cells: Ints, factor: int) -> Ints:
    """The hashes of cells, as in ``cells.c``."""
    word = (1 << 32) - 1
    mixed = cells.astype(np.uint64) * np.uint64(factor) & np.uint64(word)
    mixed ^= mixed >> np.uint64(15)
    return (mixed * np.uint64(0x2C1B3C6D) & np.uint64(word)).astype(np.int64)


def _displacements(bucket: Ints, base: Ints, slots: int, buckets: int) -> Ints | None:
    """The displacement of each bucket, so that no two hashes share a slot; None if a bucket finds no displacement."""
    order = np.argsort(bucket, kind="stable")
    sizes = np.bincount(bucket, minlength=buckets)
    start = np.cumsum(sizes) - sizes
    base = base[order]
    displacement, taken = np.zeros(buckets, np.int64), np.zeros(slots, np.bool_)
    owner = np.empty(slots, np.int64)
    for size in range(int(sizes.max()), 1, -1):
        pending = np.flatnonzero(sizes == size)
        members = base[start[pending][:, None] + np.arange(size)]
        if (np.diff(np.sort(members, axis=1), axis=1) == 0).any():
            return None  # whatever the displacement
        for turn in range(MOST_DISPLACEMENTS):
            shifts = (pending * 40_503 + turn * 10_007) % slots
            wanted = (members + shifts[:, None]) & (slots - 1)
            free = ~taken[wanted].any(axis=1)
            owner[wanted[free][::-1]] = np.flatnonzero(free)[::-1, None]  # the first one that wants a slot gets it
            fits = free & (owner[wanted] == np.arange(len(pending))[:, None]).all(axis=1)
            taken[wanted[fits]] = True
            displacement[pending[fits]] = shifts[fits]
            pending, members = pending[~fits], members[~fits]
            if not len(pending):
                break
        else:
            return None
    alone = np.flatnonzero(sizes == 1)
    displacement[alone] = (np.flatnonzero(~taken)[: len(alone)] - base[start[alone]]) % slots
    return displacement
