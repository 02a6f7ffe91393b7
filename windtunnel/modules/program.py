"""A translated pipeline as a flat program: each step takes columns of earlier answers and gives one more."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module

NUMBERS, IDS = 0, 1
"""Slots of the two blocks of a batch; step i answers in slot 2 + i."""


class Take(nn.Module):
    """Columns ``columns`` of the answer in one slot, ``[B, len(columns)]``; a view where they are neighbours."""

    columns: Tensor

    def __init__(self, slot: int, columns: Sequence[int]) -> None:
        super().__init__()
        self.slot = slot
        self.start = columns[0] if columns else 0
        self.count = len(columns)
        self.neighbours = list(columns) == list(range(self.start, self.start + self.count))
        self.register_buffer("columns", torch.tensor(list(columns), dtype=torch.int64), persistent=False)

    def forward(self, values: list[Tensor]) -> Tensor:
        """Pick from the list of answers."""
        value = values[self.slot]
        if self.neighbours:
            return value[:, self.start : self.start + self.count]
        return value.index_select(1, self.columns)


class ProgramStep(nn.Module):
    """One module and where its input columns come from; several takes stand side by side."""

    def __init__(self, module: Module, takes: Sequence[Take], name: str) -> None:
        super().__init__()
        self.module = module
        self.takes = nn.ModuleList(takes)
        self.name = name

    def gather(self, values: list[Tensor]) -> Tensor:
        """The input of the module, ``[B, width in]``."""
        parts: list[Tensor] = []
        for take in self.takes:
            parts.append(take(values))
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts, dim=1)

    def forward(self, values: list[Tensor]) -> Tensor:
        """The answer of the module, ``[B, width out]``."""
        return self.module(self.gather(values))  # type: ignore[no-any-return]


class Program(nn.Module):
    """Steps in order; the answer of the last is the answer of the program.

    Shape
        numbers float32 ``[B, n]``, ids int64 ``[B, m]`` -> float32 ``[B, K]``
    """

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Raw scores, or the columns of a transformer."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return values[-1]

    def inputs_of(self, position: int, numbers: Tensor, ids: Tensor) -> Tensor:
        """What reaches the module of step ``position``, ``[B, width in]``."""
        values = [numbers, ids]
        for index, step in enumerate(self.steps):
            if index == position:
                return step.gather(values)  # type: ignore[operator, no-any-return]
            values.append(step(values))
        raise IndexError(f"no step {position}; there are {len(self.steps)}")
