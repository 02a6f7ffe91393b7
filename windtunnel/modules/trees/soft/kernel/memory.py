"""The memory budget of soft trees, and the size of the slices that fit it and the caches."""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import NamedTuple

import torch

log = logging.getLogger("windtunnel")

UNITS = {"cpu": 512, "cuda": 8192}
"""Nodes or leaves worked on at once; more leave the cache of a CPU, fewer spend the time on calls (measured)."""
GATHERED = 2
"""Times as many where each node reads one column: the work of a call is less, and threads wait for Python's lock."""
ROWS = {"cpu": 256, "cuda": 16384}
"""Rows worked on at once."""
BUFFERS = 6
"""Blocks of units x rows alive at once: two layers, their gradients, and a mask for each."""
WORTH_THREADS = 2**19
"""Activations from which on threads of our own are worth waking."""
ROWS_PER_MASK = 32
"""Rows that share a dropout mask; drawing one per row costs more than the tree itself, and rows are shuffled."""

_budget: int | None = None


class SlicePlan(NamedTuple):
    """How a step over soft trees is cut: trees per group and rows per slice, a multiple of ``ROWS_PER_MASK``."""

    trees: int
    rows: int


def set_budget(bytes_: int | None) -> None:
    """How many bytes the activations of soft trees may take; None, the default, for half of what is free."""
    global _budget
    _budget = bytes_
    half_of_free.cache_clear()
    plan.cache_clear()


def budget(device: torch.device) -> int:
    """Bytes that the activations of soft trees may take on ``device``."""
    return half_of_free(device) if _budget is None else _budget


@cache
def half_of_free(device: torch.device) -> int:
    """Half of the bytes that were free on ``device`` at the first call."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def workers(trees: int, each: int, device: torch.device) -> int:
    """How many threads share the trees, of ``each`` activations; 1 where torch had better use its own."""
    if device.type != "cpu" or trees * each < WORTH_THREADS:
        return 1
    return max(1, min(trees, torch.get_num_threads()))


@cache
def plan(
    trees: int, units: int, itemsize: int, device: torch.device, threads: int = 1, *, gathered: bool = False
) -> SlicePlan:
    """Groups of trees with ``units`` nodes or leaves each, and slices of rows, that fit caches and budget.

    As many groups as ``threads`` are worked on at a time; ``gathered``: each node reads one column.
    """
    kind = device.type if device.type in UNITS else "cpu"
    allowed = budget(device) // threads
    at_once = UNITS[kind] * (GATHERED if gathered and kind == "cpu" else 1)
    group, rows = max(1, min(trees, at_once // max(units, 1))), ROWS[kind]
    while BUFFERS * group * units * rows * itemsize > allowed and (group > 1 or rows > ROWS_PER_MASK):
        group, rows = (group // 2, rows) if group > 1 else (group, rows // 2)
    used = BUFFERS * group * units * rows * itemsize
    if used > allowed:
        log.warning(
            "one tree and %d rows, the least that soft trees work on at once, take %.3g MiB with threads: %d; the "
            "budget is %.3g MiB. Raise it with windtunnel.modules.trees.soft.kernel.memory.set_budget, "
            "or take fewer threads.",
            rows, threads * used / 2**20, threads, threads * allowed / 2**20,
        )  # fmt: skip
    log.info(
        "soft trees on %s, threads: %d, each with %d of %d trees and %d rows at once, in all %.1f of %.0f MiB; "
        "activations are computed again",
        device, threads, group, trees, rows, threads * used / 2**20, threads * allowed / 2**20,
    )  # fmt: skip
    return SlicePlan(group, rows)
