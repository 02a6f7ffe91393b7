"""Rows with targets, and weights where they have any, as functions take them that see all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from windtunnel.encode import Batch


class Targets(NamedTuple):
    """Targets of rows, and maybe weights, in the order of the arguments of a loss: ``loss(scores, *targets)``."""

    target: Tensor  # ``[N]`` or ``[N, K]``
    weight: Tensor | None = None  # ``[N]``, from 0

    def take(self, index: Tensor | slice) -> Targets:
        """Those of some rows."""
        return Targets(self.target[index], None if self.weight is None else self.weight[index])


@dataclass(frozen=True)
class LabelledRows:
    """Rows with their targets."""

    rows: Any  # encoded rows, or a tensor that was computed from them, such as ``[N, K]`` scores
    targets: Targets

    @classmethod
    def of(cls, item: Sequence[Any]) -> LabelledRows:
        """Those of an item that a loader yields: ``(rows, target)`` or ``(rows, target, weight)``."""
        rows, *targets = item
        return cls(rows, Targets(*targets))

    def __len__(self) -> int:
        return len(self.targets.target)

    def take(self, index: Tensor) -> LabelledRows:
        """Rows by their indices, or by a mask."""
        rows = self.rows.take(index) if isinstance(self.rows, Batch) else self.rows[index]
        return LabelledRows(rows, self.targets.take(index))

    def with_rows(self, rows: Any) -> LabelledRows:
        """Other rows with the same targets."""
        return replace(self, rows=rows)

    def random(self, limit: int, generator: torch.Generator) -> LabelledRows:
        """At most ``limit`` random rows."""
        if len(self) <= limit:
            return self
        return self.take(torch.randperm(len(self), generator=generator)[:limit])

    def counted(self) -> LabelledRows:
        """The rows with a weight above 0; all rows if there are none."""
        mask = counted_rows(self.targets.weight)
        return self if mask is None else self.take(mask)


def counted_rows(weight: Tensor | None) -> Tensor | None:
    """A mask of the rows with a weight above 0, bool ``[N]``; None if every weight, or none, is above 0."""
    if weight is None or bool((mask := weight > 0).all()) or not mask.any():
        return None
    return mask
