"""What engines have in common: they hold a program in another form, for as long as its tensors are the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from windtunnel.encode import RowEncoder
from windtunnel.modules.program import Program


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
        self._made: tuple[Any, Any] | None = None

    @abstractmethod
    def prepare(self) -> Any:
        """Make the other form of the program."""

    def prepared(self) -> Any:
        """The other form of the program as it is now."""
        tensors = [*self.program.parameters(), *self.program.buffers()]
        # What was made in inference mode counts no writes.
        state = [(one.data_ptr(), 0 if one.is_inference() else one._version, one.dtype) for one in tensors]
        if self._made is None or self._made[0] != state:
            self._made = (state, self.prepare())
        return self._made[1]

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
