"""A compiled program in TorchScript: no Python between its operators."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.compiler.engine import Held
from windtunnel.errors import UnfaithfulOption
from windtunnel.program.program import Program, ProgramStep


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Silence that TorchScript is deprecated since torch 2.11: no other format needs nothing but torch."""
    with warnings.catch_warnings():
        for name in ("script", "save", "load", "freeze"):
            warnings.filterwarnings(
                "ignore", rf"`torch\.jit\.{name}` is (deprecated|not supported)", DeprecationWarning
            )
        yield


def script(module: nn.Module) -> Any:
    """Compile a module; ``UnfaithfulOption`` with the compiler's own words where it cannot be."""
    with without_deprecations():
        try:
            return torch.jit.script(module)
        except Exception as error:  # the compiler raises RuntimeError, ValueError, NotImplementedError and others
            raise UnfaithfulOption(
                f"a step of the translation cannot be compiled as TorchScript ({error}). Write its forward in the "
                "subset of Python that torch.jit.script takes, with class-level annotations that are no strings."
            ) from error


class Answering(nn.Module):
    """The steps that the answer of one step is made of, and that step at the end."""

    def __init__(self, program: Program, answer: nn.Module) -> None:
        super().__init__()
        needed = program.before(answer)
        before = program.steps[: max(needed, default=-1) + 1]
        self.steps = nn.ModuleList([step if i in needed else Nothing() for i, step in enumerate(before)])
        self.last = answer

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """What the last step gives."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return self.last(values)  # type: ignore[no-any-return]


class Nothing(nn.Module):
    """What stands in the slot of a step that is not needed."""

    def forward(self, values: list[Tensor]) -> Tensor:
        """``[B, 0]``."""
        return values[0][:, :0]


class TorchScriptEngine(Held):
    """Runs a program as TorchScript, on the device that the program is on."""

    def prepare(self) -> Any:
        """Compile the scores and the methods that have a step of their own."""
        program = self.program
        ends = {**program.answers, "scores": program.steps[-1]}
        try:
            frozen = {method: _frozen(script(Answering(program, end).eval())) for method, end in ends.items()}
        except UnfaithfulOption as error:
            raise UnfaithfulOption(f"backend='torchscript' cannot run {self._culprit()}: {error}") from error
        # The method itself, as a call of the module looks for hooks first.
        return {method: one.forward for method, one in frozen.items()}

    def _culprit(self) -> str:
        """The step that cannot be compiled; the first error alone says why."""
        for step in (*self.program.steps, *self.program.answers.values()):
            assert isinstance(step, ProgramStep)
            try:
                script(step.module)
            except UnfaithfulOption:
                return f"step {step.name!r} ({type(step.module).__name__})"
        return "the program as a whole"

    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives."""
        runs = self.prepared()
        return runs.get(method, runs["scores"])(numbers, ids)  # type: ignore[no-any-return]


def _frozen(scripted: Any) -> Any:
    """The same with its tensors as constants, a third faster on one row; no pass that rounds in another way."""
    with without_deprecations():
        return torch.jit.freeze(scripted, optimize_numerics=False)
