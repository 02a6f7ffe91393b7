"""Reads all rows of a loader into memory, encoded once, in its first pass."""

from __future__ import annotations

import contextlib
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities.seed import isolate_rng

from windtunnel.progress import Phase
from windtunnel.trainers.data.encoded_loader import concatenate_items
from windtunnel.trainers.data.loader_adapter import LoaderAdapter, known_length

MAX_BYTES = 2**32
"""The most bytes of encoded rows that are kept by default: 25 million rows of 20 numbers and 10 categories."""
MEMORY_FRACTION = 0.25
"""The part of the memory that encoded rows may take: held-out rows and the residual model's columns are copies."""
GIB = 2**30


def memory_limit(gib: float | None) -> float:
    """The most bytes of encoded rows that fit keeps of a loader; ``gib`` is the recipe's ``loader_memory``."""
    return min(MAX_BYTES, _total_memory() * MEMORY_FRACTION) if gib is None else gib * GIB


def read_rows(batches: LoaderAdapter, limit: float, seed: int) -> tuple[Any, ...] | None:
    """All rows, targets and weights of a loader; None if they take more than ``limit`` bytes.

    The seed determines the order of a loader that shuffles by the global generators, so that a resumed run reads the
    same rows in the same order. The first batch and the number of batches may tell that the rows are too large. An
    iterator cannot be read again, so its rows are kept whatever they take.
    """
    limit = math.inf if isinstance(batches.loader, Iterator) else limit
    items, size, length = [], 0, known_length(batches)
    with _seeded(seed), Phase("encoding the rows of the loader", total=length) as phase:
        for item in batches:
            items.append(item)
            size += sum(block.nbytes for block in (*item[0], *item[1:]))
            if size > limit or (len(items) == 1 and size * (length or 1) > limit):
                return None
            phase.advance()
    return concatenate_items(items)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the global generators of torch, NumPy and Python; afterwards they are as before."""
    with isolate_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        yield


def _total_memory() -> float:
    """Bytes of memory of the machine, or of its container; infinite where neither is known."""
    container = Path("/sys/fs/cgroup/memory.max")
    sizes = [math.inf]
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        sizes.append(float(int(container.read_text())))
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        sizes.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    return min(sizes)
