"""Engines: another form of a program, such as compiled code, that is made again once the program changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import chain
from operator import attrgetter, is_
from threading import RLock
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.compiler.graphs import EXAMPLE_ROWS, check_close, computed_in, made_up_rows
from windtunnel.encode import CategoryColumn, RowEncoder, Rows
from windtunnel.modules.base import Module
from windtunnel.program.program import Program
from windtunnel.program.scoring_pipeline import ScoringPipeline

Run = Callable[[Tensor, Tensor], Tensor]
"""``run(numbers, ids)`` gives the output of one method."""


class PreparedRuns:
    """Functions that run a program, with a record of the tensors that they were made of.

    ``current`` takes a few microseconds, as it is called before every prediction.
    """

    def __init__(self, runs: Mapping[str, Run], program: Program) -> None:
        self.runs = runs
        self.tables = module_tables(program)
        self.members = self._members()
        tensors = [member for member in self.members if isinstance(member, Tensor)]
        # Tensors made in inference mode do not count writes.
        self.counting = [tensor for tensor in tensors if not tensor.is_inference()]
        self.state = self._state()

    def current(self) -> bool:
        """Whether no tensor or module was replaced, and no tensor written to or moved."""
        members = self._members()
        same = len(members) == len(self.members) and all(map(is_, members, self.members))
        return same and self._state() == self.state

    def _members(self) -> list[Any]:
        return [*chain.from_iterable(map(dict.values, self.tables))]

    def _state(self) -> list[int]:
        return [*map(Tensor.data_ptr, self.counting), *map(_VERSION, self.counting)]


def module_tables(program: Program) -> list[dict[str, Any]]:
    """The dicts in which all modules hold their parameters, buffers and modules, but for empty ones."""
    names = ("_parameters", "_buffers", "_modules")
    return [table for module in program.modules() for name in names if (table := getattr(module, name))]


_VERSION = attrgetter("_version")
_PREPARING = RLock()


class ProgramEngine(ABC):
    """Runs a program by other functions, which are prepared before the first prediction.

    They are prepared again once a tensor of the program was moved, cast, replaced or written to. Copies and pickles
    leave them out and prepare their own.
    """

    fixed: bool = True

    def __init__(self, program: Program, encoder: RowEncoder) -> None:
        self.program, self.encoder = program, encoder
        self._cached: PreparedRuns | None = None

    def renewed(self, program: Program, encoder: RowEncoder) -> Self:
        """The same engine for another program."""
        return type(self)(program, encoder)

    @abstractmethod
    def prepare(self) -> Mapping[str, Run]:
        """The functions that run "scores" and each method that has a step of its own."""

    def prepared(self) -> Mapping[str, Run]:
        """``prepare`` for the program as it is now."""
        cached = self._cached
        if cached is None or not cached.current():
            with _PREPARING:  # threads that score slices of rows arrive here together
                cached = self._cached
                if cached is None or not cached.current():
                    cached = self._cached = PreparedRuns(self.prepare(), self.program)
        return cached.runs

    def output(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """The output of ``Program.output``."""
        runs = self.prepared()
        return runs.get(method, runs["scores"])(numbers, ids)

    def text_ids(self, category: CategoryColumn, values: pd.Series) -> NDArray[np.int64] | None:
        """See ``Engine``."""
        return None

    def direct(self, net: ScoringPipeline, method: str, rows: Rows) -> Any:
        """See ``Engine``."""
        return None

    def example(self, rows: int) -> tuple[Tensor, Tensor]:
        """Made-up rows of the shapes and types that the program takes, on its device."""
        sizes = [len(category.vocabulary) for category in self.encoder.categories]
        numbers, ids = made_up_rows(rows, len(self.encoder.numbers), sizes, getattr(torch, self.encoder.dtype))
        device = next((buffer.device for buffer in self.program.buffers()), torch.device("cpu"))
        return numbers.to(device), ids.to(device)

    def compare(self, runs: Mapping[str, Run], *counts: int) -> None:
        """Compare functions with the program, on as many rows of an example: exporters and compilers have bugs."""
        blocks = self.example(EXAMPLE_ROWS)
        for method, run in runs.items():
            for count in counts:
                rows = [block[:count] for block in blocks]
                # Some modules need a row.
                expected = self.program.output(method, *(rows if count else blocks))[:count]
                check_close(run(*rows), expected, computed_in(self.program))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": None}


def sliced(run: Run, at_once: int) -> Run:
    """A function that runs slices of at most ``at_once`` rows, one after the other."""

    def run_slices(numbers: Tensor, ids: Tensor) -> Tensor:
        rows = len(ids)
        first = run(numbers[:at_once], ids[:at_once])
        if rows <= at_once:
            return first
        # One output for all slices, so that their memory is used again.
        output = first.new_empty((rows, *first.shape[1:]))
        output[:at_once] = first
        for start in range(at_once, rows, at_once):
            part = slice(start, start + at_once)
            output[part] = run(numbers[part], ids[part])
        return output

    return run_slices


@torch.no_grad()
def failing_step(
    program: Program, blocks: tuple[Tensor, ...], attempt: Callable[[Module, Tensor], object]
) -> tuple[str, Exception | None]:
    """Name the first step whose module and input make ``attempt`` raise, and give its error."""
    values = list(blocks)
    for step in (*program.steps, *program.method_steps.values()):
        inputs = step.gather(values)
        try:
            attempt(step.module, inputs)
        except Exception as error:  # compilers and exporters have errors of many kinds
            return f"step {step.name!r} ({type(step.module).__name__})", error
        if len(values) < len(blocks) + len(program.steps):
            values.append(step(values))
    return "the program as a whole", None
