"""Run a program on slices of the rows, with as many threads as torch has."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from windtunnel.encode import FIRST_ID, Batch
from windtunnel.modules.threads import run_parallel
from windtunnel.modules.trees import LeafOneHot, SoftLeaves, SoftTrees
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.program.program import FLOAT32_MAX, Program

CHUNK = 16384
"""Rows scored at once unless told otherwise; bounds the memory of a prediction, whatever the number of rows."""
LEAST_ROWS, LEAST_ROWS_OF_TREES = 1024, 256
"""The fewest rows of one of several threads; rows take longer through many leaves, or soft trees."""
MANY_LEAVES = 4000
ONE_THREAD_ROWS = 16
"""Rows up to which torch runs every operation in one thread."""
CPU = torch.device("cpu")
MAX_SQUARABLE = 2.0**64
"""Up to here the square of a number is finite in float32, so no product of a step overflows."""
FEW_NUMBERS = 4096
"""Numbers that are checked with NumPy, whose calls cost less; a product of more might start threads."""
LEAF_CELLS = 2**22
"""The most columns, times rows, of leaves at once; more was slower."""


def in_slices(
    run: Callable[[Tensor, Tensor], Tensor],
    batch: Batch,
    size: int,
    device: torch.device,
    *,
    whole: bool,
    least: int = LEAST_ROWS,
) -> Tensor:
    """The output of ``run(numbers, ids)`` on a device, for slices of at most ``size`` rows or the whole; on the CPU.

    Several threads take slices of ``least`` rows or more. One thread runs a slice: sharing each operation takes two to
    five times as long.
    """
    with torch.inference_mode():
        rows = batch.ids.shape[0]
        threads = torch.get_num_threads() if device.type == "cpu" and rows > ONE_THREAD_ROWS else 1
        if (rows <= size and threads == 1) or whole:
            return run(*batch) if device == CPU else run(*(block.to(device) for block in batch)).cpu()
        size = min(size, rows_per_thread(rows, threads, least))
        slices = [slice(start, start + size) for start in range(0, rows, size)]
        output = SlicedOutput(rows)

        def run_slice(rows: slice) -> None:
            output.put(rows, run(*(block[rows].to(device) for block in batch)))

        if threads > 1:
            run_parallel(run_slice, slices, single_thread=True)
        else:
            for rows_of_slice in slices:
                run_slice(rows_of_slice)
        return output.tensor


def rows_per_thread(rows: int, threads: int, least: int = LEAST_ROWS) -> int:
    """The rows of one thread."""
    return rows if rows < 2 * least else max(least, -(-rows // threads))


def least_rows(program: Program) -> int:
    """The fewest rows of one thread."""
    soft = any(isinstance(module, SoftTrees | SoftLeaves) for module in program.modules())
    leaves = sum(module.leaf_value.shape[0] for module in program.modules() if isinstance(module, TreeWalk))
    return LEAST_ROWS_OF_TREES if soft else least_rows_of(leaves)


def least_rows_of(leaves: int) -> int:
    """The fewest rows of one thread, for a number of leaves of hard trees."""
    return LEAST_ROWS_OF_TREES if leaves >= MANY_LEAVES else LEAST_ROWS


class SlicedOutput:
    """The output for all rows, written slice by slice from any thread.

    Concatenating the slices took five times as long, as each allocates memory.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.lock = rows, Lock()
        self.tensor = torch.empty(0)

    def put(self, rows: slice, output: Tensor) -> None:
        """Write the output of a slice of the rows."""
        with self.lock:
            if len(self.tensor) == 0:
                self.tensor = output.new_empty((self.rows, *output.shape[1:]), device=CPU)
        self.tensor[rows] = output


def has_non_finite(numbers: Tensor, ids: Tensor) -> bool:
    """Whether a value is missing, unknown, infinite, or so large that a step may overflow float32."""
    # The sum of squares is not finite if a number is not. It takes a fifth of the time of a check of each.
    overflows = numbers.numel() > 0 and not _squares(numbers) <= FLOAT32_MAX
    if overflows:
        least, most = (bound.item() for bound in numbers.aminmax())  # both NaN if a number is
        overflows = not (-MAX_SQUARABLE <= least and most <= MAX_SQUARABLE)
    return overflows or (ids.numel() > 0 and ids.min().item() < FIRST_ID)


def _squares(numbers: Tensor) -> float:
    if numbers.numel() <= FEW_NUMBERS and numbers.device == CPU:
        flat = numbers.numpy().ravel()
        return float(np.vdot(flat, flat))
    values = numbers.reshape(-1)
    return torch.dot(values, values).item()


def without_missing(numbers: Tensor) -> Tensor:
    """The numbers, with 0 for missing ones."""
    return torch.nan_to_num(numbers, nan=0.0, posinf=math.inf, neginf=-math.inf)


def rows_at_once(program: Program) -> int:
    """How many rows go through a program at once: fewer if leaves of trees make them wide."""
    leaves = [module.column.shape[0] for module in program.modules() if isinstance(module, SoftLeaves)]
    leaves += [module.columns for module in program.modules() if isinstance(module, LeafOneHot)]
    return min(CHUNK, max(LEAF_CELLS // max(leaves, default=1), 256))
