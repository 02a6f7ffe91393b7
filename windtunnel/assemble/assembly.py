"""The expressions of a graph, worked out column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from windtunnel.assemble.categories import Categories
from windtunnel.assemble.composites import Composites
from windtunnel.assemble.conversions import Readings, predicts
from windtunnel.assemble.draft import Draft
from windtunnel.assemble.host_steps import Hosts
from windtunnel.assemble.imputed_thresholds import rows_of
from windtunnel.assemble.methods import Methods
from windtunnel.assemble.output_head import dtypes_of, head_of, methods_beside, methods_of
from windtunnel.assemble.predictors import Predictors
from windtunnel.assemble.wires import Wire
from windtunnel.encode import RowEncoder, Rows
from windtunnel.encode.one_dimensional import one_dimensional
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.outputs.class_outputs import Squeeze
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.graph import (
    Columns,
    Concatenated,
    Expression,
    MethodOutput,
    Raw,
    Step,
    Weighted,
    build_graph,
    raw_columns,
)
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep
from windtunnel.translators.registry import (
    CategoryEncoding,
    CategoryRecoding,
    Composite,
    Predictor,
    Selection,
    TokenCounts,
    Transformer,
)


@dataclass
class Assembly:
    """The parts of a translation, filled step by step.

    Parameters
    ----------
    pipeline : fitted pipeline or estimator
    untranslated : str
        "cache", "stream" or "error"; see ``translate``.
    sample : rows, optional
        Raw rows, for steps on the host and encoders without a vocabulary.
    dtype : torch.dtype
        What the modules compute in.
    exact : bool
        True for ``compile``, where steps that end the gradient are translated as well.
    """

    pipeline: Any
    untranslated: str = "cache"
    sample: Rows | None = None
    dtype: torch.dtype = torch.float32
    exact: bool = False

    def __post_init__(self) -> None:
        self.graph = build_graph(self.pipeline)
        self.readings = Readings(self.dtype, exact=self.exact)
        self.composites = Composites(self.readings)
        self.encoder = RowEncoder(
            *self._raw_columns(self.graph),
            dtype=str(self.dtype).removeprefix("torch."),
            flat=one_dimensional(self.pipeline),
        )
        self.draft = Draft(self.encoder, self.dtype)
        self.categories = Categories(self.draft, self.sample)
        self.predictors = Predictors(self)
        self.methods = Methods(self)
        self._kept = Hosts(self.draft, self.untranslated, self.sample)
        self._wires: dict[Expression, list[Wire]] = {}
        self._answered: dict[tuple[Expression, str], list[Wire]] = {}
        answers = self._end(self.graph)
        self.program = Program(self.draft.steps, answers)
        self.origins, self.hosts = self.draft.origins, self._kept.steps

    def _end(self, graph: Expression) -> dict[str, ProgramStep]:
        """Add all steps; what methods answer beside the last of them, and the head."""
        scored = self.predictors.final(graph)
        if scored is not None:
            self.draft.look()
            answers, scored = methods_of(self, scored)
            self.head = head_of(self, scored, answers)
            return answers
        wires = self.wires(graph)
        if not wires:
            raise UnsupportedEstimator(
                f"{_named(graph, self.pipeline)} gives no columns: what it answers has the shape [rows, 0]. Fit it "
                "again so that it keeps some, or leave it out."
            )
        places = self.draft.places("the end of the pipeline", wires)
        answers = methods_beside(self, graph)
        self.draft.look()
        self.draft.add("columns", "", Squeeze() if graph in self.categories.flat else Identity(), places)
        self.head = Head("transform", methods=("transform", *answers), dtypes=dtypes_of(self, graph))
        return answers

    def _raw_columns(self, graph: Expression) -> tuple[list[str] | None, int]:
        try:
            return raw_columns(self.pipeline)
        except UnsupportedEstimator:
            if isinstance(graph, Step):
                self.composites.check(graph)  # which may know better why, such as a search that was not refitted
            raise

    def wires(self, expression: Expression) -> list[Wire]:
        """The columns that an expression gives; each expression is worked out once."""
        if expression not in self._wires:
            self._wires[expression] = self._work_out(expression)
        return self._wires[expression]

    def _work_out(self, expression: Expression) -> list[Wire]:
        match expression:
            case Raw():
                return [self.draft.raw(column) for column in range(self.encoder.width)]
            case Columns(inputs=inputs, positions=positions):
                wires = self.wires(inputs)
                return [wires[position] for position in positions]
            case Concatenated(parts=parts):
                return [wire for part in parts for wire in self.wires(part)]
            case Weighted(name=name, inputs=inputs, weight=weight):
                wires = self.wires(inputs)
                zero = torch.zeros(len(wires), dtype=self.dtype)
                affine = Affine(scale=zero + weight, shift=zero, center=zero, unit=zero + 1)
                return self.draft.module(name, "", affine, wires, lambda rows: rows * weight)
            case MethodOutput(inputs=inputs, method=method, columns=columns):
                if (inputs, method) not in self._answered:
                    self._answered[inputs, method] = self.methods.answer(inputs, method)
                wires = self._answered[inputs, method]
                if columns is not None and max(columns, default=0) >= len(wires):
                    raise UnsupportedEstimator(
                        f"column {max(columns)} of {method} is read, and there are {len(wires)}."
                    )
                return wires if columns is None else [wires[position] for position in columns]
            case Step():
                return self._step(expression)

    def _step(self, step: Step) -> list[Wire]:
        try:
            reading = self.readings.of(step)
            self.composites.check(step)
        except UnsupportedEstimator as error:
            return self._kept.kept(step, error)
        if isinstance(reading, TokenCounts):
            return self._kept.tokens(step, reading)
        wires = self.wires(step.inputs)
        try:
            match reading:
                case CategoryEncoding():
                    return self.categories.encoded(step, reading, wires)
                case CategoryRecoding():
                    return self.categories.recoded(step, reading, wires)
                case Selection(columns=columns):
                    return self.draft.selection(step, columns, wires)
                case Composite(then=Module() as module):
                    wires = self.wires(self.composites.parts(step, reading))
                    return self.draft.module(step.name, type(step.estimator).__name__, module, wires)
                case Composite() if not predicts(reading):
                    return self.wires(self.composites.then(step, reading))
                case Predictor() | Composite():
                    return self.methods.answer(step, "transform")
                case Module() | Transformer():
                    asked, estimator = step.estimator, type(step.estimator).__name__
                    if isinstance(reading, Transformer):
                        asked = None if reading.codes or reading.hashed else asked
                        reading, wires = self.predictors.as_read(step, reading, reading.module, step.inputs)
                    return self.draft.module(step.name, estimator, reading, wires, rows_of(step.estimator), asked)
            raise UnsupportedEstimator(f"step {step.name!r}: its reader gave {type(reading).__name__}, no translation.")
        except UnsupportedEstimator as error:
            return self._kept.kept(step, error)


def _named(graph: Expression, pipeline: Any) -> str:
    """The step that a pipeline ends in, or its class where that is no single one."""
    return f"step {graph.name!r}" if isinstance(graph, Step) else type(pipeline).__name__
