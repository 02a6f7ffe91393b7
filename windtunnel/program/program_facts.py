"""Facts of a program that every prediction needs, cached."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from windtunnel.encode import RowEncoder
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.pipeline.host_step import HostStep, raw_columns_read
from windtunnel.program.non_finite import cleared_by_scores, takes_missing
from windtunnel.program.program import Program
from windtunnel.program.row_slices import CPU, least_rows
from windtunnel.program.summed_counts import SummedCounts, counting_hosts


class ProgramFacts:
    """Facts that the checks before a prediction need; valid while the steps of the program have the same modules."""

    def __init__(
        self, program: Program, modules: list[nn.Module | None], encoder: RowEncoder, hosts: Sequence[HostStep]
    ) -> None:
        self.program = program
        self.modules = modules  # of the steps, then of the methods that have a step
        self.methods = frozenset(program.method_steps)  # methods that have a step in the program
        self.may_reject_computed_values = program.may_reject_computed_values()
        self.needs_all_rows = program.needs_all_rows()
        self.least_rows = least_rows(program)  # the fewest rows of one thread
        # The positions of numbers that are finite in every row: counts of terms.
        self.always_finite = [*counting_hosts(encoder, hosts)]
        finite, width = set(self.always_finite), len(encoder.numbers)
        others = [position for position in range(width) if position not in finite]
        # The positions of the other numbers, int64; None for all.
        self.maybe_non_finite = torch.tensor(others, dtype=torch.int64) if finite else None
        # The buffers of the first step that takes columns, whose device is that of the program.
        buffers = [take._buffers for step in program.steps for take in step.takes]
        self.buffers: dict[str, Tensor | None] = next(iter(buffers), {})
        # The step, if it is the only one and sums all numbers; else None.
        self.sums = None if encoder.categories else _only_sums(program, width)
        # The positions of the raw columns that steps on the host read; None for all.
        self.host_columns = raw_columns_read(hosts)
        self.summed_counts = SummedCounts.of(program, encoder, hosts)

    @cached_property
    def takes_missing(self) -> bool:
        """Whether no step rejects a row for a missing number or an unknown category."""
        return takes_missing(self.program, self.always_finite)

    @cached_property
    def cleared_by_scores(self) -> frozenset[int]:
        """The positions of steps that reject no row whose scores are finite."""
        return cleared_by_scores(self.program, self.always_finite)

    def device(self) -> torch.device:
        """The device of the program."""
        return CPU if (columns := self.buffers.get("columns")) is None else columns.device


def _only_sums(program: Program, width: int) -> Linear | TermSums | None:
    """The only step of a program, if it sums all of the numbers in their order."""
    if len(program.steps) != 1:
        return None
    (step,) = program.steps
    in_order = len(step.takes) == 1 and step.takes[0].neighbours and step.takes[0].count == width
    return step.module if in_order and type(step.module) in (Linear, TermSums) else None  # type: ignore[return-value]  # mypy narrows no type()
