"""Parts of a program: neighbouring steps that run natively, or a step that runs in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import torch
from torch import Tensor

from windtunnel.compiler.native.build import library
from windtunnel.compiler.native.image import ImageWriter
from windtunnel.compiler.native.lowering import NotNative, lower
from windtunnel.program.program import IDS, NUMBERS, ProgramStep


@dataclass(frozen=True)
class Slot:
    """The type of an output, and its shape without rows."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        return prod(self.shape)


@dataclass(frozen=True)
class TorchPart:
    """A step that runs in torch."""

    slot: int
    step: ProgramStep
    reason: str

    def fill(self, values: list[Tensor]) -> None:
        """Compute the output of the step."""
        values[self.slot] = self.step(values)


class NativePart:
    """Neighbouring steps as one native program.

    Parameters
    ----------
    steps : dict
        Slot -> step; each has a native form.
    outputs : sequence of int
        The slots that later parts read.
    slots : dict
        All slots up to the last step.
    """

    def __init__(self, steps: Mapping[int, ProgramStep], outputs: Sequence[int], slots: Mapping[int, Slot]) -> None:
        read = {take.slot for step in steps.values() for take in _takes(step)}
        unread = [NUMBERS] if slots[NUMBERS].width else []
        self.inputs = sorted(read - set(steps) - {IDS}) or unread
        self.outputs = [(slot, slots[slot]) for slot in outputs]
        image = ImageWriter(sum(slots[slot].width for slot in self.inputs), slots[IDS].width)
        columns, start = {IDS: image.ids}, 0
        for slot in self.inputs:
            columns[slot] = image.numbers[start : (start := start + slots[slot].width)]
        for slot, step in steps.items():
            columns[slot] = lower(step.module, image, _taken(step, columns), _dtype(step, slots))
        self.width = sum(description.width for _, description in self.outputs)
        self.program = library().Program(image.image([column for slot in outputs for column in columns[slot]]))

    def run(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of the only slot, of rows that are the only input."""
        ((_, slot),) = self.outputs
        return self._computed(numbers, ids).to(slot.dtype).view(-1, *slot.shape)

    def fill(self, values: list[Tensor]) -> None:
        """Compute the outputs of the steps."""
        blocks = [values[slot].flatten(1) if values[slot].dim() > 1 else values[slot][:, None] for slot in self.inputs]
        numbers = blocks[0] if len(blocks) == 1 else torch.cat([values[NUMBERS][:, :0], *blocks], dim=1)
        computed, start = self._computed(numbers, values[IDS]), 0
        for slot, description in self.outputs:
            part = computed[:, start : (start := start + description.width)]
            values[slot] = part.to(description.dtype).reshape(-1, *description.shape)

    def _computed(self, numbers: Tensor, ids: Tensor) -> Tensor:
        output = torch.empty((ids.shape[0], self.width), dtype=torch.float64)
        self.program.run(numbers.double().numpy(), ids.numpy(), output.numpy())
        return output


def split(steps: Mapping[int, ProgramStep], last: int, numbers: Tensor, ids: Tensor) -> list[NativePart | TorchPart]:
    """Split the steps that slot ``last`` depends on, in order, into parts.

    Parameters
    ----------
    numbers, ids : Tensor
        A few rows, which tell types and shapes.
    """
    slots = _slots(steps, numbers, ids)
    reasons = {slot: _why_not_native(step, slots) for slot, step in steps.items()}
    groups: list[list[int]] = []
    for slot, reason in reasons.items():
        if reason is None and groups and reasons[groups[-1][-1]] is None:
            groups[-1].append(slot)
        else:
            groups.append([slot])
    parts: list[NativePart | TorchPart] = []
    for group in groups:
        if (reason := reasons[group[0]]) is not None:
            parts.append(TorchPart(group[0], steps[group[0]], reason))
            continue
        outside = [step for slot, step in steps.items() if slot not in group]
        read = {take.slot for step in outside for take in _takes(step)} | {last}
        known = {slot: description for slot, description in slots.items() if slot <= group[-1]}
        parts.append(NativePart({slot: steps[slot] for slot in group}, [slot for slot in group if slot in read], known))
    return parts


def _slots(steps: Mapping[int, ProgramStep], numbers: Tensor, ids: Tensor) -> dict[int, Slot]:
    values = [numbers, ids, *([numbers[:, :0]] * (max(steps) - 1))]
    with torch.inference_mode():
        for slot, step in steps.items():
            values[slot] = step(values)
    return {slot: Slot(values[slot].dtype, tuple(values[slot].shape[1:])) for slot in (NUMBERS, IDS, *steps)}


def _why_not_native(step: ProgramStep, slots: Mapping[int, Slot]) -> str | None:
    image = ImageWriter(sum(take.count for take in _takes(step)), 0)
    try:
        lower(step.module, image, image.numbers, _dtype(step, slots))
    except NotNative as error:
        return str(error)
    return None


def _taken(step: ProgramStep, columns: Mapping[int, list[int]]) -> list[int]:
    """The columns that a step reads."""
    return [columns[take.slot][column] for take in _takes(step) for column in take.columns.tolist()]


def _dtype(step: ProgramStep, slots: Mapping[int, Slot]) -> torch.dtype:
    """The type of the input of a step."""
    return reduce(torch.promote_types, {slots[take.slot].dtype for take in _takes(step)})


def _takes(step: ProgramStep) -> list[Any]:
    """The takes of a step; torch types its list as one of any modules."""
    return list(step.takes)
