"""Estimators made of others, as expressions over the outputs of their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from windtunnel.assemble.conversions import Conversions
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, MethodOutput, Step, steps_of
from windtunnel.pipeline.graph import build_graph
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.translators.conversions import Composite, Part, Predictor


def all_steps(pipeline: Any) -> Iterator[Step]:
    """The steps of a fitted pipeline, those inside of its composites and translations among them."""
    return Composites(Conversions(torch.float64, exact=True)).steps(build_graph(pipeline))


class Composites:
    """Extends the graph by the estimators inside composites."""

    def __init__(self, conversions: Conversions) -> None:
        self._conversions = conversions
        self._expressions: dict[Any, Expression] = {}

    def then(self, step: Step, composite: Composite) -> Expression:
        """The estimator over the outputs of the parts."""
        name = f"{step.name}.{composite.name or type(composite.then).__name__}"
        return self._graph(composite.then, self.parts(step, composite), name)

    def parts(self, step: Step, composite: Composite) -> Expression:
        """The outputs of the parts of a composite, concatenated."""
        if not composite.parts:
            return step.inputs
        parts = tuple(self._part(step, part) for part in composite.parts)
        return Concatenated((*parts, step.inputs) if composite.passthrough else parts, None, step.inputs)

    def check(self, step: Step) -> None:
        """Raise if an estimator inside a composite has no translation, before any step of it is added."""
        conversion = self._conversions.of_step(step)
        if not isinstance(conversion, Composite):
            return
        inner = [self._part(step, part).inputs for part in conversion.parts if part.method != "transform"]
        if not isinstance(conversion.then, Predictor | Module):
            inner.append(self.then(step, conversion))
        try:
            for expression in inner:
                if isinstance(expression, Step):
                    self.check(expression)
        except UnsupportedEstimator as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) is made of others, and needs them all: {error}"
            ) from error

    def steps(self, expression: Expression) -> Iterator[Step]:
        """The steps of an expression, with those inside of composites, and those that translations keep on the host."""
        for step in steps_of(expression):
            yield step
            conversion = self._conversions.find(step)
            if isinstance(conversion, TranslatedPipeline):
                yield from (host.within(step.name).step for host in conversion.hosts)
            elif isinstance(conversion, Composite):
                for composite in (conversion, *conversion.methods.values()):
                    estimator = not isinstance(composite.then, Predictor | Module)
                    inner = self.then(step, composite) if estimator else self.parts(step, composite)
                    yield from (other for other in self.steps(inner) if other is not step)

    def _part(self, step: Step, part: Part) -> MethodOutput:
        columns, inputs = part.columns, step.inputs
        if columns is not None:
            positions = tuple(map(int, columns))
            inputs = self._expressions.setdefault((inputs, positions), Columns(inputs, positions))
        if part.after:
            # An estimator that is named again has the same earlier parts after the same columns.
            key = (inputs, id(part.estimator), len(part.after))
            if key not in self._expressions:
                earlier = (self._part(step, other) for other in part.after)
                self._expressions[key] = Concatenated((inputs, *earlier), None, inputs)
            inputs = self._expressions[key]
        inner = self._graph(part.estimator, inputs, f"{step.name}.{part.name}")
        output_columns = part.output_columns
        return MethodOutput(inner, part.method, None if output_columns is None else tuple(map(int, output_columns)))

    def _graph(self, estimator: Any, inputs: Expression, name: str) -> Expression:
        """The DAG of an estimator inside a composite; cached, as the estimator may be named again."""
        key = (inputs, id(estimator))
        if key not in self._expressions:
            self._expressions[key] = build_graph(estimator, inputs, name)
        return self._expressions[key]
