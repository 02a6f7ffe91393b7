"""Predictors: the raw scores that they compute, as an answer of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.assemble.imputed_thresholds import settle
from windtunnel.assemble.rounded_thresholds import cleared
from windtunnel.assemble.shared_loss import with_loss_of
from windtunnel.assemble.sparsity import gives_sparse, holds_zeros
from windtunnel.assemble.wires import Place, Wire
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.zero_as_missing import ZeroAsMissing
from windtunnel.modules.outputs.inverse_links import unlinked
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.pipeline.graph import Concatenated, Expression, MethodOutput, Raw, Step
from windtunnel.translators.registry import Composite, Predictor, Selection, Transformer

if TYPE_CHECKING:
    from windtunnel.assemble.assembly import Assembly


@dataclass(frozen=True)
class Scored:
    """A predictor whose raw scores are an answer of the program.

    Attributes
    ----------
    slot : int
        Where the scores stand.
    columns : int
        How many there are.
    given : list of Place
        The columns that the scores are made of.
    predictor : Predictor
    classes : array, list of arrays or None
    step : Step
    own : dict
        Methods that composites around the predictor answer themselves: name -> the composite's step, and how.
    """

    slot: int
    columns: int
    given: list[Place]
    predictor: Predictor
    classes: Any
    step: Step
    own: Mapping[str, tuple[Step, Composite]] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """Where the scores stand, column by column."""
        return [(self.slot, column) for column in range(self.columns)]


class Predictors:
    """Puts together the steps that compute raw scores.

    Parameters
    ----------
    assembly : Assembly
    """

    def __init__(self, assembly: Assembly) -> None:
        self._of = assembly
        self._scores: dict[Step, Scored] = {}

    def final(self, expression: Expression) -> Scored | None:
        """The predictor that a pipeline ends in; None where it ends in a transformer."""
        if not isinstance(expression, Step):
            return None
        if not hasattr(expression.estimator, "predict"):
            # A step without methods of its own is rejected here, not kept on the host.
            reading = self._of.readings.of(expression) if not hasattr(expression.estimator, "transform") else None
            return self.scored(expression) if isinstance(reading, Predictor | Composite) else None
        reading = self._of.readings.of(expression)
        if isinstance(reading, Predictor) or (isinstance(reading, Composite) and not isinstance(reading.then, Module)):
            return self.scored(expression)
        if isinstance(reading, Selection) and reading.then is not None:
            return self.scored(expression)
        return None

    def scored(self, step: Step) -> Scored:
        """The raw scores of a predictor, worked out once."""
        if step not in self._scores:
            self._of.composites.check(step)
            self._scores[step] = self._score(step)
        return self._scores[step]

    def as_read(
        self, step: Step, reading: Predictor | Transformer, module: Module, given: Expression
    ) -> tuple[Module, list[Wire]]:
        """The columns as a step reads them, and a module of trees that decides on them as the source does."""
        wires = list(self._of.wires(given))
        if not reading.sparse_zeros:
            wires = self._zeros_missing(step, given, wires)
        for column, categories in reading.codes.items():
            wires[column] = self._of.categories.codes(
                step, wires[column], categories, closed=column in reading.closed_codes
            )
            numbers = not any(isinstance(one, str) for one in categories)
            self._of.encoder.needs_names |= reading.needs_names and numbers
        if reading.hashed is not None:
            wires = self._of.categories.statistics(step, reading.hashed, wires)
        if isinstance(module, TreeWalk):
            module = settle(module, [wire.filled for wire in wires])
            computed = [column for column, wire in enumerate(wires) if wire.raw is None]
            module = cleared(module, computed, self._of.dtype)
        return module, wires

    def _score(self, step: Step) -> Scored:
        reading, given = self._of.readings.of(step), step.inputs
        if isinstance(reading, Selection) and reading.then is not None:
            # What predicts reads the answer of the step, which is the selection.
            behind = Step(step.name, step.estimator, step)
            own = {"transform": (behind, Composite((), Identity()))}
            return self._score_then(behind, Composite((), reading.then), own)
        if isinstance(reading, Composite):
            scored = self._of_parts(step, reading)
            self._guard(step, reading)
            return scored
        return self._predicted(step, reading, given, {})

    def _of_parts(self, step: Step, composite: Composite) -> Scored:
        own = {method: (step, answer) for method, answer in composite.methods.items()}
        if not isinstance(composite.then, Predictor | Module):
            return self._score_then(step, composite, own)
        given = self._of.composites.parts(step, composite)
        return self._with_loss(composite, given, self._predicted(step, composite.then, given, own))

    def _with_loss(self, composite: Composite, given: Expression, scored: Scored) -> Scored:
        """The scores as the loss takes them that the parts, which are scored by now, share."""
        steps = (
            [part.inputs for part in given.parts if isinstance(part, MethodOutput)]
            if isinstance(given, Concatenated)
            else []
        )
        parts = [self._scores[one].predictor for one in steps if isinstance(one, Step) and one in self._scores]
        if not composite.shared_loss or not parts or len(parts) < len(steps):
            return scored
        predictor = with_loss_of(parts, composite)
        if predictor.link == scored.predictor.link:
            return replace(scored, predictor=predictor)
        places = self._of.draft.run(scored.step, unlinked(predictor.link, self._of.dtype), scored.places)
        return replace(scored, predictor=predictor, slot=places[0][0])

    def _predicted(
        self, step: Step, reading: Any, given: Expression, own: Mapping[str, tuple[Step, Composite]]
    ) -> Scored:
        """The scores of what a predictor's reader made, over the columns of ``given``."""
        if not isinstance(reading, Predictor):
            raise UnsupportedEstimator(f"step {step.name!r} ({type(step.estimator).__name__}) is no predictor.")
        scores, wires = self.as_read(step, reading, reading.scores, given)
        places = self._of.draft.places(step.name, wires)
        asks = given is step.inputs and not (reading.codes or reading.hashed)
        rejects = self._of.draft.rejections(step.estimator, len(wires)) if asks else ()
        slot = self._of.draft.add(step.name, type(step.estimator).__name__, scores, places, rejects)
        columns = self._of.draft.width(scores, len(wires))
        return Scored(slot, columns, places, reading, classes_of(step.estimator, reading.classes, None), step, own)

    def _score_then(self, step: Step, composite: Composite, own: Mapping[str, tuple[Step, Composite]]) -> Scored:
        """The scores of the estimator behind the parts; one that is only wrapped keeps its own classes."""
        inner = self._of.composites.then(step, composite)
        if not isinstance(inner, Step):
            raise UnsupportedEstimator(f"step {step.name!r} ends in {type(composite.then).__name__}, no predictor.")
        scored = self.scored(inner)
        classes = classes_of(step.estimator, None, scored.classes) if composite.parts else scored.classes
        return replace(scored, classes=classes, step=step, own={**scored.own, **own})

    def _guard(self, step: Step, composite: Composite) -> None:
        """Reject numbers that the composite rejects, whatever its parts take, in what they read as numbers."""
        wires = self._of.wires(step.inputs)
        if any(wire.number is None for wire in wires):
            return
        if rejects := composite.rejects or self._of.draft.rejections(step.estimator, len(wires)):
            # By now the parts have told which raw columns they read, and how; the host's own code rejects by itself.
            numbers, texts = self._of.draft.encoder.columns_by_kind()
            if read := [one for one in wires if one.raw is None or one.raw in numbers - texts]:
                places = self._of.draft.places(step.name, read)
                self._of.draft.add(step.name, type(step.estimator).__name__, Identity(), places, rejects)

    def _zeros_missing(self, step: Step, given: Expression, wires: list[Wire]) -> list[Wire]:
        """Make zeros missing where the source's own rows are sparse; reject sparse rows where that depends on them."""
        if splines := holds_zeros(given):
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) reads the sparse matrix of step {splines!r}, "
                "which holds some zeros and leaves out others, and takes only the latter for missing values; fit the "
                "pipeline again with sparse_output=False"
            )
        if gives_sparse(given):
            return self._of.draft.module(step.name, "", ZeroAsMissing(), wires)
        if gives_sparse(given, raw=True):
            self._of.draft.encoder.rejects_sparse = True
            # XGBoost alone makes a table of sparse columns dense; what stands before or around it, a sparse matrix.
            alone = step is self._of.graph and isinstance(given, Raw)
            self._of.draft.encoder.rejects_sparse_columns |= not alone
        return wires


def classes_of(estimator: Any, given: Any, otherwise: Any) -> Any:
    """The labels of a predictor: an array, a list of arrays for several targets, or None."""
    classes = getattr(estimator, "classes_", None) if given is None else given
    if classes is None or len(classes) == 0:  # CatBoost's regressors have an empty list
        return otherwise
    return [np.asarray(one) for one in classes] if isinstance(classes, list | tuple) else np.asarray(classes)
