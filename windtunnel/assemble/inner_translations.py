"""Translations inside of other estimators: their programs become steps of the program around them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch

from windtunnel.assemble.context import Context
from windtunnel.assemble.edge_cases.member_columns import check_columns, check_first_readers
from windtunnel.assemble.edge_cases.sparsity import gives_sparse
from windtunnel.assemble.graph_column import GraphColumn, Place, PlacedModule, Rejected
from windtunnel.assemble.host_steps import HostSteps
from windtunnel.encode import CategoryColumn
from windtunnel.errors import UnsupportedEstimator
from windtunnel.pipeline.expressions import Raw, Step
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import IDS, NUMBERS, Program, ProgramStep, slot_of
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class InnerProgram:
    """What a translation inside of another estimator computes in the program around it."""

    slot: int  # the slot of its raw scores, or of the columns of a transformer
    count: int  # the number of these
    methods: Mapping[str, PlacedModule]  # the methods whose output a step of the program computes


class InnerTranslations:
    """Adds copies of the programs of translations, trained or not."""

    def __init__(self, context: Context, host_steps: HostSteps) -> None:
        self._context, self._builder, self._host_steps = context, context.builder, host_steps
        self._readers_are_checked = False

    def add(self, step: Step, net: TranslatedPipeline, columns: list[GraphColumn]) -> InnerProgram:
        """The steps of a translation that reads these columns.

        Raises
        ------
        UnsupportedEstimator
            A translation whose outputs would differ here: of another dtype, on a fixed engine, over sparse matrices
            whose zeros it takes for missing, over categories or host steps behind other steps.
        """
        if not self._readers_are_checked:
            self._readers_are_checked = True
            check_first_readers(self._context)
        self._check(step, net)
        check_columns(step, net, len(columns), self._builder.encoder.names)
        columns = [*columns, *(column for host in net.hosts for column in self._host_steps.of_translation(host, step))]
        encoder, program = net.encoder, _trainable_copy(net)
        numbers = self._builder.places(step.name, [columns[at] for at in encoder.numbers]) if encoder.numbers else []
        ids = [
            (IDS, self._builder.encoder.add_category(self._category(step, category, columns[category.column])))
            for category in encoder.categories
        ]
        places: dict[int, list[Place]] = {NUMBERS: numbers, IDS: ids}
        slots: dict[int, int] = {}

        def placed(inner: ProgramStep) -> PlacedModule:
            at = [places[slot][column] if slot in places else (slots[slot], column) for slot, column in inner.places()]
            return PlacedModule(inner.module, at, inner.rejects)

        for position, (inner, origin) in enumerate(zip(program.steps, net.origins, strict=True)):
            name, copied = f"{step.name}.{inner.name}" if inner.name else step.name, placed(inner)
            slot = self._builder.add(name, origin.estimator, copied.module, copied.places, copied.rejects)
            slots[slot_of(position)] = slot
        methods = {method: placed(inner) for method, inner in program.method_steps.items()}
        with torch.no_grad():
            count = program(*encoder.zeros(1)).reshape(1, -1).shape[1]
        return InnerProgram(slots[slot_of(len(program.steps) - 1)], count, methods)

    def _check(self, step: Step, net: TranslatedPipeline) -> None:
        encoder, outer = net.encoder, self._builder.encoder
        takes_raw_rows = isinstance(step.inputs, Raw)
        reason = ""
        if net.fixed:
            reason = "runs on a backend that is fixed; put the translation there that it was compiled from"
        elif encoder.dtype != outer.dtype:
            reason = f"computes in {encoder.dtype} and the estimators around it in {outer.dtype}; use one of these"
        elif encoder.flat and not (outer.flat and takes_raw_rows):
            reason = "takes texts, labels or dicts in the place of a table, which only a first step can"
        elif encoder.unstored != "zero" and gives_sparse(step.inputs):
            reason = "tells the zeros of a sparse matrix from those that are left out; give it dense columns"
        elif net.hosts and not takes_raw_rows:
            reason = (
                f"keeps step {net.hosts[0].name!r} on the host, which reads the rows as they are before any other "
                "step; put these steps into the pipeline that it translates"
            )
        if reason:
            raise UnsupportedEstimator(f"step {step.name!r} ({step.estimator_name}) {reason}.")
        if encoder.unstored != "zero" and gives_sparse(step.inputs, raw=True):
            outer.unstored = "rejected"
        outer.rejects_sparse_columns |= encoder.rejects_sparse_columns
        outer.needs_names |= encoder.needs_names

    def _category(self, step: Step, category: CategoryColumn, column: GraphColumn) -> CategoryColumn:
        """A category column of the translation as one of the program around it."""
        if column.raw is None or column.recodings or column.vocabulary is not None:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) reads categories that the steps before it compute or "
                "merge; put these steps into the pipeline that it translates."
            )
        rejected: Any = {
            "rejects_unknown": category.rejects_unknown or Rejected.UNKNOWN in column.rejects,
            "rejects_missing": category.rejects_missing or Rejected.MISSING in column.rejects,
            "rejects_infinite": category.rejects_infinite or Rejected.INFINITE in column.rejects,
            "rejects_fractions": category.rejects_fractions or Rejected.FRACTION in column.rejects,
        }
        return replace(category, column=column.raw, **rejected)


def _trainable_copy(net: TranslatedPipeline) -> Program:
    """A copy of the program; of exact steps the parameters that the level of the translation names may be trained."""
    program = deepcopy(net.program).cpu()
    if net.softening is not None and net.softening_pending:
        for name, parameter in program.named_parameters():
            parameter.requires_grad_(name in net.softening.trainable)
    for step in program.steps[InstalledResiduals.of(program).pipeline + 1 :]:
        step.requires_grad_(False)  # a later fit replaces residual models
    return program
