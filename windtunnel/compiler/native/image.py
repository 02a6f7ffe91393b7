"""The image of a native program: its steps and tensors as one block of bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

OPERATIONS = re.findall(
    r"^WT_OPERATION\((\w+)\)", Path(__file__).with_name("c").joinpath("operations.h").read_text(), re.MULTILINE
)
"""The names of the operations, in the order of their numbers."""
UNREAD = 2**32 - 1
WORKSPACE_BYTES = 2**18
"""What the columns of a block of rows may take: they stay in the second-level cache."""
MOST_ROWS = 512
"""Rows of a block."""
HEADER_WORDS = 11
"""Of ``wt_program`` in ``runtime.h``."""
ALIGNMENT = 64

Fact = float | int | Tensor | NDArray[Any]
"""What a step stores: float64, int64, or a tensor in the type that its operation reads."""


@dataclass(frozen=True)
class _Step:
    operation: str
    inputs: list[int]
    outputs: list[int]
    facts: tuple[Fact, ...]


class ImageWriter:
    """Collects the steps of a native program.

    Columns are numbered: first those of the numbers, then those of the ids, then the outputs of the steps.

    Parameters
    ----------
    numbers, ids : int
        The columns of the two blocks of a batch.
    """

    def __init__(self, numbers: int, ids: int) -> None:
        self.numbers, self.ids = list(range(numbers)), list(range(numbers, numbers + ids))
        self._columns = numbers + ids
        self._steps: list[_Step] = []
        self._scratch = self._scratch_per_row = 0

    def step(
        self,
        operation: str,
        inputs: Sequence[int],
        outputs: int,
        *facts: Fact,
        scratch: int = 0,
        scratch_per_row: int = 0,
    ) -> list[int]:
        """Add a step; gives the numbers of its output columns.

        Parameters
        ----------
        operation : str
            In ``OPERATIONS``.
        inputs : sequence of int
            The columns that it reads.
        outputs : int
            How many columns it writes.
        facts
            What the operation reads, in its order. Tensors of floats are stored as float64.
        scratch, scratch_per_row : int
            Bytes of memory that the operation needs while it works on a block of rows.
        """
        written = list(range(self._columns, self._columns + outputs))
        self._columns += outputs
        self._steps.append(_Step(operation, list(inputs), written, facts))
        self._scratch, self._scratch_per_row = max(self._scratch, scratch), max(self._scratch_per_row, scratch_per_row)
        return written

    def image(self, outputs: Sequence[int]) -> bytes:
        """The bytes of the program that gives these columns."""
        places, width = self._places(outputs)
        block_rows = max(8, min(MOST_ROWS, WORKSPACE_BYTES // (8 * max(1, width)) // 8 * 8))
        data = _Data()
        data.reserve(8 * HEADER_WORDS)
        inputs = data.add(places[: len(self.numbers) + len(self.ids)])
        output_places = data.add(places[list(outputs)])
        records = [self._record(step, places, data) for step in self._steps]
        steps = data.add(np.array(records, np.uint64))
        scratch = self._scratch + block_rows * self._scratch_per_row
        header = [data.size, len(self.numbers), len(self.ids), inputs, len(outputs), output_places]
        header += [width, block_rows, scratch, len(records), steps]
        return data.bytes(np.array(header, np.uint64))

    @staticmethod
    def _record(step: _Step, places: NDArray[np.uint32], data: _Data) -> list[int]:
        words = [
            data.add(_array(fact))
            if isinstance(fact, Tensor | np.ndarray)
            else int(np.array(fact, np.float64 if isinstance(fact, float) else np.int64).view(np.uint64))
            for fact in step.facts
        ]
        columns = data.add(places[step.inputs + step.outputs])
        facts = data.add(np.array(words, np.uint64))
        return [OPERATIONS.index(step.operation), len(step.inputs), len(step.outputs), columns, facts]

    def _places(self, outputs: Sequence[int]) -> tuple[NDArray[np.uint32], int]:
        """Where each column is in the workspace, and how many columns that has; a column that is read no more frees."""
        last = {column: position for position, step in enumerate(self._steps) for column in step.inputs}
        last |= dict.fromkeys(outputs, len(self._steps))
        places = np.full(self._columns, UNREAD, np.uint32)
        free: list[int] = []
        width = 0
        for position, written in enumerate([[*self.numbers, *self.ids], *(step.outputs for step in self._steps)]):
            for column in written:
                if column in last or position:  # a step writes all of its outputs
                    if not free:
                        free.append(width)
                        width += 1
                    places[column] = free.pop()
            read = {column for column in self._steps[position - 1].inputs} if position else set()
            done = [c for c in {*read, *(written if position else ())} if last.get(c, -1) < position]
            free += [int(places[column]) for column in done]
        return places, width


def operations_of(image: bytes) -> list[str]:
    """The operation of each step of a program."""
    *_, count, start = np.frombuffer(image, np.uint64, HEADER_WORDS).tolist()
    records = np.frombuffer(image, np.uint64, 5 * count, start).reshape(count, 5)
    return [OPERATIONS[number] for number in records[:, 0].tolist()]


class _Data:
    """Tensors one after the other, each at a multiple of ``ALIGNMENT`` bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[tuple[int, bytes]] = []

    def reserve(self, size: int) -> int:
        start = self.size
        self.size += -(-size // ALIGNMENT) * ALIGNMENT
        return start

    def add(self, array: NDArray[Any]) -> int:
        start = self.reserve(array.nbytes)
        self._parts.append((start, array.tobytes()))
        return start

    def bytes(self, header: NDArray[np.uint64]) -> bytes:
        block = bytearray(self.size)
        for start, part in [(0, header.tobytes()), *self._parts]:
            block[start : start + len(part)] = part
        return bytes(block)


def _array(fact: Tensor | NDArray[Any]) -> NDArray[Any]:
    array = fact.detach().cpu().numpy() if isinstance(fact, Tensor) else fact
    return array.astype(np.float64) if array.dtype.kind == "f" else array
