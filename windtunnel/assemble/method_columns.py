"""The outputs of methods of inner estimators, as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from windtunnel.assemble.context import Context
from windtunnel.assemble.conversions import predicts
from windtunnel.assemble.graph_column import GraphColumn, Place, column_at
from windtunnel.assemble.predictors import Predictors, ScoredPredictor
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module, Rounding
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.ensembles.label_columns import LabelValues, OneHotLabel
from windtunnel.modules.outputs.label_rules import LabelIndex, LabelThreshold
from windtunnel.modules.outputs.method_outputs import LinkOutput
from windtunnel.pipeline.expressions import Expression, Step
from windtunnel.translators.conversions import Composite, Predictor


class MethodColumns:
    """Adds the steps after raw scores that give labels, probabilities and further methods."""

    def __init__(self, context: Context, predictors: Predictors) -> None:
        self._context = context
        self._builder = context.builder
        self._predictors = predictors

    def columns(self, expression: Expression, method: str) -> list[GraphColumn]:
        """The output of a method of an inner estimator, as columns."""
        conversion = self._context.conversions.of_step(expression) if isinstance(expression, Step) else None
        if method == "transform" and not predicts(conversion):
            return self._context.columns(expression)
        if not isinstance(expression, Step):
            raise UnsupportedEstimator(f"a part that gives {method} has to end in a predictor.")
        if isinstance(conversion, Composite) and method in conversion.methods:
            places = self._composite_method(expression, conversion.methods[method])
        elif isinstance(conversion, Predictor) and _reads_columns(conversion, method):
            module = conversion.column_methods[method]
            places = self._column_method(expression, module)
            return _with_rounding(module, places, [None] * len(places))
        else:
            scored = self._predictors.scored(expression)
            labels = method in ("predict", "position", "votes") and scored.classes is not None
            places = self._label(scored, method) if labels else self._method(scored, method)
            if method in scored.predictor.methods:
                return _columns_of_scores(scored, scored.predictor.methods[method], places)
        return [column_at(place) for place in places]

    def _composite_method(self, step: Step, composite: Composite) -> list[Place]:
        parts = self._context.columns(self._context.composites.parts(step, composite))
        return self._builder.method(step, composite.then, self._builder.places(step.name, parts))

    def _column_method(self, step: Step, module: Module) -> list[Place]:
        """The output of a method that reads the rows and no scores; the scores stay out of the program."""
        columns = self._context.columns(step.inputs)
        places = self._builder.places(step.name, columns)
        rejects = self._builder.rejections(step.estimator, len(columns))
        slot = self._builder.add(step.name, step.estimator_name, module, places, rejects)
        outputs = [(slot, column) for column in range(self._builder.width(module, len(columns)))]
        return self._builder.as_columns(step, outputs)

    def _method(self, scored: ScoredPredictor, method: str) -> list[Place]:
        """The output of a method that gives no label."""
        predictor, step, builder = scored.predictor, scored.step, self._builder
        if method == "scores":
            return scored.places
        if method in scored.composite_methods:
            return self._composite_method(*scored.composite_methods[method])
        if (method_module := scored.method_modules.get(method)) is not None:
            return builder.method(step, method_module.module, method_module.places)
        if method == "decision_function":
            return builder.run(step, [LinkOutput("identity", predictor.decision_scale)], scored.places)
        if method in ("predict", "predict_proba"):
            return builder.run(step, [LinkOutput(predictor.link, **predictor.link_options)], scored.places)
        if method == "predict_log_proba":
            return builder.run(
                step, [Elementwise(torch.zeros(3, dtype=torch.float64), "log")], self._method(scored, "predict_proba")
            )
        raise UnsupportedEstimator(f"step {step.name!r} ({step.estimator_name}) gives no {method}.")

    def _label(self, scored: ScoredPredictor, method: str) -> list[Place]:
        """The label of a classifier: as a number, its position, or a column per class."""
        step, classes, builder = scored.step, scored.classes, self._builder
        if isinstance(classes, list):
            raise UnsupportedEstimator(f"step {step.name!r} gives labels of several targets, and one is read.")
        if method == "predict" and classes.dtype.kind not in "biuf":
            raise UnsupportedEstimator(
                f"step {step.name!r} reads the labels of a classifier as numbers; they are {classes!r}."
            )
        if "predict" in scored.composite_methods:
            position = self._composite_method(*scored.composite_methods["predict"])
        elif (label_module := scored.method_modules.get("predict")) is not None:
            position = builder.method(step, label_module.module, label_module.places)
        else:
            # A single class is always chosen: no score is at least NaN.
            single = LabelThreshold(torch.tensor(math.nan, dtype=torch.float64))
            position = builder.method(step, single if len(classes) == 1 else LabelIndex(), scored.places)
        if method == "position" and self._context.conversions.exact:
            return position
        votes = builder.run(step, [OneHotLabel(len(classes))], [*position, *scored.places])
        if method == "votes":
            return votes
        values = np.arange(len(classes)) if method == "position" else classes
        return builder.run(step, [LabelValues(torch.from_numpy(values.astype(np.float64)))], votes)


def _columns_of_scores(scored: ScoredPredictor, module: Module, places: list[Place]) -> list[GraphColumn]:
    """The columns that a module makes of raw scores, with how far they may be from the source's."""
    inputs = [None] * len(scored.inputs)
    of_scores = [scored.predictor.scores.rounding(column, inputs) for column in range(scored.count)]
    return _with_rounding(module, places, of_scores)


def _with_rounding(module: Module, places: list[Place], inputs: Sequence[Rounding | None]) -> list[GraphColumn]:
    """The output columns of a module, with how far they may be from the source's."""
    return [replace(column_at(place), rounding=module.rounding(at, inputs)) for at, place in enumerate(places)]


def _reads_columns(predictor: Predictor, method: str) -> bool:
    return method in predictor.column_methods and not predictor.reads.codes and method != "predict"
