"""Assembles the program, the row encoder and the output head of a fitted pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from windtunnel.assemble.categories import Categories
from windtunnel.assemble.composites import Composites
from windtunnel.assemble.context import Context
from windtunnel.assemble.conversions import Conversions
from windtunnel.assemble.expression_columns import ExpressionColumns
from windtunnel.assemble.host_steps import HostSteps
from windtunnel.assemble.output_head import output_dtypes, predictor_head, predictor_methods, transformer_methods
from windtunnel.assemble.predictors import ScoredPredictor
from windtunnel.assemble.program_builder import ProgramBuilder
from windtunnel.encode import RowEncoder, Rows
from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.takes_sequence import takes_sequence
from windtunnel.modules.outputs.class_outputs import Squeeze
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.expressions import Expression, Step
from windtunnel.pipeline.fitted_columns import fitted_columns
from windtunnel.pipeline.graph import build_graph
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import Head
from windtunnel.program.program import Program, ProgramStep
from windtunnel.program.records.origin import Origin


@dataclass(frozen=True)
class Assembly:
    """The parts of a translation."""

    program: Program
    encoder: RowEncoder
    head: Head
    origins: Sequence[Origin]  # the source of each step of the program
    hosts: Sequence[HostStep]


def assemble(
    pipeline: Any,
    untranslated: str = "cache",
    sample: Rows | None = None,
    dtype: torch.dtype = torch.float64,
    *,
    exact: bool = False,
) -> Assembly:
    """Assemble the parts of the translation of a fitted pipeline.

    ``untranslated`` is "cache", "stream" or "error"; see ``translate``. ``sample`` are raw rows, for steps on the host
    and encoders without a vocabulary. The modules compute in ``dtype``. ``exact`` is True for ``compile``: then steps
    through which no gradient passes are translated too.
    """
    graph, conversions = build_graph(pipeline), Conversions(dtype, exact=exact)
    composites = Composites(conversions)
    names, width = _fitted_columns(pipeline, sample, graph, composites)
    flat, dtype_name = takes_sequence(pipeline), str(dtype).removeprefix("torch.")
    builder = ProgramBuilder(RowEncoder(names, width, dtype=dtype_name, flat=flat), dtype)
    host_steps = HostSteps(builder, untranslated, sample)
    columns = ExpressionColumns(graph, builder, conversions, composites, Categories(builder, sample), host_steps)
    scored = columns.predictors.final(graph)
    if scored is None:
        methods, head = _end_in_transformer(pipeline, columns.context)
    else:
        methods, head = _end_in_predictor(pipeline, columns.context, scored)
    return Assembly(Program(builder.steps, methods), builder.encoder, head, builder.origins, host_steps.steps)


def _fitted_columns(
    pipeline: Any, sample: Rows | None, graph: Expression, composites: Composites
) -> tuple[list[str] | None, int]:
    """The names and the number of the raw columns."""
    try:
        return fitted_columns(pipeline, sample)
    except UnsupportedEstimator:
        if isinstance(graph, Step):
            composites.check(graph)  # which may name a better reason, such as a search that was not refitted
        raise


def _end_in_predictor(pipeline: Any, context: Context, scored: ScoredPredictor) -> tuple[dict[str, ProgramStep], Head]:
    """Add the steps of further methods, and return them with the head."""
    context.builder.add_rejecting_steps()
    methods, scored = predictor_methods(context, pipeline, scored)
    return methods, predictor_head(pipeline, scored, methods)


def _end_in_transformer(pipeline: Any, context: Context) -> tuple[dict[str, ProgramStep], Head]:
    """Add all steps of a pipeline that ends in a transformer; returns those of further methods, and the head."""
    graph, builder = context.graph, context.builder
    columns = context.columns(graph)
    if not columns:
        name = f"step {graph.name!r}" if isinstance(graph, Step) else type(pipeline).__name__
        raise UnsupportedEstimator(
            f"{name} gives no columns: its output has the shape [rows, 0]. Fit it again so that it keeps some, or "
            "leave it out."
        )
    places = builder.places("the end of the pipeline", columns)
    methods = transformer_methods(context, graph)
    builder.add_rejecting_steps()
    builder.add("columns", "", Squeeze() if graph in context.categories.flat else Identity(), places)
    return methods, Head("transform", methods=("transform", *methods), dtypes=output_dtypes(context, graph))
