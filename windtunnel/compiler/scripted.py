"""A compiled program in TorchScript: no Python between its operators."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.compiler.engine import ProgramEngine, Run, failing_step
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


class MethodProgram(nn.Module):
    """The steps that one step needs, and that step as the last."""

    def __init__(self, program: Program, last: ProgramStep) -> None:
        super().__init__()
        needed = program.upstream(last)
        before = program.steps[: max(needed, default=-1) + 1]
        self.steps = nn.ModuleList([step if i in needed else EmptyStep() for i, step in enumerate(before)])
        self.last = last

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of the last step."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return self.last(values)  # type: ignore[no-any-return]


class EmptyStep(nn.Module):
    """Fills the slot of a step that is not needed."""

    def forward(self, values: list[Tensor]) -> Tensor:
        """``[B, 0]``."""
        return values[0][:, :0]


class TorchScriptEngine(ProgramEngine):
    """Runs a program as TorchScript, on the device of the program."""

    def prepare(self) -> Mapping[str, Run]:
        """Compile the scores and the methods that have a step of their own."""
        program = self.program
        last_steps = {**program.method_steps, "scores": program.steps[-1]}
        try:
            frozen = {
                method: _frozen(script(MethodProgram(program, step).eval())) for method, step in last_steps.items()
            }
        except UnfaithfulOption as error:
            where, _ = failing_step(program, self.example(2), lambda module, _: script(module))
            raise UnfaithfulOption(f"backend='torchscript' cannot run {where}: {error}") from error
        # The method itself, as a call of the module looks for hooks first.
        return {method: module.forward for method, module in frozen.items()}


def _frozen(scripted: Any) -> Any:
    """The module with its tensors as constants, a third faster on one row; no pass that rounds in another way."""
    with without_deprecations():
        return torch.jit.freeze(scripted, optimize_numerics=False)
