"""A program that raises on rows that the source rejects, in TorchScript."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import Final

import torch
from torch import Tensor, nn

from windtunnel.encode import FIRST_ID
from windtunnel.program.non_finite import takes_missing
from windtunnel.program.program import FLOAT32_MAX, Program, ProgramStep
from windtunnel.program.row_slices import MAX_SQUARABLE

CHUNK = 8192
"""Rows scored at once."""
WHOLE = 1 << 62
"""All rows, for programs in which rows depend on one another."""


class Guarded(nn.Module):
    """A step that raises on rows that the source rejects.

    Shape
    -----
    forward : the input of ``ProgramStep``, and whether the rows have to be checked -> its output
    """

    may_reject: Final[bool]

    def __init__(self, step: ProgramStep) -> None:
        super().__init__()
        self.step, self.name, self.may_reject = step, step.name, step.may_reject()
        kinds = {"nan": "missing numbers", "inf": "infinite numbers", "huge": "numbers beyond float32"}
        none_of = [text for kind, text in kinds.items() if kind in step.rejects]
        self.none_of = " or ".join(none_of + ["numbers outside of its range"] * step.rejects_finite())

    def forward(self, values: list[Tensor], look: bool) -> Tensor:
        """The output of the step."""
        if self.may_reject:  # a constant of the compiler, which then drops the check of a step that rejects nothing
            if look:
                rejected = self.step.rejected(values)
                if bool(rejected.any()):
                    raise ValueError(
                        f"{int(rejected.sum())} of {rejected.shape[0]} rows scored at once have no finite score: step "
                        f"{self.name} takes no {self.none_of}"
                    )
        return self.step(values)  # type: ignore[no-any-return]


class GuardedProgram(nn.Module):
    """A program that raises on rows that the source rejects.

    Each step checks its input, but only if the rows hold non-finite values or a step may produce them.

    Shape
    -----
    forward : as ``Program`` -> numbers, ids and the outputs of all steps
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Guarded(step) for step in program.steps)
        self.checks_all_rows = program.may_reject_computed_values()
        self.at_once = WHOLE if program.needs_all_rows() else CHUNK
        self.takes_missing, self.first_id = takes_missing(program), FIRST_ID
        self.most, self.large = FLOAT32_MAX, MAX_SQUARABLE

    def forward(self, numbers: Tensor, ids: Tensor) -> list[Tensor]:
        """All values, the raw scores or the columns of a transformer last."""
        values, look = [numbers, ids], self.look(numbers, ids)
        for step in self.steps:
            values.append(step(values, look))
        return values

    def look(self, numbers: Tensor, ids: Tensor) -> bool:
        """Whether the source may reject one of the rows: ``program.row_slices.has_non_finite`` in TorchScript."""
        if self.checks_all_rows or (not self.takes_missing and ids.numel() > 0 and bool(ids.min() < self.first_id)):
            return True
        plain = self.plain(numbers)
        if self.takes_missing and not plain:
            plain = self.plain(torch.nan_to_num(numbers, nan=0.0, posinf=float("inf"), neginf=-float("inf")))
        return not plain

    def plain(self, numbers: Tensor) -> bool:
        """Whether no number is missing, infinite or large."""
        flat = numbers.reshape(-1)
        # A sum of squares takes little time, and is no finite number either where one of its parts is none.
        if flat.shape[0] == 0 or bool(torch.dot(flat, flat) <= self.most):
            return True
        return bool((flat.abs() <= self.large).all())
