"""Interactions of columns and their tables, see ``cells.c``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        *((name, np.uint32) for name in ("digit", "digits", "wraps", "row", "all", "of_groups", "of_cells", "unused")),
    ]
)
"""The struct ``cell_interaction`` of ``cells.c``."""
WORD = np.dtype([("bits", np.uint32), ("before", np.uint32)])
"""The struct ``cell_word`` of ``cells.c``."""
WORD_BITS = 32
DENSE = 8
"""If there are at most this many cells per stored cell, every cell has a row, which takes less time than bits."""
SMALL_TABLE = 1 << 14
"""Up to this many cells, every cell has a row, however few are stored: the rows nearly fit the first-level cache."""
SCRATCH_PER_ROW = 16

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CellRows:
    """Where the row of each cell is."""

    facts: tuple[Fact, ...]  # ``cell_facts`` of C
    source: Ints  # [rows], the row of the module's table that each row of the native table holds


def cell_rows(module: ResidualModel | CellStatistics) -> CellRows:
    """The layout of the tables of all interactions of a module.

    Raises ``NotNative`` if computing a cell needs whole numbers beyond 2^53.
    """
    interactions, size = module.interactions.tolist(), module.size.tolist()
    counts, keys = module.cell_count.tolist(), module.keys.long().numpy()
    first = np.cumsum([0, *counts])
    digits: list[tuple[int, int, float]] = []
    records = np.zeros(len(interactions), INTERACTION)
    source, words = list[Ints](), [np.empty(0, WORD)]
    row = word = 0
    for at, (columns, count) in enumerate(zip(interactions, counts, strict=True)):
        record = records[at]
        record["count"], record["inverse"], record["digit"], record["row"] = count, 1 / count, len(digits), row
        used = [column for column in columns if column >= 0]
        record["digits"], record["wraps"] = len(used), _add_digits(digits, used, size, count)
        start, stop = np.searchsorted(keys, first[at : at + 2])
        cells, place = np.unique(keys[start:stop] - first[at], return_index=True)
        others = len(keys) + at
        if count <= max(SMALL_TABLE, DENSE * len(cells)):
            record["all"] = 1
            rows = np.full(count, others)
            rows[cells] = start + place
        else:
            rows = np.append(others, start + place)
            groups, group = np.unique(cells // WORD_BITS, return_inverse=True)
            of_groups = _words(groups, -(-count // WORD_BITS))
            of_cells = _words((group + 1) * WORD_BITS + cells % WORD_BITS, (len(groups) + 1) * WORD_BITS)
            record["of_groups"], record["of_cells"] = word, word + len(of_groups)
            words += [of_groups, of_cells]
            word += len(of_groups) + len(of_cells)
        source.append(rows)
        row += len(rows)
    facts: tuple[Fact, ...] = (records, len(records), np.array(digits, DIGIT), np.concatenate(words))
    return CellRows(facts, np.concatenate(source))


def _words(places: Ints, count: int) -> NDArray[Any]:
    """Words that tell which of so many places these are."""
    stored = np.zeros((-(-count // WORD_BITS), WORD_BITS), np.bool_)
    stored.ravel()[places] = True
    words = np.empty(len(stored), WORD)
    words["bits"] = np.packbits(stored, bitorder="little").view(np.uint32)
    words["before"] = np.cumsum(stored.sum(axis=1)) - stored.sum(axis=1)
    return words


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
