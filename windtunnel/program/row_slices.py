"""Rows through a program, a slice after the other, by as many threads as torch has."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from windtunnel.encode import FIRST_ID, Batch
from windtunnel.modules.trees import LeafOneHot, SoftLeaves, SoftTrees
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.modules.trees.threads import run_parallel
from windtunnel.program.program import FLOAT32_MAX, Program

CHUNK = 16384
"""Rows scored at once unless told otherwise; bounds the memory of a prediction, whatever the number of rows."""
SHARE, SHARE_OF_TREES = 1024, 256
"""The fewest rows of one of several threads; of programs with many leaves, or soft trees, each row takes longer."""
MANY_LEAVES = 4000
FEW = 16
"""Rows up to which no operation is large enough for torch to spread it, and no thread is woken."""
CPU = torch.device("cpu")
LARGE = 2.0**64
"""Up to here the square of a number is one of float32 too, so that no step makes something odd of it by a product."""
FEW_NUMBERS = 4096
"""Numbers that are looked at in NumPy, whose calls cost less; a product of more might wake threads of its own."""
LEAF_CELLS = 2**22
"""The most columns, times rows, that leaves take at once; more of them were slower, not faster."""


def in_slices(
    run: Callable[[Tensor, Tensor], Tensor],
    batch: Batch,
    size: int,
    device: torch.device,
    *,
    whole: bool,
    least: int = SHARE,
) -> Tensor:
    """What ``run(numbers, ids)`` gives on a device for slices of ``size`` rows at most, or the whole; on the CPU.

    Several threads take slices of ``least`` rows or more. A single slice is run by one thread alone: sharing each
    operation, and waiting after each, takes two to five times as long.
    """
    with torch.inference_mode():
        rows = batch.ids.shape[0]
        threads = torch.get_num_threads() if device.type == "cpu" and rows > FEW else 1
        if (rows <= size and threads == 1) or whole:
            return run(*batch) if device == CPU else run(*(block.to(device) for block in batch)).cpu()
        size = min(size, share(rows, threads, least))
        slices = [slice(start, start + size) for start in range(0, rows, size)]
        answers = Whole(rows)

        def answer(rows: slice) -> None:
            answers.put(rows, run(*(block[rows].to(device) for block in batch)))

        run_parallel(answer, slices, single_thread=True) if threads > 1 else [*map(answer, slices)]
        return answers.tensor


def share(rows: int, threads: int, least: int = SHARE) -> int:
    """The rows of one thread."""
    return rows if rows < 2 * least else max(least, -(-rows // threads))


def least_rows(program: Program) -> int:
    """The fewest rows of one thread."""
    soft = any(isinstance(one, SoftTrees | SoftLeaves) for one in program.modules())
    leaves = sum(one.leaf_value.shape[0] for one in program.modules() if isinstance(one, TreeWalk))
    return SHARE_OF_TREES if soft else least_of(leaves)


def least_of(leaves: int) -> int:
    """The fewest rows of one thread, of a program with so many leaves of hard trees."""
    return SHARE_OF_TREES if leaves >= MANY_LEAVES else SHARE


class Whole:
    """Answers for all rows, put together slice by slice from any thread.

    To keep the slices and join them took five times as long: what each takes is fresh memory then.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.lock = rows, Lock()
        self.tensor = torch.empty(0)

    def put(self, rows: slice, answer: Tensor) -> None:
        """Take the answer for a slice of the rows."""
        with self.lock:
            if len(self.tensor) == 0:
                self.tensor = answer.new_empty((self.rows, *answer.shape[1:]), device=CPU)
        self.tensor[rows] = answer


def odd(numbers: Tensor, ids: Tensor) -> bool:
    """Whether something is missing, unknown, infinite, or so large that a step may take it beyond float32."""
    # A sum of squares takes a fifth of the time; it is no finite number either where one of its parts is none.
    found = numbers.numel() > 0 and not _squares(numbers) <= FLOAT32_MAX
    if found:
        least, most = (one.item() for one in numbers.aminmax())  # both NaN where one number is
        found = not (-LARGE <= least and most <= LARGE)
    return found or (ids.numel() > 0 and ids.min().item() < FIRST_ID)


def _squares(numbers: Tensor) -> float:
    if numbers.numel() <= FEW_NUMBERS and numbers.device == CPU:
        flat = numbers.numpy().ravel()
        return float(np.vdot(flat, flat))
    values = numbers.reshape(-1)
    return torch.dot(values, values).item()


def without_missing(numbers: Tensor) -> Tensor:
    """The numbers, 0 where one is missing."""
    return torch.nan_to_num(numbers, nan=0.0, posinf=math.inf, neginf=-math.inf)


def rows_at_once(program: Program) -> int:
    """How many rows go through a program at once: fewer where leaves of trees make them wide."""
    leaves = [one.column.shape[0] for one in program.modules() if isinstance(one, SoftLeaves)]
    leaves += [one.columns for one in program.modules() if isinstance(one, LeafOneHot)]
    return min(CHUNK, max(LEAF_CELLS // max(leaves, default=1), 256))
