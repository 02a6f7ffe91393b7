"""Assembles the program, the row encoder and the output head of a fitted pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from windtunnel.assemble.categories import Categories
from windtunnel.assemble.composites import Composites
from windtunnel.assemble.context import Context
from windtunnel.assemble.conversions import Conversions, predicts
from windtunnel.assemble.edge_cases.imputed_thresholds import transform_of
from windtunnel.assemble.edge_cases.sparsity import check_sparse_inputs
from windtunnel.assemble.graph_column import GraphColumn, column_at
from windtunnel.assemble.host_steps import HostSteps
from windtunnel.assemble.inner_translations import InnerTranslations
from windtunnel.assemble.method_columns import MethodColumns
from windtunnel.assemble.output_head import output_dtypes, predictor_head, predictor_methods, transformer_methods
from windtunnel.assemble.predictors import Predictors, ScoredPredictor
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.encode import RowEncoder, Rows
from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.takes_sequence import takes_sequence
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine
from windtunnel.modules.outputs.class_outputs import Squeeze
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.pipeline.fitted_columns import fitted_columns
from windtunnel.pipeline.graph import build_graph
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.translators.conversions import (
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
    """The parts of a translation: ``program``, ``encoder``, ``head``, ``origins`` and ``hosts``."""

    pipeline: Any
    untranslated: str = "cache"  # "cache", "stream" or "error"; see ``translate``
    sample: Rows | None = None  # raw rows, for steps on the host and encoders without a vocabulary
    dtype: torch.dtype = torch.float64  # what the modules compute in
    exact: bool = False  # True for ``compile``: also translate steps through which no gradient passes

    def __post_init__(self) -> None:
        graph = build_graph(self.pipeline)
        conversions = Conversions(self.dtype, exact=self.exact)
        composites = Composites(conversions)
        self.encoder = RowEncoder(
            *self._fitted_columns(graph, composites),
            dtype=str(self.dtype).removeprefix("torch."),
            flat=takes_sequence(self.pipeline),
        )
        self._builder = ProgramBuilder(self.encoder, self.dtype)
        self._categories = Categories(self._builder, self.sample)
        self._context = Context(graph, self._builder, conversions, composites, self._categories, self._columns)
        self._host_steps = HostSteps(self._builder, self.untranslated, self.sample)
        self._inner_translations = InnerTranslations(self._context, self._host_steps)
        self._predictors = Predictors(self._context, self._inner_translations)
        self._methods = MethodColumns(self._context, self._predictors)
        self._assembled: dict[Expression | tuple[Expression, str], list[GraphColumn]] = {}
        scored = self._predictors.final(graph)
        methods, self.head = self._assemble_transformer(graph) if scored is None else self._assemble_predictor(scored)
        self.program = Program(self._builder.steps, methods)
        self.origins, self.hosts = self._builder.origins, self._host_steps.steps

    def _assemble_predictor(self, scored: ScoredPredictor) -> tuple[dict[str, ProgramStep], Head]:
        """Add the steps of further methods, and return them with the head."""
        self._builder.add_rejecting_steps()
        methods, scored = predictor_methods(self._context, self.pipeline, scored)
        return methods, predictor_head(self.pipeline, scored, methods)

    def _assemble_transformer(self, graph: Expression) -> tuple[dict[str, ProgramStep], Head]:
        """Add all steps of a pipeline that ends in a transformer; returns those of further methods, and the head."""
        columns = self._columns(graph)
        if not columns:
            name = f"step {graph.name!r}" if isinstance(graph, Step) else type(self.pipeline).__name__
            raise UnsupportedEstimator(
                f"{name} gives no columns: its output has the shape [rows, 0]. Fit it again so that it keeps some, or "
                "leave it out."
            )
        places = self._builder.places("the end of the pipeline", columns)
        methods = transformer_methods(self._context, graph)
        self._builder.add_rejecting_steps()
        self._builder.add("columns", "", Squeeze() if graph in self._categories.flat else Identity(), places)
        head = Head("transform", methods=("transform", *methods), dtypes=output_dtypes(self._context, graph))
        return methods, head

    def _fitted_columns(self, graph: Expression, composites: Composites) -> tuple[list[str] | None, int]:
        try:
            return fitted_columns(self.pipeline, self.sample)
        except UnsupportedEstimator:
            if isinstance(graph, Step):
                composites.check(graph)  # which may name a better reason, such as a search that was not refitted
            raise

    def _columns(self, expression: Expression) -> list[GraphColumn]:
        """The columns of an expression, cached."""
        if expression not in self._assembled:
            self._assembled[expression] = self._expression_columns(expression)
        return self._assembled[expression]

    def _expression_columns(self, expression: Expression) -> list[GraphColumn]:
        match expression:
            case Raw():
                return [self._builder.raw(column) for column in range(self.encoder.width)]
            case Columns(inputs=inputs, positions=positions):
                columns = self._columns(inputs)
                return [columns[position] for position in positions]
            case Concatenated(parts=parts):
                return [column for part in parts for column in self._columns(part)]
            case Weighted(name=name, inputs=inputs, weight=weight):
                columns = self._columns(inputs)
                zero = torch.zeros(len(columns), dtype=self.dtype)
                affine = Affine(scale=zero + weight, shift=zero, center=zero, unit=zero + 1)
                return self._builder.module(name, "", affine, columns, lambda rows: rows * weight)
            case MethodOutput(inputs=inputs, method=method, columns=positions):
                if (inputs, method) not in self._assembled:
                    self._assembled[inputs, method] = self._methods.columns(inputs, method)
                columns = self._assembled[inputs, method]
                if positions is None:
                    return columns
                if max(positions, default=0) >= len(columns):
                    raise UnsupportedEstimator(
                        f"column {max(positions)} of {method} is read, and there are {len(columns)}."
                    )
                return [columns[position] for position in positions]
            case Step():
                return self._step_columns(expression)

    def _step_columns(self, step: Step) -> list[GraphColumn]:
        try:
            conversion = self._context.conversions.of_step(step)
            self._context.composites.check(step)
        except UnsupportedEstimator as error:
            return self._host_steps.columns(step, error)
        if isinstance(conversion, TokenCounts):
            return self._host_steps.token_columns(step, conversion)
        columns = self._columns(step.inputs)
        try:
            return self._converted_columns(step, conversion, columns)
        except UnsupportedEstimator as error:
            return self._host_steps.columns(step, error)

    def _converted_columns(self, step: Step, conversion: Any, columns: list[GraphColumn]) -> list[GraphColumn]:
        builder, composites, estimator = self._builder, self._context.composites, step.estimator_name
        check_sparse_inputs(step, conversion, self.encoder)
        match conversion:
            case TranslatedPipeline(head=Head(task="transform")):
                inner = self._inner_translations.add(step, conversion, columns)
                return [column_at((inner.slot, column)) for column in range(inner.count)]
            case CategoryEncoding():
                return self._categories.encoded(step, conversion, columns)
            case CategoryRecoding():
                return self._categories.recoded(step, conversion, columns)
            case Selection(columns=positions):
                return builder.selection(step, positions, columns)
            case Composite(then=Module() as module):
                return builder.module(step.name, estimator, module, self._columns(composites.parts(step, conversion)))
            case Composite() if not predicts(conversion):
                return self._columns(composites.then(step, conversion))
            case Predictor() | Composite() | TranslatedPipeline():
                return self._methods.columns(step, "transform")
            case Transformer(module=module):
                probed = None if conversion.reads.has_categories else step.estimator
                module, columns = self._predictors.aligned_module(step, conversion.reads, module, step.inputs)
                return builder.module(step.name, estimator, module, columns, transform_of(step.estimator), probed)
            case Module():
                transform = transform_of(step.estimator)
                return builder.module(step.name, estimator, conversion, columns, transform, step.estimator)
        returned = type(conversion).__name__
        raise UnsupportedEstimator(f"step {step.name!r}: its converter returned {returned}, which is no conversion.")
