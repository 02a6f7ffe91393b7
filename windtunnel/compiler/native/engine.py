"""The native engine: steps as native programs, and those without a native form in torch between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from windtunnel.compiler.engine import ProgramEngine, Run
from windtunnel.compiler.native.part import NativePart, TorchPart, split
from windtunnel.encode import RowEncoder
from windtunnel.errors import InvalidOption
from windtunnel.program.program import Program, ProgramStep


class NativeEngine(ProgramEngine):
    """Runs a program in C, on the CPU.

    Attributes
    ----------
    torch_steps : dict
        The name of each step of the scores that runs in torch -> why.
    """

    def __init__(self, program: Program, encoder: RowEncoder) -> None:
        super().__init__(program, encoder)
        self.torch_steps: dict[str, str] = {}

    def prepare(self) -> Mapping[str, Run]:
        """The parts of the scores and of each method that has a step of its own."""
        device = next((buffer.device for buffer in self.program.buffers()), torch.device("cpu"))
        if device.type != "cpu":
            raise InvalidOption(f"backend='native' runs on the CPU, and the program is on {device}; give device='cpu'.")
        ends = {**self.program.method_steps, "scores": self.program.steps[-1]}
        return {method: self._run(method, end) for method, end in ends.items()}  # type: ignore[arg-type]

    def _run(self, method: str, end: ProgramStep) -> Run:
        numbers, ids = self.example(2)
        needed = sorted(self.program.upstream(end) | ({len(self.program.steps) - 1} if method == "scores" else set()))
        slots = {2 + position: self.program.steps[position] for position in needed}
        last = 1 + len(self.program.steps)
        if method != "scores":
            last += 1
            slots[last] = end
        parts = split(slots, last, numbers, ids)  # type: ignore[arg-type]
        if method == "scores":
            self.torch_steps = {part.step.name: part.reason for part in parts if isinstance(part, TorchPart)}
        return _runner(parts, last)


def _runner(parts: Sequence[NativePart | TorchPart], last: int) -> Run:
    if len(parts) == 1 and isinstance(part := parts[0], NativePart):
        return part.run

    def run(numbers: Tensor, ids: Tensor) -> Tensor:
        values = [numbers, ids, *([numbers[:, :0]] * (last - 1))]
        for part in parts:
            part.fill(values)
        return values[last]

    return run
