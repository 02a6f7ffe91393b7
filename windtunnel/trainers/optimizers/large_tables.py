"""Tables too large to copy: what training keeps of the rows that it has met, and of no others."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from windtunnel.modules.tables.large_tables import large_tables

ADAM = ("adam", "adamw")
_GROWTH = 1.5


class VisitedRows:
    """The rows of a table that training has met, and what is kept of each.

    A row is met in the first step in which it has a gradient. For n rows met of a table ``[V, w]`` that is up to
    1.5 n rows in each of ``start``, ``first``, ``second`` and ``average`` and n in ``best``, and 4 V bytes to find a
    row's place.

    The average is that of ``Average``, a <- decay a + (1 - decay) w in every step, of rows that the step does not meet
    too: their w stands still, so that k such steps are made up for at once, a <- w + decay^k (a - w).

    Parameters
    ----------
    table : Tensor
        ``[V, w]``, a parameter.
    decay : float or None
        Of the average; None for none.

    Attributes
    ----------
    steps : int
        Steps taken.
    count : int
        n; what is kept has room for more.
    number : Tensor
        int64, the row in each place.
    start, first, second : Tensor
        The row as it came, and Adam's moments.
    """

    def __init__(self, table: Tensor, decay: float | None) -> None:
        self.table, self.decay = table, decay
        self.steps = self.count = 0
        self.number = torch.empty(0, dtype=torch.int64)
        self.start, self.first, self.second, self._average = (table.detach()[:0].clone() for _ in range(4))
        self._averaged_at = torch.empty(0, dtype=torch.int64)
        self._place = torch.zeros(len(table), dtype=torch.int32)  # from 1; 0 is a row that was not met
        self._best: Tensor | None = None
        self._aside: Tensor | None = None

    def meet(self, rows: Tensor) -> Tensor:
        """The places of rows, int64 ``[n]``, none of which comes twice."""
        self._follow()
        place = self._place[rows].long() - 1
        new = place < 0
        if fresh := int(new.sum()):
            self._reserve(self.count + fresh)
            at = torch.arange(self.count, self.count + fresh, device=rows.device)
            self._enter(rows[new], at)
            place[new] = at
        return place

    def move(self, rows: Tensor, place: Tensor, change: Tensor) -> None:
        """Add to rows, as a step; their averages follow."""
        self.steps += 1
        table = self.table.detach()
        if self.decay is not None:
            before = self._averages(place, table[rows], self.steps - 1)
        table.index_add_(0, rows, change)
        if self.decay is not None:
            self._average[place] = torch.lerp(before, table[rows], 1 - self.decay)
            self._averaged_at[place] = self.steps

    def keep(self) -> None:
        """Take the rows as they are for the best."""
        self._best = self.table.detach()[self._met()]

    def restore(self) -> None:
        """Put the best rows back; what was met since is put back as it came."""
        if self._best is not None:
            table, met, known = self.table.detach(), self._met(), len(self._best)
            table[met[:known]] = self._best
            table[met[known:]] = self.start[known : self.count]

    def put_average(self) -> None:
        """Put the averages into the table."""
        table, met = self.table.detach(), self._met()
        self._aside = table[met]
        table[met] = self._averages(torch.arange(self.count, device=met.device), self._aside, self.steps)

    def put_back(self) -> None:
        """Put back what the averages took the place of."""
        if self._aside is not None:
            self.table.detach()[self._met()] = self._aside
            self._aside = None

    def state_dict(self) -> dict[str, Any]:
        """Everything but the table."""
        blocks = {name: block[: self.count].clone() for name, block in self._blocks().items()}
        return {**blocks, "number": self._met().clone(), "steps": self.steps, "best": self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.steps, self.count, self.number = state["steps"], len(state["number"]), state["number"]
        for name in self._blocks():
            setattr(self, name, state[name])
        self._best = state["best"]
        device = self.number.device
        self._place = torch.zeros(len(self.table), dtype=torch.int32, device=device)
        self._place[self.number] = torch.arange(1, self.count + 1, dtype=torch.int32, device=device)

    def _met(self) -> Tensor:
        self._follow()
        return self.number[: self.count]

    def _averages(self, place: Tensor, now: Tensor, steps: int) -> Tensor:
        """The averages after so many steps of rows that are ``now`` since they were last averaged."""
        if self.decay is None:
            return now
        share = self.decay ** (steps - self._averaged_at[place]).to(now.dtype)
        return torch.lerp(now, self._average[place], share.unsqueeze(1))

    def _enter(self, rows: Tensor, at: Tensor) -> None:
        values = self.table.detach()[rows]
        self._place[rows] = (at + 1).int()
        self.number[at], self.start[at] = rows, values
        self.first[at], self.second[at] = 0.0, 0.0
        if self.decay is not None:
            self._average[at], self._averaged_at[at] = values, self.steps
        self.count += len(rows)

    def _blocks(self) -> dict[str, Tensor]:
        names = ["start", "first", "second"] + ["_average", "_averaged_at"] * (self.decay is not None)
        return {name: getattr(self, name) for name in names}

    def _reserve(self, count: int) -> None:
        if count <= len(self.number):
            return
        room = max(count, min(int(count * _GROWTH), len(self.table)))
        for name, block in {**self._blocks(), "number": self.number}.items():
            larger = block.new_empty(room, *block.shape[1:])
            larger[: self.count] = block[: self.count]
            setattr(self, name, larger)

    def _follow(self) -> None:
        """Go where the table has gone."""
        if self.number.device != self.table.device:
            for name, value in list(vars(self).items()):
                if isinstance(value, Tensor) and value is not self.table:
                    setattr(self, name, value.to(self.table.device))


@contextlib.contextmanager
def gradients_of_rows(net: nn.Module, names: Container[str]) -> Iterator[None]:
    """Let these tables have gradients that hold the rows of a batch only."""
    modules = [module for name, module in large_tables(net).items() if name in names]
    try:
        for module in modules:
            module.sparse = True
        yield
    finally:
        for module in modules:
            module.sparse = False
