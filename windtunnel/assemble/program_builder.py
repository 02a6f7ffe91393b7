"""Builds a program: steps over columns, and the row encoder in front of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.assemble.edge_cases.imputed_thresholds import ImputedValue, follow
from windtunnel.assemble.edge_cases.rejected_inputs import PROBED_METHODS, rejected_inputs
from windtunnel.assemble.edge_cases.rounded_thresholds import lower_rounded
from windtunnel.assemble.graph_column import (
    GraphColumn,
    Place,
    Rejected,
    added_on_demand,
    check_not_empty,
    check_numbers,
    roundings_of,
)
from windtunnel.encode import RowEncoder
from windtunnel.modules.base import Module
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.outputs.method_outputs import CastColumns
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.expressions import Step
from windtunnel.program.program import NUMBERS, ProgramStep, slot_of, takes_of
from windtunnel.program.records.origin import Origin


class ProgramBuilder:
    """Collects the steps of a program; a step is added when a later one reads its output."""

    def __init__(self, encoder: RowEncoder, dtype: torch.dtype) -> None:
        self.encoder = encoder
        self.dtype = dtype  # what the modules compute in
        self.steps: list[ProgramStep] = []
        self.origins: list[Origin] = []
        self._rejecting: list[Callable[[int], Place]] = []
        self._rejected: dict[tuple[int, int, tuple[str, ...]], tuple[str, ...]] = {}

    def raw(self, column: int) -> GraphColumn:
        """A raw column, as a number or a category."""
        return GraphColumn(number=partial(self.number, column), raw=column)

    def number(self, column: int) -> Place:
        """The place of a raw column, or of a host step's column, as a number."""
        return NUMBERS, self.encoder.add_number(column)

    def places(self, name: str, columns: Sequence[GraphColumn]) -> list[Place]:
        """The places of columns as numbers; adds the steps that compute them."""
        check_not_empty(name, columns)
        check_numbers(name, columns)
        return [column.number() for column in columns if column.number is not None]

    def module(
        self,
        name: str,
        estimator: str,
        module: Module,
        columns: Sequence[GraphColumn],
        transform: Callable[[NDArray[np.float64]], Any] | None = None,
        probed: Any = None,
    ) -> list[GraphColumn]:
        """The columns of a module over numbers; the fitted estimator ``probed`` shows which numbers it rejects."""
        check_numbers(name, columns)
        if isinstance(module, Bins):
            module = lower_rounded(module, roundings_of(columns), self.dtype)
        width = self.width(module, len(columns))
        # A module with ``rejected_rows`` says itself what its source rejects.
        probes = probed is not None and not module.rejects_by_itself()
        rejects = self.rejections(probed, len(columns)) if probes else ()
        place = added_on_demand(lambda: self.add(name, estimator, module, self.places(name, columns), rejects))
        if rejects or (probed is not None and not probes):
            self._rejecting.append(place)
        values = [column.imputed for column in columns]
        imputed = follow(transform, module, values) if transform else [ImputedValue()] * width
        same_bits = module.has_bits_of_source() and self.dtype == torch.float64
        rounded = not same_bits or any(column.rounded for column in columns)
        roundings = [column.rounding for column in columns]
        return [
            GraphColumn(
                number=partial(place, column),
                imputed=value,
                rounded=rounded,
                rounding=module.rounding(column, roundings) if rounded else None,
            )
            for column, value in enumerate(imputed)
        ]

    def add(
        self, name: str, estimator: str, module: Module, places: Sequence[Place], rejects: Sequence[str] = ()
    ) -> int:
        """Add a program step and return the slot of its output."""
        self.steps.append(ProgramStep(module, takes_of(places), name, rejects))
        self.origins.append(Origin(name, estimator))
        return self.last_slot

    @property
    def last_slot(self) -> int:
        """The slot of the output of the last step."""
        return slot_of(len(self.steps) - 1)

    def add_rejecting_steps(self) -> None:
        """Add the steps that reject numbers and that no other step reads: the source checks all of its input."""
        first = len(self.steps)
        for place in self._rejecting:
            place(0)
        for step in self.steps[first:]:
            step.requires_grad_(False)  # no loss depends on them

    def run(self, step: Step, modules: Sequence[Module], places: list[Place]) -> list[Place]:
        """The output columns of modules applied one after the other."""
        for module in modules:
            module.cast(self.dtype)
            slot = self.add(step.name, step.estimator_name, module, places)
            places = [(slot, column) for column in range(self.width(module, len(places)))]
        return places

    def method(self, step: Step, module: Module, places: list[Place]) -> list[Place]:
        """The output of a method's module, as columns."""
        return self.as_columns(step, self.run(step, [module], places))

    def as_columns(self, step: Step, places: list[Place]) -> list[Place]:
        """The output of a method's module, of any shape and dtype, as columns."""
        return self.run(step, [CastColumns(torch.zeros((), dtype=torch.float64))], places)

    def selection(self, step: Step, positions: Sequence[int], columns: list[GraphColumn]) -> list[GraphColumn]:
        """The selected columns; rejected values are rejected in the columns that are not selected, too."""
        rejects = self.rejections(step.estimator, len(columns))
        if rejects and all(column.number is not None for column in columns):
            name, estimator, inputs = step.name, step.estimator_name, columns
            place = added_on_demand(lambda: self.add(name, estimator, Identity(), self.places(name, inputs), rejects))
            self._rejecting.append(place)
            kinds = {kind for name, kind in (("nan", Rejected.MISSING), ("inf", Rejected.INFINITE)) if name in rejects}
            columns = [
                replace(column, number=partial(place, position), rejects=column.rejects.union(kinds))
                for position, column in enumerate(columns)
            ]
        return [columns[position] for position in positions]

    def rejections(self, estimator: Any, width: int, method: str | None = None) -> tuple[str, ...]:
        """The values that a fitted step, or one of its methods, rejects; cached, as probing it may take long."""
        methods = (method,) if method is not None and hasattr(estimator, method) else PROBED_METHODS
        key = (id(estimator), width, methods)
        if key not in self._rejected:
            self._rejected[key] = rejected_inputs(estimator, width, methods)
        return self._rejected[key]

    def width(self, module: Module, columns: int) -> int:
        """The number of output columns of a module over so many input columns."""
        with torch.no_grad():
            return module(torch.zeros(2, columns, dtype=self.dtype)).reshape(2, -1).shape[1]  # type: ignore[no-any-return]
