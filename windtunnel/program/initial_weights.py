"""The weights of a translation before training, from which the report's drift is measured."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import torch
from torch import Tensor, nn

from windtunnel.modules.tables.large_tables import large_tables


class InitialWeights(MutableMapping[str, Tensor]):
    """The state of a program at one time, by name.

    A large table that can be trained is not copied: its value is the present table with the old rows that ``fit``
    passes to ``store_rows``. Any other change of such a table goes unnoticed.
    """

    def __init__(self, program: nn.Module) -> None:
        self._program = program
        self._moved = {name: _no_rows(module.rows) for name, module in large_tables(program).items()}
        self._copies: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in program.state_dict().items() if name not in self._moved
        }

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._moved:
            return self._copies[name]
        rows, before = self._moved[name]
        now: Tensor = self._program.get_parameter(name)
        value: Tensor = now.detach().index_copy(0, rows.to(now.device), before.to(now))
        return value

    def __setitem__(self, name: str, value: Tensor) -> None:
        self._copies[name] = value
        self._moved.pop(name, None)

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name!r} cannot be deleted: the initial weights have the names of the program's weights")

    def __iter__(self) -> Iterator[str]:
        yield from self._program.state_dict()

    def __len__(self) -> int:
        return len(self._copies) + len(self._moved)

    def store_rows(self, name: str, rows: Tensor, before: Tensor) -> None:
        """Store the values of rows of a large table from before training; the first value of a row stays."""
        if name in self._copies:
            return
        stored, values = self._moved[name]
        new = ~torch.isin(rows.cpu(), stored)
        self._moved[name] = torch.cat([stored, rows.cpu()[new]]), torch.cat([values, before.cpu()[new]])

    def set_zero(self, name: str) -> None:
        """Take 0 as the initial value of a weight."""
        self[name] = torch.zeros_like(self[name])

    def store_table(self, name: str) -> None:
        """Store a large table, before training moves all of it."""
        self[name] = self[name]


def _no_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64), table.detach()[:0].cpu().clone()
