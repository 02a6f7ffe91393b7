"""Predictors: the raw scores that they compute, as an output of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from windtunnel.assemble.context import Context
from windtunnel.assemble.edge_cases.imputed_thresholds import align_imputed
from windtunnel.assemble.edge_cases.rounded_thresholds import shift_rounded
from windtunnel.assemble.edge_cases.sparsity import gives_sparse, stores_zeros
from windtunnel.assemble.graph_column import GraphColumn, Place, PlacedModule, roundings_of
from windtunnel.assemble.inner_translations import InnerTranslations
from windtunnel.assemble.shared_loss import with_loss_of
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.columns.zero_as_missing import ZeroAsMissing
from windtunnel.modules.outputs.inverse_links import unlinked
from windtunnel.modules.tables.category_table import Identity
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.pipeline.expressions import Concatenated, Expression, MethodOutput, Raw, Step
from windtunnel.program.head import METHODS
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.translators.conversions import Composite, InputColumns, Predictor, Selection


@dataclass(frozen=True)
class ScoredPredictor:
    """A predictor whose raw scores are an output of the program."""

    slot: int  # the slot of the scores
    count: int  # the number of scores
    inputs: list[Place]  # the columns that the scores are made of
    predictor: Predictor
    classes: Any
    step: Step
    composite_methods: Mapping[str, tuple[Step, Composite]] = field(default_factory=dict)
    """Methods that composites around the predictor replace: name -> the composite's step, and the method."""
    translated_methods: Mapping[str, PlacedModule] = field(default_factory=dict)
    """Of a translation inside of another estimator: the methods whose output a step of its program computes."""

    @property
    def places(self) -> list[Place]:
        """The place of each score."""
        return [(self.slot, column) for column in range(self.count)]

    @property
    def method_modules(self) -> dict[str, PlacedModule]:
        """The modules of methods that do not follow from link and scores; those of composites are not among them."""
        predictor, places = self.predictor, self.places
        of_columns = {name: PlacedModule(module, self.inputs) for name, module in predictor.column_methods.items()}
        of_scores = {name: PlacedModule(module, places) for name, module in predictor.methods.items()}
        return {**of_columns, **of_scores, **self.translated_methods}


class Predictors:
    """Adds the steps that compute raw scores."""

    def __init__(self, context: Context, inner_translations: InnerTranslations) -> None:
        self._context = context
        self._inner_translations = inner_translations
        self._builder = context.builder
        self._scored: dict[Step, ScoredPredictor] = {}

    def final(self, expression: Expression) -> ScoredPredictor | None:
        """The predictor that a pipeline ends in; None if it ends in a transformer."""
        if not isinstance(expression, Step):
            return None
        predicts = hasattr(expression.estimator, "predict")
        # A step with neither method is rejected here, not kept on the host.
        if not predicts and hasattr(expression.estimator, "transform"):
            return None
        match self._context.conversions.of_step(expression):
            case Composite(then=Module()) if predicts:
                return None
            case Predictor() | Composite() | TranslatedPipeline():
                return self.scored(expression)
            case Selection(then=then) if predicts and then is not None:
                return self.scored(expression)
        return None

    def scored(self, step: Step) -> ScoredPredictor:
        """The raw scores of a predictor, cached."""
        if step not in self._scored:
            self._context.composites.check(step)
            self._scored[step] = self._score(step)
        return self._scored[step]

    def aligned_module(
        self, step: Step, reads: InputColumns, module: Module, inputs: Expression
    ) -> tuple[Module, list[GraphColumn]]:
        """A module whose thresholds decide as the source does, and its input columns: numbers, codes, statistics."""
        columns = list(self._context.columns(inputs))
        if not reads.sparse_zeros:
            columns = self._zeros_as_missing(step, inputs, columns)
        for position, categories in reads.codes.items():
            closed = position in reads.closed_codes
            columns[position] = self._context.categories.codes(step, columns[position], categories, closed=closed)
            numbers = not categories or any(not isinstance(category, str) for category in categories)
            self._builder.encoder.needs_names |= reads.needs_names and numbers
        if reads.hashed is not None:
            columns = self._context.categories.statistics(step, reads.hashed, columns)
        if isinstance(module, TreeWalk):
            module = align_imputed(module, [column.imputed for column in columns])
            module = shift_rounded(module, roundings_of(columns), self._builder.dtype)
        return module, columns

    def _score(self, step: Step) -> ScoredPredictor:
        conversion = self._context.conversions.of_step(step)
        if isinstance(conversion, TranslatedPipeline):
            return self._score_translation(step, conversion)
        if isinstance(conversion, Selection) and conversion.then is not None:
            # The inner predictor reads the output of the step, which is the selection.
            predictor = Step(step.name, step.estimator, step)
            transform = {"transform": (predictor, Composite((), Identity()))}
            return self._score_inner(predictor, Composite((), conversion.then), transform)
        if not isinstance(conversion, Composite):
            return self._score_predictor(step, conversion, step.inputs, {})
        methods = {method: (step, composite) for method, composite in conversion.methods.items()}
        if isinstance(conversion.then, Predictor | Module):
            parts = self._context.composites.parts(step, conversion)
            then = self._then_of(conversion, parts)
            scored = self._score_predictor(step, then, parts, methods)
            scored = self._with_shared_loss(conversion, parts, scored)
        else:
            scored = self._score_inner(step, conversion, methods)
        self._add_rejections(step, conversion)
        return scored

    def _with_shared_loss(self, composite: Composite, parts: Expression, scored: ScoredPredictor) -> ScoredPredictor:
        """The scores on the scale of the loss that all parts share; the parts are scored by now."""
        if not composite.shared_loss or scored.predictor is composite.then_of_squares:
            return scored
        outputs = parts.parts if isinstance(parts, Concatenated) else ()
        steps = [part.inputs for part in outputs if isinstance(part, MethodOutput)]
        predictors = [self._scored[step].predictor for step in steps if isinstance(step, Step) and step in self._scored]
        if not predictors or len(predictors) < len(steps):
            return scored
        predictor = with_loss_of(predictors, composite)
        if predictor.link == scored.predictor.link:
            return replace(scored, predictor=predictor)
        places = self._builder.run(scored.step, unlinked(predictor.link, self._builder.dtype), scored.places)
        return replace(scored, predictor=predictor, slot=places[0][0])

    def _then_of(self, composite: Composite, parts: Expression) -> Any:
        """What reads the outputs of the parts."""
        if composite.then_of_squares is None or not isinstance(parts, Concatenated):
            return composite.then
        scored = [self.final(part.inputs) for part in parts.parts if isinstance(part, MethodOutput)]
        losses = {each and (each.predictor.loss, each.predictor.link) for each in scored}
        return composite.then_of_squares if losses == {("squared", "identity")} else composite.then

    def _score_predictor(
        self, step: Step, predictor: Any, inputs: Expression, methods: Mapping[str, tuple[Step, Composite]]
    ) -> ScoredPredictor:
        """The scores of a converted predictor over the columns of ``inputs``."""
        if not isinstance(predictor, Predictor):
            raise UnsupportedEstimator(f"step {step.name!r} ({step.estimator_name}) is no predictor.")
        scores, columns = self.aligned_module(step, predictor.reads, predictor.scores, inputs)
        places = self._builder.places(step.name, columns)
        probes = inputs is step.inputs and not predictor.reads.has_categories
        rejects = self._builder.rejections(step.estimator, len(columns)) if probes else ()
        slot = self._builder.add(step.name, step.estimator_name, scores, places, rejects)
        count = self._builder.width(scores, len(columns))
        classes = _classes(step.estimator, predictor.classes, None)
        return ScoredPredictor(slot, count, places, predictor, classes, step, methods)

    def _score_translation(self, step: Step, net: TranslatedPipeline) -> ScoredPredictor:
        """The scores of a translation inside of another estimator."""
        inner = self._inner_translations.add(step, net, self._context.columns(step.inputs))
        head = net.head
        predictor = Predictor(
            Identity(),  # the scores are in the program by now
            link=head.link,
            loss=head.loss,
            link_options=head.link_options,
            loss_options=head.loss_options,
            flat=head.flat,
            decision_scale=head.decision_scale,
            dtypes=head.dtypes,
            failing=[method for method in METHODS if method not in head.methods],
        )
        return ScoredPredictor(
            inner.slot, inner.count, [], predictor, head.classes, step, translated_methods=inner.methods
        )

    def _score_inner(
        self, step: Step, composite: Composite, methods: Mapping[str, tuple[Step, Composite]]
    ) -> ScoredPredictor:
        """The scores of the estimator after the parts; without parts it keeps its own classes."""
        inner = self._context.composites.then(step, composite)
        if not isinstance(inner, Step):
            raise UnsupportedEstimator(f"step {step.name!r} ends in {type(composite.then).__name__}, no predictor.")
        scored = self.scored(inner)
        classes = _classes(step.estimator, None, scored.classes) if composite.parts else scored.classes
        return replace(scored, classes=classes, step=step, composite_methods={**scored.composite_methods, **methods})

    def _add_rejections(self, step: Step, composite: Composite) -> None:
        """Reject what the composite rejects, whatever its parts accept, in the columns that they read as numbers."""
        columns = self._context.columns(step.inputs)
        if any(column.number is None for column in columns):
            return
        if rejects := composite.rejects or self._builder.rejections(step.estimator, len(columns)):
            # By now the parts have added the raw columns that they read; host steps reject by themselves.
            numbers, texts = self._builder.encoder.columns_by_kind()
            if read := [column for column in columns if column.raw is None or column.raw in numbers - texts]:
                places = self._builder.places(step.name, read)
                self._builder.add(step.name, step.estimator_name, Identity(), places, rejects)

    def _zeros_as_missing(self, step: Step, inputs: Expression, columns: list[GraphColumn]) -> list[GraphColumn]:
        """Make zeros missing if the source reads a sparse matrix, which raw rows may be or not."""
        if storing := stores_zeros(inputs):
            raise UnsupportedEstimator(
                f"step {step.name!r} ({step.estimator_name}) reads the sparse matrix of step {storing!r}, "
                "which may store some zeros and leave out others, and takes only the latter for missing values; fit "
                "the pipeline again with dense columns (sparse=False, sparse_output=False, sparse_threshold=0, a step "
                "that calls toarray), or HashingVectorizer(alternate_sign=False)"
            )
        if gives_sparse(inputs):
            return self._builder.module(step.name, "", ZeroAsMissing(), columns)
        if gives_sparse(inputs, raw=True):
            # XGBoost alone takes what a matrix leaves out for missing, and makes a table of sparse columns dense. Steps
            # before it may drop zeros that a matrix stores, and make a matrix of such a table.
            alone = step is self._context.graph and isinstance(inputs, Raw)
            self._builder.encoder.unstored = "missing" if alone else "rejected"
            self._builder.encoder.rejects_sparse_columns |= not alone
        return columns


def _classes(estimator: Any, classes: Any, default: Any) -> Any:
    """The labels of a predictor: an array, a list of arrays for several targets, or None."""
    classes = getattr(estimator, "classes_", None) if classes is None else classes
    if classes is None or len(classes) == 0:  # CatBoost's regressors have an empty list
        return default
    return [np.asarray(labels) for labels in classes] if isinstance(classes, list | tuple) else np.asarray(classes)
