"""What methods of estimators inside others give, as columns."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from windtunnel.assemble.conversions import predicts
from windtunnel.assemble.predictors import Scored
from windtunnel.assemble.wires import Place, Wire, itself
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.label_columns import LabelValues, Logarithm, OneHotLabel
from windtunnel.modules.outputs.label_rules import LabelIndex, LabelThreshold
from windtunnel.modules.outputs.method_outputs import LinkOutput
from windtunnel.pipeline.graph import Expression, Step
from windtunnel.translators.registry import Composite, Predictor

if TYPE_CHECKING:
    from windtunnel.assemble.assembly import Assembly


class Methods:
    """Puts together the steps behind raw scores that give labels, probabilities and the like.

    Parameters
    ----------
    assembly : Assembly
    """

    def __init__(self, assembly: Assembly) -> None:
        self._of = assembly

    def answer(self, expression: Expression, method: str) -> list[Wire]:
        """What a method of an inner estimator gives, as columns."""
        reading = self._of.readings.of(expression) if isinstance(expression, Step) else None
        if method == "transform" and not predicts(reading):
            return self._of.wires(expression)
        if not isinstance(expression, Step):
            raise UnsupportedEstimator(f"a part that gives {method} has to end in a predictor.")
        if isinstance(reading, Composite) and method in reading.methods:
            places = self._own(expression, reading.methods[method])
        elif (
            isinstance(reading, Predictor)
            and method in reading.column_methods
            and not reading.codes
            and method != "predict"
        ):
            places = self._other(expression, reading.column_methods[method])
        elif method in ("predict", "position", "votes") and self._of.predictors.scored(expression).classes is not None:
            places = self._label(self._of.predictors.scored(expression), method)
        else:
            places = self._method(self._of.predictors.scored(expression), method)
        return [Wire(number=partial(itself, place)) for place in places]

    def _own(self, step: Step, answer: Composite) -> list[Place]:
        """What a composite answers by itself."""
        places = self._of.draft.places(step.name, self._of.wires(self._of.composites.parts(step, answer)))
        return self._of.draft.run(step, [answer.then, self._of.draft.as_columns()], places)

    def _other(self, step: Step, module: Module) -> list[Place]:
        """What a method gives that reads the rows and no scores: these are left out of the program."""
        wires = self._of.wires(step.inputs)
        places, rejects = self._of.draft.places(step.name, wires), self._of.draft.rejections(step.estimator, len(wires))
        slot = self._of.draft.add(step.name, type(step.estimator).__name__, module, places, rejects)
        places = [(slot, column) for column in range(self._of.draft.width(module, len(wires)))]
        return self._of.draft.run(step, [self._of.draft.as_columns()], places)

    def _method(self, scored: Scored, method: str) -> list[Place]:
        """What a method gives that is no label."""
        predictor, step = scored.predictor, scored.step
        if method == "scores":
            return scored.places
        if method in scored.own:
            return self._own(*scored.own[method])
        if method in predictor.methods:
            return self._of.draft.run(step, [predictor.methods[method], self._of.draft.as_columns()], scored.places)
        if method in predictor.column_methods:
            return self._of.draft.run(
                step, [predictor.column_methods[method], self._of.draft.as_columns()], scored.given
            )
        if method == "decision_function":
            return self._of.draft.run(step, [LinkOutput("identity", predictor.decision_scale)], scored.places)
        if method in ("predict", "predict_proba"):
            return self._of.draft.run(step, [LinkOutput(predictor.link, **predictor.link_options)], scored.places)
        if method == "predict_log_proba":
            return self._of.draft.run(step, [Logarithm()], self._method(scored, "predict_proba"))
        raise UnsupportedEstimator(f"step {step.name!r} ({type(step.estimator).__name__}) gives no {method}.")

    def _label(self, scored: Scored, method: str) -> list[Place]:
        """The label of a classifier: as a number, its position, or a column per class."""
        step, predictor, classes = scored.step, scored.predictor, scored.classes
        if isinstance(classes, list):
            raise UnsupportedEstimator(f"step {step.name!r} gives labels of several targets, and one is read.")
        if method == "predict" and classes.dtype.kind not in "biuf":
            raise UnsupportedEstimator(
                f"step {step.name!r} reads the labels of a classifier as numbers; they are {classes!r}."
            )
        if "predict" in scored.own:
            position = self._own(*scored.own["predict"])
        elif "predict" in predictor.column_methods:
            position = self._of.draft.run(
                step, [predictor.column_methods["predict"], self._of.draft.as_columns()], scored.given
            )
        else:
            # Of one class there is nothing to choose: no score is at least NaN.
            alone = LabelThreshold(torch.tensor(math.nan, dtype=torch.float64))
            positions = predictor.methods.get("predict", alone if len(classes) == 1 else LabelIndex())
            position = self._of.draft.run(step, [positions, self._of.draft.as_columns()], scored.places)
        if method == "position" and self._of.exact:
            return position
        votes = self._of.draft.run(step, [OneHotLabel(len(classes))], [*position, *scored.places])
        if method == "votes":
            return votes
        values = np.arange(len(classes)) if method == "position" else classes
        return self._of.draft.run(step, [LabelValues(torch.from_numpy(values.astype(np.float64)))], votes)
