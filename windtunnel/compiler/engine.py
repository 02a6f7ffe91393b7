"""What engines have in common: they hold a program in another form, for as long as its tensors are the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from operator import attrgetter, is_
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import RowEncoder
from windtunnel.program.program import Program


class Made:
    """What was made of a program, and whether its tensors are still the same.

    Looking takes a few microseconds, as it is done before every answer.
    """

    def __init__(self, form: Any, program: Program) -> None:
        self.form = form
        modules = [*program.modules()]
        tables = (table for one in modules for table in (one._parameters, one._buffers, one._modules))
        self.tables: list[dict[str, Any]] = [table for table in tables if table]
        self.held = self._held()
        tensors = [one for one in self.held if isinstance(one, Tensor)]
        # What was made in inference mode counts no writes.
        self.counting = [one for one in tensors if not one.is_inference()]
        self.state = self._state()

    def current(self) -> bool:
        """Whether no tensor or module has been replaced since, and no tensor written to or moved."""
        held = self._held()
        same = len(held) == len(self.held) and all(map(is_, held, self.held))
        return same and self._state() == self.state

    def _held(self) -> list[Any]:
        return [*chain.from_iterable(map(dict.values, self.tables))]

    def _state(self) -> list[int]:
        return [*map(Tensor.data_ptr, self.counting), *map(_VERSION, self.counting)]


_VERSION = attrgetter("_version")
_MAKING = RLock()


class Held(ABC):
    """A program and, made when it is needed, its other form.

    The other form is made anew once a tensor of the program has been moved, cast, replaced or written to, and is left
    out of copies and pickles, which make their own.

    Parameters
    ----------
    program : Program
    encoder : RowEncoder
        What makes the rows that the program is given.
    """

    def __init__(self, program: Program, encoder: RowEncoder) -> None:
        self.program, self.encoder = program, encoder
        self._made: Made | None = None

    @abstractmethod
    def prepare(self) -> Any:
        """Make the other form of the program."""

    def prepared(self) -> Any:
        """The other form of the program as it is now."""
        made = self._made
        if made is None or not made.current():
            with _MAKING:  # one of the threads that slices of the rows went to
                made = self._made
                if made is None or not made.current():
                    made = self._made = Made(self.prepare(), self.program)
        return made.form

    def example(self, rows: int) -> tuple[Tensor, Tensor]:
        """Rows of the shapes and types that the program is given."""
        drawn = torch.Generator().manual_seed(0)
        dtype = getattr(torch, self.encoder.dtype)
        numbers = 3 * torch.randn(rows, len(self.encoder.numbers), generator=drawn, dtype=dtype)
        sizes = torch.tensor([len(category.vocabulary) for category in self.encoder.categories], dtype=torch.float64)
        ids = torch.rand(rows, len(sizes), generator=drawn, dtype=torch.float64) * sizes
        return numbers, ids.to(torch.int64)

    @abstractmethod
    def answer(self, method: str, numbers: Tensor, ids: Tensor) -> Tensor:
        """What ``Program.answer`` gives."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None}
