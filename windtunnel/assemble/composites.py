"""Estimators that are made of others, as expressions over the answers of their parts."""

from __future__ import annotations

from typing import Any

from windtunnel.assemble.conversions import Readings
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.pipeline.graph import Columns, Concatenated, Expression, MethodOutput, Step, build_graph
from windtunnel.translators.registry import Composite, Part, Predictor


class Composites:
    """Extends the graph by the insides of composites.

    Parameters
    ----------
    readings : Readings
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._inner: dict[Any, Expression] = {}

    def then(self, step: Step, composite: Composite) -> Expression:
        """The estimator that reads the answers of the parts."""
        name = f"{step.name}.{composite.name or type(composite.then).__name__}"
        return self._walk(composite.then, self.parts(step, composite), name)

    def parts(self, step: Step, composite: Composite) -> Expression:
        """What the parts of a composite answer, side by side."""
        if not composite.parts:
            return step.inputs
        parts = tuple(self._part(step, part) for part in composite.parts)
        return Concatenated((*parts, step.inputs) if composite.passthrough else parts, None, step.inputs)

    def check(self, step: Step) -> None:
        """Raise where something inside a composite has no translation, before anything of it is put together."""
        reading = self._readings.of(step)
        if not isinstance(reading, Composite):
            return
        inner = [self._part(step, part).inputs for part in reading.parts if part.method != "transform"]
        if not isinstance(reading.then, Predictor | Module):
            inner.append(self.then(step, reading))
        try:
            for one in inner:
                if isinstance(one, Step):
                    self.check(one)
        except UnsupportedEstimator as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) is made of others, and needs them all: {error}"
            ) from error

    def _part(self, step: Step, part: Part) -> MethodOutput:
        columns, given = part.columns, step.inputs
        if columns is not None:
            positions = tuple(map(int, columns))
            given = self._inner.setdefault((given, positions), Columns(given, positions))
        if part.after:
            # The same parts come after the same columns whenever this estimator is named.
            key = (given, id(part.estimator), len(part.after))
            if key not in self._inner:
                self._inner[key] = Concatenated((given, *(self._part(step, one) for one in part.after)), None, given)
            given = self._inner[key]
        inner = self._walk(part.estimator, given, f"{step.name}.{part.name}")
        return MethodOutput(
            inner, part.method, None if part.output_columns is None else tuple(map(int, part.output_columns))
        )

    def _walk(self, estimator: Any, given: Expression, name: str) -> Expression:
        """The DAG of an estimator inside a composite; of one that is named again, the same."""
        key = (given, id(estimator))
        if key not in self._inner:
            self._inner[key] = build_graph(estimator, given, name)
        return self._inner[key]
