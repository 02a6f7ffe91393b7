"""A program as it grows: steps over columns, and the row encoder in front of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.assemble.imputed_thresholds import Filled, follow
from windtunnel.assemble.rejected_inputs import METHODS, rejections
from windtunnel.assemble.wires import Place, Wire, check_numbers, check_some, once
from windtunnel.encode import RowEncoder
from windtunnel.modules.base import Module
from windtunnel.modules.outputs.method_outputs import CastColumns
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.graph import Step
from windtunnel.program.origin import Origin
from windtunnel.program.program import NUMBERS, ProgramStep, takes_of


class Draft:
    """The steps of a program, added as their answers are asked for.

    Parameters
    ----------
    encoder : RowEncoder
    dtype : torch.dtype
        What the modules compute in.
    """

    def __init__(self, encoder: RowEncoder, dtype: torch.dtype) -> None:
        self.encoder = encoder
        self.dtype = dtype
        self.steps: list[ProgramStep] = []
        self.origins: list[Origin] = []
        self._refusing: list[Callable[[int], Place]] = []
        self._rejected: dict[tuple[int, int, tuple[str, ...]], tuple[str, ...]] = {}

    def raw(self, column: int) -> Wire:
        """A raw column, still as a number or a category."""
        return Wire(number=partial(self.number, column), raw=column)

    def number(self, column: int) -> Place:
        """Where a raw column, or one of the host's, stands as a number."""
        return NUMBERS, self.encoder.add_number(column)

    def places(self, name: str, wires: Sequence[Wire]) -> list[Place]:
        """Where columns stand as numbers; the steps that compute them are added."""
        check_some(name, wires)
        check_numbers(name, wires)
        return [wire.number() for wire in wires if wire.number is not None]

    def module(
        self,
        name: str,
        estimator: str,
        module: Module,
        wires: Sequence[Wire],
        transform: Callable[[NDArray[np.float64]], Any] | None = None,
        asked: Any = None,
    ) -> list[Wire]:
        """The columns of a module over numbers; ``asked`` is the estimator that tells which numbers it rejects."""
        check_numbers(name, wires)
        with torch.no_grad():
            width = module(torch.zeros(2, len(wires), dtype=self.dtype)).shape[1]
        # A module that knows what its source rejects is not second-guessed.
        asks = asked is not None and type(module).outside is Module.outside
        rejects = self.rejections(asked, len(wires)) if asks else ()
        place = once(lambda: self.add(name, estimator, module, self.places(name, wires), rejects))
        if rejects or (asked is not None and not asks):
            self._refusing.append(place)
        filled = follow(transform, module, [wire.filled for wire in wires]) if transform else [Filled()] * width
        return [Wire(number=partial(place, column), filled=one) for column, one in enumerate(filled)]

    def add(
        self, name: str, estimator: str, module: Module, places: Sequence[Place], rejects: Sequence[str] = ()
    ) -> int:
        """Add a program step; of those whose answer nothing asks for only what ``look`` adds."""
        self.steps.append(ProgramStep(module, takes_of(places), name, rejects))
        self.origins.append(Origin(name, estimator))
        return len(self.steps) + 1

    def look(self) -> None:
        """Add the steps that reject numbers and that nothing asks for: the source looks at all that it is given."""
        first = len(self.steps)
        for place in self._refusing:
            place(0)
        for step in self.steps[first:]:
            step.requires_grad_(False)  # no loss ever asks for them

    def run(self, step: Step, modules: Sequence[Module], places: list[Place]) -> list[Place]:
        """The columns of modules, one after the other."""
        for module in modules:
            module.cast(self.dtype)
            slot = self.add(step.name, type(step.estimator).__name__, module, places)
            places = [(slot, column) for column in range(self.width(module, len(places)))]
        return places

    def selection(self, step: Step, columns: Sequence[int], wires: list[Wire]) -> list[Wire]:
        """The kept columns; what the source rejects is rejected in the others as well."""
        rejects = self.rejections(step.estimator, len(wires))
        if rejects and all(wire.number is not None for wire in wires):
            name, estimator = step.name, type(step.estimator).__name__
            given = wires
            place = once(lambda: self.add(name, estimator, Identity(), self.places(name, given), rejects))
            self._refusing.append(place)
            missing = {code for kind, code in (("nan", 1), ("inf", 2)) if kind in rejects}
            wires = [
                replace(wire, number=partial(place, column), rejects=wire.rejects.union(missing))
                for column, wire in enumerate(wires)
            ]
        return [wires[column] for column in columns]

    def rejections(self, estimator: Any, width: int, method: str = "") -> tuple[str, ...]:
        """What a fitted step rejects, or one of its methods; it is asked once, as its answers may take long."""
        asked = (method,) if hasattr(estimator, method) else METHODS
        key = (id(estimator), width, asked)
        if key not in self._rejected:
            self._rejected[key] = rejections(estimator, width, asked)
        return self._rejected[key]

    def width(self, module: Module, columns: int) -> int:
        """How many columns a module gives for so many."""
        with torch.no_grad():
            return module(torch.zeros(2, columns, dtype=self.dtype)).reshape(2, -1).shape[1]  # type: ignore[no-any-return]

    def as_columns(self) -> Module:
        """What makes columns of any answer."""
        return CastColumns(torch.zeros((), dtype=torch.float64))
