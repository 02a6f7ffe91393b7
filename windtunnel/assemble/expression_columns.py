"""Assembles the columns of expressions: each step that they need is added to the program once."""

from __future__ import annotations

from typing import Any

import torch

from windtunnel.assemble.categories import Categories
from windtunnel.assemble.composites import Composites
from windtunnel.assemble.context import Context
from windtunnel.assemble.conversions import Conversions, predicts
from windtunnel.assemble.edge_cases.imputed_thresholds import transform_of
from windtunnel.assemble.edge_cases.member_columns import check_member_columns
from windtunnel.assemble.edge_cases.sparsity import check_sparse_inputs
from windtunnel.assemble.graph_column import GraphColumn, column_at
from windtunnel.assemble.host_steps import HostSteps
from windtunnel.assemble.inner_translations import InnerTranslations
from windtunnel.assemble.method_columns import MethodColumns
from windtunnel.assemble.predictors import Predictors
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Raw, Step, Weighted
from windtunnel.program.head import Head
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


class ExpressionColumns:
    """The columns of any expression of a graph; the parts that compute them call each other."""

    def __init__(
        self,
        graph: Expression,
        builder: ProgramBuilder,
        conversions: Conversions,
        composites: Composites,
        categories: Categories,
        host_steps: HostSteps,
    ) -> None:
        self.context = Context(graph, builder, conversions, composites, categories, self.of)
        self._categories, self._host_steps, self._builder = categories, host_steps, builder
        self._inner_translations = InnerTranslations(self.context, host_steps)
        self.predictors = Predictors(self.context, self._inner_translations)
        self._methods = MethodColumns(self.context, self.predictors)
        self._assembled: dict[Expression | tuple[Expression, str], list[GraphColumn]] = {}

    def of(self, expression: Expression) -> list[GraphColumn]:
        """The columns of an expression, cached."""
        if expression not in self._assembled:
            self._assembled[expression] = self._expression_columns(expression)
        return self._assembled[expression]

    def _expression_columns(self, expression: Expression) -> list[GraphColumn]:
        match expression:
            case Raw():
                return [self._builder.raw(column) for column in range(self._builder.encoder.width)]
            case Columns(inputs=inputs, positions=positions):
                columns = self.of(inputs)
                return [columns[position] for position in positions]
            case Concatenated(parts=parts):
                check_member_columns(expression, self.context)
                return [column for part in parts for column in self.of(part)]
            case Weighted(name=name, inputs=inputs, weight=weight):
                columns = self.of(inputs)
                zero = torch.zeros(len(columns), dtype=self._builder.dtype)
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
            conversion = self.context.conversions.of_step(step)
            self.context.composites.check(step)
        except UnsupportedEstimator as error:
            return self._host_steps.columns(step, error)
        if isinstance(conversion, TokenCounts):
            return self._host_steps.token_columns(step, conversion)
        columns = self.of(step.inputs)
        try:
            return self._converted_columns(step, conversion, columns)
        except UnsupportedEstimator as error:
            return self._host_steps.columns(step, error)

    def _converted_columns(self, step: Step, conversion: Any, columns: list[GraphColumn]) -> list[GraphColumn]:
        builder, composites, estimator = self._builder, self.context.composites, step.estimator_name
        check_sparse_inputs(step, conversion, self._builder.encoder)
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
                return builder.module(step.name, estimator, module, self.of(composites.parts(step, conversion)))
            case Composite() if not predicts(conversion):
                return self.of(composites.then(step, conversion))
            case Predictor() | Composite() | TranslatedPipeline():
                return self._methods.columns(step, "transform")
            case Transformer(module=module):
                probed = None if conversion.reads.has_categories else step.estimator
                module, columns = self.predictors.aligned_module(step, conversion.reads, module, step.inputs)
                return builder.module(step.name, estimator, module, columns, transform_of(step.estimator), probed)
            case Module():
                transform = transform_of(step.estimator)
                return builder.module(step.name, estimator, conversion, columns, transform, step.estimator)
        returned = type(conversion).__name__
        raise UnsupportedEstimator(f"step {step.name!r}: its converter returned {returned}, which is no conversion.")
