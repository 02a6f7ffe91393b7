"""A compiled program in ONNX Runtime, on the CPU."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.compiler.held import Held
from windtunnel.errors import UnfaithfulOption
from windtunnel.modules.program import Program, ProgramStep
from windtunnel.modules.trees.hard import TreeWalk

NEEDED = ("onnx", "onnxruntime", "onnxscript")
INPUTS = ("numbers", "ids")
EXAMPLE_ROWS = 61
"""Rows of the example that a graph is taken from; no width, so that no step takes the one for the other."""
AT_ONCE = 1 << 22
"""Rows times trees that are walked at once: an exported graph has no slices of its own."""


class OnnxEngine(Held):
    """Runs a program as ONNX graphs, one for each method, which are kept in memory."""

    def prepare(self) -> Any:
        """Export all methods together, then give each a session of its own, which computes no more than it needs."""
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            raise UnfaithfulOption(
                f"backend='onnx' needs {', '.join(missing)}, not installed; pip install 'windtunnel[onnx]'"
            )
        _check_device(self.program)
        methods = ["scores", *self.program.answers]
        try:
            model = exported(Methods(self.program), _example(self.program), methods)
            return {method: session(model, method) for method in methods}
        except Exception as error:  # the exporter, its passes and the runtime all have errors of their own
            raise _explained(self.program, error) from error

    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives."""
        runs = self.prepared()
        run = runs.get(method, runs["scores"])
        rows = len(ids) if self.program.whole() else max(1, AT_ONCE // _row_cost(self.program))
        parts = [
            run.run(None, _fed(run, {"numbers": some, "ids": others}))[0]
            for some, others in zip(numbers.split(rows), ids.split(rows), strict=True)
        ]
        return torch.cat([torch.from_numpy(part) for part in parts])


class Methods(nn.Module):
    """The scores of a program, then what each method with a step of its own returns."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.steps, self.answers = program.steps, program.answers

    def forward(self, numbers: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        """All answers, the scores first."""
        values = [numbers, ids]
        for step in self.steps:
            values.append(step(values))
        return (values[-1], *(step(values) for step in self.answers.values()))
