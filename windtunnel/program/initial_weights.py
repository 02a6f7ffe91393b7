"""The weights that a translation came with, which the report's drift is measured from."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import torch
from torch import Tensor, nn

from windtunnel.trainers.optimizers.large_tables import large_tables


class Start(MutableMapping[str, Tensor]):
    """The state of a program at one time, by name.

    Of a large table that can be trained no copy is made: it is the table as it is now, with the rows that training
    moved as they came, which ``fit`` tells (``moved``); what else changes such a table is not seen.

    Parameters
    ----------
    program : nn.Module
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
        raise TypeError(f"{name!r} cannot be taken out: a start has the weights that its program has")

    def __iter__(self) -> Iterator[str]:
        yield from self._program.state_dict()

    def __len__(self) -> int:
        return len(self._copies) + len(self._moved)

    def moved(self, name: str, rows: Tensor, before: Tensor) -> None:
        """Take what rows of a large table were before; what is known of a row already stands."""
        if name in self._copies:
            return
        known, values = self._moved[name]
        new = ~torch.isin(rows.cpu(), known)
        self._moved[name] = torch.cat([known, rows.cpu()[new]]), torch.cat([values, before.cpu()[new]])

    def copy(self, name: str) -> None:
        """Copy a large table after all, as all of it is about to move."""
        self[name] = self[name]


def _no_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty(0, dtype=torch.int64), table.detach()[:0].cpu().clone()
