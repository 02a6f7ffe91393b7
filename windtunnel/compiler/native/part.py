"""Parts of a program: neighbouring steps that run natively, or a step that runs in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.native.build import library
from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering import NotNative, lower, trace
from windtunnel.program.non_finite import NOT_FINITE, OUTSIDE
from windtunnel.program.program import IDS, NUMBERS, ProgramStep


@dataclass(frozen=True)
class OutputType:
    """The type and the shape of an output."""

    dtype: torch.dtype
    shape: tuple[int, ...]  # without rows

    @property
    def width(self) -> int:
        """The number of columns."""
        return prod(self.shape)


@dataclass(frozen=True)
class TorchPart:
    """A step that runs in torch."""

    slot: int
    step: ProgramStep
    reason: str  # why it has no native form

    def fill(self, values: list[Tensor]) -> None:
        """Compute the output of the step."""
        values[self.slot] = self.step(values)


class PartWriter:
    """Collects neighbouring steps into one native program; its inputs are all ids and the slots that the steps read."""

    def __init__(self, slots: Mapping[int, OutputType]) -> None:
        self.slots, self.image = slots, ImageWriter(0, slots[IDS].width)
        self.steps: dict[int, ProgramStep] = {}  # by slot
        self.inputs: list[int] = []  # the slots of other parts that the steps read: the columns of the block of numbers
        self.columns = {IDS: self.image.ids}

    def with_step(self, slot: int, step: ProgramStep) -> PartWriter:
        """These steps and one more; ``NotNative`` if it has no native form."""
        longer = copy(self)
        longer.image, longer.inputs, longer.columns = self.image.copy(), [*self.inputs], {**self.columns}
        for take in step.takes:
            longer.read(take.slot)
        longer.columns[slot] = lower(step.module, longer.image, *longer._input(step))
        longer.steps = {**self.steps, slot: step}
        return longer

    def rejected_rows(self, step: ProgramStep) -> int:
        """The column that is not 0 where a step rejects a row."""
        only_finite = set(step.rejects) == NOT_FINITE and not step.rejects_finite()
        (column,) = trace(_is_not_finite if only_finite else step.rejected_input, self.image, *self._input(step))
        return column

    def _input(self, step: ProgramStep) -> tuple[list[int], torch.dtype]:
        """The columns that a step takes, and their type."""
        columns = [self.columns[slot][column] for slot, column in step.places()]
        return columns, reduce(torch.promote_types, {self.slots[take.slot].dtype for take in step.takes})

    def read(self, slot: int) -> None:
        """Let the program read a slot."""
        if slot not in self.columns:
            self.inputs.append(slot)
            self.columns[slot] = self.image.add_numbers(self.slots[slot].width)

    def image_of(self, columns: Sequence[int]) -> bytes:
        """The image of a program that gives these columns."""
        if not self.inputs and self.slots[NUMBERS].width:
            self.read(NUMBERS)  # so that whole programs read batches, whether they use the numbers or not
        return self.image.image(columns)

    def part(self, outputs: Sequence[int]) -> NativePart:
        """The program that gives these slots."""
        image = self.image_of([column for slot in outputs for column in self.columns[slot]])
        return NativePart(self.inputs, [(slot, self.slots[slot]) for slot in outputs], library().Program(image))


class NativePart:
    """Neighbouring steps as one native program."""

    def __init__(self, inputs: list[int], outputs: list[tuple[int, OutputType]], program: Any) -> None:
        # inputs: the slots whose columns are the numbers of the program; outputs: the slots that later parts read
        self.inputs, self.outputs, self.program = inputs, outputs, program
        self.width = sum(description.width for _, description in outputs)

    def run(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of the only output slot, if the rows are the only input."""
        ((_, slot),) = self.outputs
        return self._computed(numbers, ids).to(slot.dtype).view(len(ids), *slot.shape)

    def fill(self, values: list[Tensor]) -> None:
        """Compute the outputs of the steps."""
        blocks = [values[slot].flatten(1) if values[slot].dim() > 1 else values[slot][:, None] for slot in self.inputs]
        numbers = blocks[0] if len(blocks) == 1 else torch.cat([values[NUMBERS][:, :0], *blocks], dim=1)
        computed, start = self._computed(numbers, values[IDS]), 0
        for slot, description in self.outputs:
            part = computed[:, start : (start := start + description.width)]
            values[slot] = part.to(description.dtype).reshape(len(computed), *description.shape)

    def _computed(self, numbers: Tensor, ids: Tensor) -> Tensor:
        output = torch.empty((ids.shape[0], self.width), dtype=torch.float64)
        self.program.run(numbers.double().numpy(), ids.numpy(), output.numpy())
        return output


def _is_not_finite(columns: Tensor) -> Tensor:
    """Whether a number of a row is missing or infinite: then the sum of their products with 0 is NaN."""
    return torch.isnan(columns @ columns.new_zeros(columns.shape[1], 1))


def split_program(
    steps: Mapping[int, ProgramStep], last: int, numbers: Tensor, ids: Tensor
) -> list[NativePart | TorchPart]:
    """Split the steps that slot ``last`` depends on, in order, into parts.

    ``numbers`` and ``ids`` are a few rows, which tell types and shapes.
    """
    slots = _slots(steps, numbers, ids)
    groups: list[PartWriter | TorchPart] = []
    native = PartWriter(slots)
    for slot, step in steps.items():
        try:
            native = native.with_step(slot, step)
        except NotNative as error:
            groups += [native, TorchPart(slot, step, str(error))]
            native = PartWriter(slots)
    groups.append(native)
    return [
        group if isinstance(group, TorchPart) else group.part(_read_later(group, steps, last))
        for group in groups
        if isinstance(group, TorchPart) or group.steps
    ]


def checked_image(
    steps: Mapping[int, ProgramStep], last: int, checked: Sequence[tuple[int, int]], numbers: Tensor, ids: Tensor
) -> bytes:
    """The image of native steps; its outputs are slot ``last``, and then columns as ``slot_guards`` names them."""
    writer = PartWriter(_slots(steps, numbers, ids))
    for slot, step in steps.items():
        writer = writer.with_step(slot, step)
    columns = [
        writer.rejected_rows(steps[slot]) if column == OUTSIDE else writer.columns[slot][column]
        for slot, column in checked
    ]
    return writer.image_of([*writer.columns[last], *columns])


def _read_later(group: PartWriter, steps: Mapping[int, ProgramStep], last: int) -> list[int]:
    """The slots of a group that other steps read, and the last one."""
    others = [step for slot, step in steps.items() if slot not in group.steps]
    read = {take.slot for step in others for take in step.takes} | {last}
    return [slot for slot in group.steps if slot in read]


def _slots(steps: Mapping[int, ProgramStep], numbers: Tensor, ids: Tensor) -> dict[int, OutputType]:
    values = [numbers, ids, *([numbers[:, :0]] * (max(steps) - 1))]
    with torch.inference_mode():
        for slot, step in steps.items():
            values[slot] = step(values)
    return {slot: OutputType(values[slot].dtype, tuple(values[slot].shape[1:])) for slot in (NUMBERS, IDS, *steps)}
