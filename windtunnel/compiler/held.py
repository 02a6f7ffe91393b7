"""What engines have in common: they hold a program in another form, for as long as its tensors are the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from windtunnel.modules.program import Program


class Held(ABC):
    """A program and, made when it is needed, its other form.

    The other form is made anew once a tensor of the program has been moved, cast, replaced or written to, and is left
    out of copies and pickles, which make their own.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._made: tuple[Any, Any] | None = None

    @abstractmethod
    def prepare(self) -> Any:
        """Make the other form of the program."""

    def prepared(self) -> Any:
        """The other form of the program as it is now."""
        tensors = [*self.program.parameters(), *self.program.buffers()]
        state = [(tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in tensors]
        if self._made is None or self._made[0] != state:
            self._made = (state, self.prepare())
        return self._made[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None}
