"""The cells of ``--quick``: tree ensembles, generated and of flights2008, in about ten minutes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.inference.peers import PEERS
from benchmarks.inference.real import REAL
from benchmarks.inference.trees import TREES

COMPILED = ("lleaves", "tl2cgen", "pylignum-compiled")
"""Engines that compile a larger model for minutes."""
SLOW = ("treelite", "hummingbird")
"""Engines that take seconds for many rows of a larger model."""


class Cells(NamedTuple):
    """What is timed of a model with as many threads."""

    model: str
    threads: int
    batches: tuple[int, ...]
    peers: tuple[str, ...]


def quick_cells() -> Iterator[Cells]:
    """Rows from 1 to 10,000 on one thread and many on two; models of 100 trees by all engines, and at 100,000 rows."""
    for model in (*TREES, *(name for name in REAL if name.endswith("flights2008"))):
        small = model.endswith("100 x 64")
        peers = tuple(name for name in PEERS if small or name not in (*COMPILED, *SLOW))
        yield Cells(model, 1, (1, 10, 100, 1_000, 10_000), peers)
        yield Cells(model, 2, (10_000, 100_000) if small else (1_000, 10_000), peers)
