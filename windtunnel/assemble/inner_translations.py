"""Translations inside of other estimators: their programs become steps of the program around them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from sklearn import get_config
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer

from windtunnel.assemble.context import Context
from windtunnel.assemble.edge_cases.sparsity import gives_sparse
from windtunnel.assemble.graph_column import GraphColumn, Place, Rejected
from windtunnel.assemble.host_steps import HostSteps
from windtunnel.encode import CategoryColumn
from windtunnel.encode.columns import quote_names
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.pipeline.fitted_columns import fitted_columns
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.program import IDS, NUMBERS, Program, ProgramStep, slot_of
from windtunnel.program.translated import TranslatedPipeline


@dataclass(frozen=True)
class PlacedModule:
    """A module, the places of its input columns, and the kinds of values that its source rejects there."""

    module: Module
    places: list[Place]
    rejects: tuple[str, ...] = ()


@dataclass(frozen=True)
class InnerProgram:
    """What a translation inside of another estimator computes in the program around it."""

    slot: int  # the slot of its raw scores, or of the columns of a transformer
    count: int  # the number of these
    methods: Mapping[str, PlacedModule]  # the methods that have a step of their own


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
            _check_first_readers(self._context)
        self._check(step, net)
        self._check_columns(step, net, columns)
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

    def _check_columns(self, step: Step, net: TranslatedPipeline, columns: list[GraphColumn]) -> None:
        """Reject columns in another order: a source may take them by name or, where it gets an array, by position.

        ``WindTunnelClassifier`` and ``WindTunnelRegressor`` themselves reject a table with other names.
        """
        names, where = net.encoder.names, f"step {step.name!r} ({step.estimator_name})"
        if len(columns) != net.encoder.width:
            raise UnsupportedEstimator(f"{where} reads {net.encoder.width} columns, and is given {len(columns)}.")
        given_names = "array" if names is None else self._names(step.inputs)
        # Names that are no texts are not checked.
        checks_names = step.estimator is not net and hasattr(step.estimator, "feature_names_in_")
        if given_names == "unknown" and not checks_names:
            raise UnsupportedEstimator(
                f"{where} reads columns by name, and what it is given does not tell whether it has names, and which. "
                "Translate a pipeline that was fitted on an array, or the whole pipeline with the steps before."
            )
        if isinstance(given_names, list) and given_names != names:
            raise UnsupportedEstimator(
                f"{where} was fitted on the columns {quote_names(names or [])}, and is given "
                f"{quote_names(given_names)}; fit all on tables with the same columns, in the same order."
            )

    def _names(self, expression: Expression) -> list[str] | Literal["array", "unknown"]:
        """The names of the columns of an expression; "array" if the source's steps give none."""
        match expression:
            case Raw():
                return self._builder.encoder.names or "unknown"
            case Columns(inputs=inputs, positions=positions):
                names = self._names(inputs)
                return [names[position] for position in positions] if isinstance(names, list) else names
            case Concatenated(composite=None) | MethodOutput() | Step(estimator=TranslatedPipeline()):
                return "array"
            case Concatenated(composite=estimator) | Step(estimator=estimator):
                # Only these classes of scikit-learn know ``set_output``; others return what an inner step does.
                if "transform" not in getattr(estimator, "_sklearn_auto_wrap_output_keys", ()):
                    return "unknown"
                if gives_table(estimator):
                    return [str(name) for name in estimator.get_feature_names_out()]
                known = type(estimator).__module__.startswith("sklearn.")
                return "array" if known and not isinstance(estimator, FunctionTransformer) else "unknown"
        return "unknown"

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


def _check_first_readers(context: Context) -> None:
    """Reject a translation that takes raw columns by name beside an estimator that was fitted on other names, or none.

    Votes, stacks and unions of scikit-learn take their names from one of their members, and check none.
    """
    readers = [reader for step in context.composites.steps(context.graph) for reader in _first_readers(step, context)]
    for net in readers:
        if isinstance(net, TranslatedPipeline) and net.encoder.names is not None:
            for other in readers:
                if (names := _names_of(other)) != net.encoder.names:
                    fitted_on = "an array" if names is None else quote_names(names)
                    beside = "passthrough" if isinstance(other, Raw) else type(other).__name__
                    raise UnsupportedEstimator(
                        f"a translation was fitted on the columns {quote_names(net.encoder.names)}, and "
                        f"{beside} beside it on {fitted_on}; fit all on tables with the same columns, in "
                        "the same order."
                    )


def _first_readers(expression: Expression, context: Context) -> list[Any]:
    """The fitted estimators that read the raw rows first, but for those that are made of others."""
    match expression:
        case Step(inputs=Raw(), estimator=estimator):
            return [] if context.conversions.is_composite(expression) else [estimator]
        case Concatenated(composite=ColumnTransformer() as columns, inputs=Raw()):
            return [columns]
        case Concatenated(parts=parts):  # raw columns among them are taken by position
            return [
                reader
                for part in parts
                for reader in ([part] if isinstance(part, Raw) else _first_readers(part, context))
            ]
        case Step(inputs=inputs) | Columns(inputs=inputs) | Weighted(inputs=inputs):
            return _first_readers(inputs, context)
    return []


def _names_of(reader: Any) -> list[str] | None:
    if isinstance(reader, Raw):
        return None
    try:
        return fitted_columns(reader)[0]
    except UnsupportedEstimator:  # a step of a user that knows no columns
        return None


def gives_table(estimator: Any) -> bool:
    """Whether a transformer that knows ``set_output`` returns a table."""
    config = getattr(estimator, "_sklearn_output_config", {})
    if not hasattr(estimator, "get_feature_names_out"):
        return False
    return config.get("transform", get_config()["transform_output"]) in ("pandas", "polars")


def _trainable_copy(net: TranslatedPipeline) -> Program:
    """A copy of the program; of exact steps the parameters that the level of the translation names may be trained."""
    program = deepcopy(net.program).cpu()
    if net.softening is not None and net.softening_pending:
        for name, parameter in program.named_parameters():
            parameter.requires_grad_(name in net.softening.trainable)
    for step in program.steps[InstalledResiduals.of(program).pipeline + 1 :]:
        step.requires_grad_(False)  # a later fit replaces residual models
    return program
