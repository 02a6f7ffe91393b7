"""A compiled program in TorchScript: no Python between its operators."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import Any

from torch import Tensor, nn

from windtunnel.compiler.held import Held
from windtunnel.export.torchscript import script
from windtunnel.modules.program import Program


class Answering(nn.Module):
    """A program that ends in the step of a method."""

    def __init__(self, program: Program, answer: nn.Module) -> None:
        super().__init__()
        self.steps, self.last = program.steps, answer

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """What the method of the source returns."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return self.last(values)  # type: ignore[no-any-return]


class TorchScriptEngine(Held):
    """Runs a program as TorchScript, on the device that the program is on."""

    def prepare(self) -> Any:
        """Compile the scores and the methods that have a step of their own."""
        program = self.program
        runs = {method: script(Answering(program, answer).eval()) for method, answer in program.answers.items()}
        return runs | {"scores": script(program)}

    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives."""
        runs = self.prepared()
        return runs.get(method, runs["scores"])(numbers, ids)  # type: ignore[no-any-return]
