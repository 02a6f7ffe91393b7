"""The native engine: runs of steps as native programs, and in torch the steps that have no native form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from windtunnel.compiler.engine import ProgramEngine, Run
from windtunnel.compiler.native.part import NativePart, TorchPart, checked_image, split_program
from windtunnel.compiler.native.scorer import Scorer, make_scorer, values_of
from windtunnel.compiler.native.text_columns import TextColumns
from windtunnel.encode import CategoryColumn, RowEncoder, Rows
from windtunnel.program.program import Program, ProgramStep, last_slot, position_of, slot_of, steps_read
from windtunnel.program.scoring_pipeline import ScoringPipeline


class NativeEngine(ProgramEngine):
    """Runs a program in C, on the CPU."""

    fixed = False

    def __init__(self, program: Program, encoder: RowEncoder) -> None:
        super().__init__(program, encoder)
        self._parts: dict[str, list[NativePart | TorchPart]] = {}  # of "scores", and of methods that have a step
        self._scorers: dict[str, Scorer | None] = {}
        self._text_columns = TextColumns()

    def prepare(self) -> Mapping[str, Run]:
        """The parts of the scores and of each method that has a step of its own."""
        self._parts, self._scorers = {}, {}
        methods = [*self.program.method_steps, "scores"]
        if any(tensor.device.type != "cpu" for tensor in self.program.buffers()):  # moved after it was compiled
            return {method: partial(self.program.output, method) for method in methods}
        return {method: self._run(method) for method in methods}

    def text_ids(self, category: CategoryColumn, values: pd.Series) -> NDArray[np.int64] | None:
        """The ids of a column of texts, from a table in C."""
        return self._text_columns.ids(category, values)

    def direct(self, net: ScoringPipeline, method: str, rows: Rows) -> Any:
        """The output of a method for rows that no step can reject; None for others."""
        try:
            scorer = self._scorers[method]
        except KeyError:
            if sparse.issparse(rows):
                return None
            scorer = self._scorer(net, method)
        if scorer is None:
            return None
        output = scorer(values_of(rows), net.head)
        if output is None and not scorer.current(net.head):  # type: ignore[attr-defined]
            self._scorers = {}
        return output

    def torch_parts(self, method: str = "scores") -> list[TorchPart]:
        """The steps of "scores", or of a method that has a step, that run in torch."""
        return [part for part in self.parts(method) if isinstance(part, TorchPart)]

    def whole(self, method: str) -> NativePart | None:
        """The program of "scores", or of a method that has a step, if all of its steps are native."""
        parts = self.parts(method)
        return parts[0] if len(parts) == 1 and isinstance(parts[0], NativePart) else None

    def parts(self, method: str) -> list[NativePart | TorchPart]:
        """The parts of "scores", or of a method that has a step; none on another device than the CPU."""
        self.prepared()
        return self._parts.get(method, [])

    def _scorer(self, net: ScoringPipeline, method: str) -> Scorer | None:
        has_step = not self.program.method_steps.keys().isdisjoint(method.split(", "))
        made = self._scorers[method] = make_scorer(net, method, self.whole(method if has_step else "scores"), has_step)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_parts": {}, "_scorers": {}, "_text_columns": TextColumns()}

    def image(self, method: str, checked: Sequence[tuple[int, int]]) -> bytes:
        """The image of a program that is native as a whole, with columns of ``slot_guards`` behind its outputs.

        Raises ``NotNative`` if the check by which a step rejects rows has no native form.
        """
        slots, last = self._upstream(method, {slot for slot, _ in checked})
        return checked_image(slots, last, checked, *self.example(2))

    def _upstream(self, method: str, others: Iterable[int] = ()) -> tuple[dict[int, ProgramStep], int]:
        """The steps that a method, or other slots, depend on, and the slot of its output."""
        steps, last = self.program.steps, last_slot(self.program)
        method_step = None if method == "scores" else self.program.method_steps[method]
        wanted = {position_of(last)} if method_step is None else steps_read(method_step)
        wanted |= {position_of(slot) for slot in others if slot <= last}
        needed = wanted.union(*(self.program.upstream(steps[position]) for position in wanted))
        slots = {slot_of(position): steps[position] for position in sorted(needed)}
        if method_step is not None:
            slots[last := last + 1] = method_step
        return slots, last

    def _run(self, method: str) -> Run:
        slots, last = self._upstream(method)
        parts = self._parts[method] = split_program(slots, last, *self.example(2))
        if len(parts) == 1 and isinstance(whole := parts[0], NativePart):
            return whole.run

        def run(numbers: Tensor, ids: Tensor) -> Tensor:
            values = [numbers, ids, *([numbers[:, :0]] * (last - 1))]
            for part in parts:
                part.fill(values)
            return values[last]

        return run
