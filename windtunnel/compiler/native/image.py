"""The image of a native program: its steps and tensors as one block of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

OPERATIONS = re.findall(
    r"^WT_OPERATION\((\w+)\)", Path(__file__).with_name("c").joinpath("operations.h").read_text(), re.MULTILINE
)
"""The names of the operations, in the order of their numbers."""
UNREAD = 2**32 - 1
WORKSPACE_BYTES = 2**19
"""Bytes that the columns of a block of rows may take, so that they stay in the second-level cache."""
MOST_ROWS = 512
"""Rows of a block."""
ALIGNMENT = 64

Fact = float | int | Tensor | NDArray[Any]
"""What a step stores: float64, int64, or a tensor in the type that its operation reads."""


class Header(NamedTuple):
    """The start of an image, 8 bytes for each field: ``wt_program`` of ``runtime.h``, which explains the fields."""

    size: int
    numbers: int
    ids: int
    input_columns: int
    outputs: int
    output_columns: int
    columns: int
    block_rows: int
    scratch_bytes: int
    step_count: int
    steps: int

    @classmethod
    def of(cls, image: bytes) -> Header:
        """The header of an image."""
        return cls(*np.frombuffer(image, np.uint64, len(cls._fields)).tolist())

    def workspace_bytes(self) -> int:
        """At least what ``wt_workspace_bytes`` gives for a block of rows."""
        return 8 * self.columns * _stride(self.block_rows) + ALIGNMENT + self.scratch_bytes


def _stride(block_rows: int) -> int:
    """The distance between columns of a block: ``stride_of`` of ``runtime.c``."""
    return block_rows + (8 if block_rows % 64 == 0 else 0)


@dataclass(frozen=True)
class _Step:
    operation: str
    inputs: list[int]
    outputs: list[int]
    facts: tuple[Fact, ...]


class ImageWriter:
    """Collects the steps of a native program.

    Columns are numbered in the order in which they are added: inputs, and outputs of steps. ``numbers`` and ``ids`` are
    how many columns the two blocks of a batch have at first.
    """

    def __init__(self, numbers: int, ids: int) -> None:
        self._columns = 0
        self._steps: list[_Step] = []
        # The steps of an operation on the same inputs with as many outputs: only their facts may differ.
        self._alike: dict[tuple[str, tuple[int, ...], int], list[_Step]] = {}
        self._scratch = self._scratch_per_row = 0
        # The columns of the two blocks.
        self.numbers, self.ids = self._new_columns(numbers), self._new_columns(ids)
        # A column of whole numbers from 0 to 255 -> the column that holds them as bytes, and its place among eight.
        self.bytes_of: dict[int, tuple[int, int]] = {}

    def copy(self) -> Self:
        """A writer that goes on from here and leaves this one as it is."""
        other = copy(self)
        other.numbers, other.ids, other._steps = [*self.numbers], [*self.ids], [*self._steps]
        other.bytes_of = {**self.bytes_of}
        other._alike = {key: [*steps] for key, steps in self._alike.items()}
        return other

    def add_numbers(self, count: int) -> list[int]:
        """Add columns at the end of the block of numbers; gives the new ones."""
        self.numbers += (added := self._new_columns(count))
        return added

    def _new_columns(self, count: int) -> list[int]:
        self._columns += count
        return list(range(self._columns - count, self._columns))

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

        ``operation`` is a name in ``OPERATIONS``, ``inputs`` are the columns that it reads, and ``outputs`` is how many
        columns it writes. ``facts`` are what the operation reads, in its order; tensors of floats are stored as
        float64. For a block of rows the operation needs ``scratch`` bytes of memory, and ``scratch_per_row`` more for
        each row. Where an earlier step computes the same, its columns are given and no step is added.
        """
        alike = self._alike.setdefault((operation, tuple(inputs), outputs), [])
        for earlier in alike:
            if all(starmap(_equal, zip(facts, earlier.facts, strict=True))):
                return [*earlier.outputs]
        written = self._new_columns(outputs)
        step = _Step(operation, list(inputs), written, facts)
        self._steps.append(step)
        alike.append(step)
        self._scratch, self._scratch_per_row = max(self._scratch, scratch), max(self._scratch_per_row, scratch_per_row)
        return written

    def unpack(self, packed: Sequence[int], count: int) -> list[int]:
        """Add so many columns of numbers from columns that hold eight columns of bytes each."""
        columns = self.step("unpack_bytes", packed, count)
        self.bytes_of |= {column: (packed[at // 8], at % 8) for at, column in enumerate(columns)}
        return columns

    def image(self, outputs: Sequence[int]) -> bytes:
        """The bytes of the program that gives these columns."""
        self._leave_out_unread(outputs)
        placed = self._placed(outputs)
        places, width = placed.of_column, placed.width
        block_rows = max(8, min(MOST_ROWS, WORKSPACE_BYTES // (8 * max(1, width)) // 8 * 8))
        data = _Data()
        data.reserve(8 * len(Header._fields))
        input_columns = data.add(places[[*self.numbers, *self.ids]])
        output_columns = data.add(places[list(outputs)])
        records = [self._record(step, places, data) for step in self._steps]
        steps = data.add(np.array(records, np.uint64))
        header = Header(
            size=data.size,
            numbers=len(self.numbers),
            ids=len(self.ids),
            input_columns=input_columns,
            outputs=len(outputs),
            output_columns=output_columns,
            columns=width,
            block_rows=block_rows,
            scratch_bytes=self._scratch + _stride(block_rows) * self._scratch_per_row,
            step_count=len(records),
            steps=steps,
        )
        return data.bytes(np.array(header, np.uint64))

    def _leave_out_unread(self, outputs: Sequence[int]) -> None:
        """Leave out the steps whose outputs nothing reads."""
        read, steps = set(outputs), list[_Step]()
        for step in reversed(self._steps):
            if not read.isdisjoint(step.outputs):
                read.update(step.inputs)
                steps.insert(0, step)
        self._steps = steps

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

    def _placed(self, outputs: Sequence[int]) -> _Places:
        """Where each column is in the workspace."""
        last = {column: number for number, step in enumerate(self._steps) for column in step.inputs}
        last |= dict.fromkeys(outputs, len(self._steps))
        places = _Places(self._columns)
        places.take(column for column in [*self.numbers, *self.ids] if column in last)
        for number, step in enumerate(self._steps):
            places.take(step.outputs)  # a step writes all of its outputs
            places.release(column for column in {*step.inputs, *step.outputs} if last.get(column, -1) <= number)
        return places


class _Places:
    """The places of columns in the workspace; a column that no later step reads leaves its place to others."""

    def __init__(self, columns: int) -> None:
        self.of_column = np.full(columns, UNREAD, np.uint32)
        self.width = 0
        self._free: list[int] = []

    def take(self, columns: Iterable[int]) -> None:
        """Give each column a place."""
        for column in columns:
            if not self._free:
                self._free.append(self.width)
                self.width += 1
            self.of_column[column] = self._free.pop()

    def release(self, columns: Iterable[int]) -> None:
        """Take the places back."""
        self._free += [int(self.of_column[column]) for column in columns]


def operations_of(image: bytes) -> list[str]:
    """The operation of each step of a program."""
    return [OPERATIONS[number] for number in _records(image)[:, 0].tolist()]


def renumbered(image: bytes, operations: Sequence[str]) -> bytes:
    """The same program for a library that has only these operations."""
    block = bytearray(image)
    _records(block)[:, 0] = [operations.index(operation) for operation in operations_of(image)]
    return bytes(block)


def _records(image: bytes | bytearray) -> NDArray[np.uint64]:
    """The ``wt_step`` of each step, ``[steps, 5]``."""
    header = Header.of(bytes(image[: 8 * len(Header._fields)]))
    return np.frombuffer(image, np.uint64, 5 * header.step_count, header.steps).reshape(-1, 5)


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


def _equal(fact: Fact, other: Fact) -> bool:
    """Whether two facts are stored as the same bytes."""
    first, second = _array(fact), _array(other)
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def _array(fact: Fact) -> NDArray[Any]:
    array = fact.detach().cpu().numpy() if isinstance(fact, Tensor) else np.asarray(fact)
    return array.astype(np.float64) if array.dtype.kind == "f" else array
