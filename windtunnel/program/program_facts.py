"""What is known of a program that answers, found out once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.tfidf import TermSums
from windtunnel.program.program import Program
from windtunnel.program.row_slices import CPU, least_share

if TYPE_CHECKING:
    from windtunnel.api.translation import Translation


class Known:
    """What is asked of a program before every answer, and stays as it is while its steps have the same modules.

    Attributes
    ----------
    modules : list of Module
        Of the steps, then of the methods that have one of their own (``own``).
    partial, whole : bool
        See ``Program``.
    least : int
        The fewest rows of one thread.
    always_finite : list of int
        See ``Translation.always_finite``.
    sums : Linear, TermSums or None
        The one step, where scores are sums of the finite counts of one step on the host, and of nothing else.
    others : int64 Tensor or None
        The columns that are not; None where those are all.
    buffers : dict
        Of the first step that takes columns: they are where the program is.
    """

    def __init__(self, net: Translation, modules: list[nn.Module | None]) -> None:
        self.program, self.modules, self.always_finite = net.program, modules, net.always_finite()
        program, finite = net.program, set(self.always_finite)
        others = [at for at in range(len(net.encoder.numbers)) if at not in finite]
        self.others = torch.tensor(others, dtype=torch.int64) if finite else None
        self.partial, self.whole, self.own = program.partial(), program.whole(), frozenset(program.answers)
        self.least = least_share(program)
        buffers = [take._buffers for step in program.steps for take in step.takes]  # type: ignore[union-attr]
        self.buffers: dict[str, Tensor | None] = next(iter(buffers), {})
        only_counts = self.others is not None and len(self.others) == 0 and not net.encoder.categories
        self.sums = _sums(program, len(net.encoder.numbers)) if only_counts and len(net.hosts) == 1 else None

    @cached_property
    def takes_missing(self) -> bool:
        """Whether no step rejects a row for a missing number or an unknown category; looked at column by column."""
        from windtunnel.program.non_finite import takes_missing

        return takes_missing(self.program, self.always_finite)

    @cached_property
    def shown_by_scores(self) -> frozenset[int]:
        """The positions of steps that reject no row whose scores are finite."""
        from windtunnel.program.non_finite import shown_by_scores

        return shown_by_scores(self.program, self.always_finite)

    def device(self) -> torch.device:
        """Where the tensors of the program are; what a step takes is one of them."""
        return CPU if (columns := self.buffers.get("columns")) is None else columns.device


def _sums(program: Program, width: int) -> Linear | TermSums | None:
    """The only step of a program, where it gives sums of all of the numbers as they are."""
    if len(program.steps) != 1:
        return None
    step: Any = program.steps[0]
    in_order = len(step.takes) == 1 and step.takes[0].neighbours and step.takes[0].count == width
    return step.module if in_order and type(step.module) in (Linear, TermSums) else None
