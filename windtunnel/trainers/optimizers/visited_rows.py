"""Training state of large tables, for the visited rows only."""

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
    """The rows of a table that training has visited, and the state of each.

    A step visits the rows that have a gradient. For n visited rows of a table ``[V, w]`` there are up to 1.5 n rows in
    each of ``start``, ``first``, ``second`` and the average, n rows in the best weights, and 4 V bytes that map a row
    to its place.

    The average of the weights is a <- decay a + (1 - decay) w in every step, also for rows that the step does not
    visit. Their w is constant, so that k such steps are applied at once: a <- w + decay^k (a - w). Without a decay
    there is no average.
    """

    def __init__(self, table: Tensor, decay: float | None) -> None:
        self.table, self.decay = table, decay
        self.steps = self.count = 0  # steps taken; n, below the size of the state tensors, so that they grow rarely
        self.number = torch.empty(0, dtype=torch.int64)  # the row in each place
        # The initial row, Adam's moments, and the average.
        self.start, self.first, self.second, self._average = (table.detach()[:0].clone() for _ in range(4))
        self._averaged_at = torch.empty(0, dtype=torch.int64)
        self._place = torch.zeros(len(table), dtype=torch.int32)  # from 1; 0 is a row that was not visited
        self._best: Tensor | None = None
        self._replaced: Tensor | None = None

    def places(self, rows: Tensor) -> Tensor:
        """The places of distinct rows, int64 ``[n]``; rows that were not visited are added."""
        self._move_to_device()
        place = self._place[rows].long() - 1
        new = place < 0
        if added := int(new.sum()):
            self._reserve(self.count + added)
            at = torch.arange(self.count, self.count + added, device=rows.device)
            self._add(rows[new], at)
            place[new] = at
        return place

    def step(self, rows: Tensor, place: Tensor, change: Tensor) -> None:
        """Add a step's change to rows, and update their averages."""
        self.steps += 1
        table = self.table.detach()
        if self.decay is not None:
            before = self._averages(place, table[rows], self.steps - 1)
        table.index_add_(0, rows, change)
        if self.decay is not None:
            self._average[place] = torch.lerp(before, table[rows], 1 - self.decay)
            self._averaged_at[place] = self.steps

    def keep(self) -> None:
        """Store the rows as the best weights."""
        self._best = self.table.detach()[self._visited()]

    def restore(self) -> None:
        """Restore the best weights; rows that were visited later get their initial weights."""
        if self._best is not None:
            table, visited, stored = self.table.detach(), self._visited(), len(self._best)
            table[visited[:stored]] = self._best
            table[visited[stored:]] = self.start[stored : self.count]

    def put_average(self) -> None:
        """Put the averages into the table."""
        table, visited = self.table.detach(), self._visited()
        self._replaced = table[visited]
        table[visited] = self._averages(torch.arange(self.count, device=visited.device), self._replaced, self.steps)

    def put_back(self) -> None:
        """Put back the weights that the averages replaced."""
        if self._replaced is not None:
            self.table.detach()[self._visited()] = self._replaced
            self._replaced = None

    def state_dict(self) -> dict[str, Any]:
        """The state, without the table."""
        blocks = {name: block[: self.count].clone() for name, block in self._blocks().items()}
        return {**blocks, "number": self._visited().clone(), "steps": self.steps, "best": self._best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.steps, self.count, self.number = state["steps"], len(state["number"]), state["number"]
        for name in self._blocks():
            setattr(self, name, state[name])
        self._best = state["best"]
        device = self.number.device
        self._place = torch.zeros(len(self.table), dtype=torch.int32, device=device)
        self._place[self.number] = torch.arange(1, self.count + 1, dtype=torch.int32, device=device)

    def _visited(self) -> Tensor:
        self._move_to_device()
        return self.number[: self.count]

    def _averages(self, place: Tensor, now: Tensor, steps: int) -> Tensor:
        """The averages after so many steps of rows whose weights are ``now`` since their last visit."""
        if self.decay is None:
            return now
        weight = self.decay ** (steps - self._averaged_at[place]).to(now.dtype)
        return torch.lerp(now, self._average[place], weight.unsqueeze(1))

    def _add(self, rows: Tensor, at: Tensor) -> None:
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

    def _move_to_device(self) -> None:
        """Move the state to the device of the table."""
        if self.number.device != self.table.device:
            for name, value in list(vars(self).items()):
                if isinstance(value, Tensor) and value is not self.table:
                    setattr(self, name, value.to(self.table.device))


@contextlib.contextmanager
def gradients_of_rows(net: nn.Module, names: Container[str]) -> Iterator[None]:
    """Give the named tables sparse gradients, of the rows of a batch only."""
    modules = [module for name, module in large_tables(net).items() if name in names]
    try:
        for module in modules:
            module.sparse = True
        yield
    finally:
        for module in modules:
            module.sparse = False
