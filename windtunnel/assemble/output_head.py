"""The methods of a finished program, and its head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.assemble.context import Context
from windtunnel.assemble.graph_column import PlacedModule
from windtunnel.assemble.predictors import ScoredPredictor
from windtunnel.modules.base import Module
from windtunnel.modules.outputs.label_rules import LabelThreshold, ProbabilityThreshold
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.expressions import Expression, Step
from windtunnel.program.head import METHODS, Head
from windtunnel.program.program import ProgramStep, takes_of
from windtunnel.translators.conversions import CategoryEncoding, Composite, TokenCounts, Transformer


def predictor_methods(
    context: Context, pipeline: Any, scored: ScoredPredictor
) -> tuple[dict[str, ProgramStep], ScoredPredictor]:
    """A step for each method of the pipeline that link and scores do not give; the scores stay the last output."""
    builder = context.builder
    modules: dict[str, PlacedModule] = {}
    for method, (step, composite) in scored.composite_methods.items():
        if hasattr(pipeline, method) and (rule := _rule_on_scores(context, step, composite, scored)) is not None:
            modules[method] = PlacedModule(rule, scored.places)
        elif hasattr(pipeline, method):
            parts = context.columns(context.composites.parts(step, composite))
            modules[method] = PlacedModule(composite.then, builder.places(step.name, parts))
    if scored.slot != builder.last_slot:
        slot = builder.add(scored.step.name, scored.step.estimator_name, Identity(), scored.places)
        scored = replace(scored, slot=slot)
    trained = {id(parameter) for step in builder.steps for parameter in step.parameters()}
    for method, method_module in scored.method_modules.items():
        if hasattr(pipeline, method):
            # A loss of the scores gives no gradient to parameters that the scores do not use.
            for parameter in method_module.module.parameters():
                parameter.requires_grad_(id(parameter) in trained)
            modules.setdefault(method, method_module)
    steps = {}
    for method, placed in modules.items():
        probes = placed.places is scored.inputs and not scored.predictor.reads.codes
        rejects = builder.rejections(scored.step.estimator, len(placed.places), method) if probes else placed.rejects
        steps[method] = ProgramStep(placed.module, takes_of(placed.places), scored.step.name, rejects)
    return steps, scored


def _rule_on_scores(context: Context, step: Step, method: Composite, scored: ScoredPredictor) -> Module | None:
    """The threshold of a ``FixedThresholdClassifier`` or ``TunedThresholdClassifierCV`` as a function of raw scores.

    None for any other method, and if what the threshold reads has a step of its own.
    """
    rule, predictor = method.then, scored.predictor
    if not isinstance(rule, LabelThreshold) or len(method.parts) != 1:
        return None
    (part,), conversion = method.parts, context.conversions.of_step(step)
    own_steps = {**scored.composite_methods, **scored.method_modules}
    if part.estimator is not conversion.then or part.method in own_steps:
        return None
    if part.method == "predict_proba" and part.output_columns is not None:
        (positive,) = part.output_columns
        return ProbabilityThreshold(rule.bound, predictor.link, **predictor.link_options, positive=positive)
    return rule if part.method == "decision_function" and predictor.decision_scale == 1 else None


def transformer_methods(context: Context, expression: Expression) -> dict[str, ProgramStep]:
    """A step for each method that the final transformer has besides ``transform``."""
    conversion = context.conversions.get(expression)
    if not isinstance(expression, Step) or not isinstance(conversion, Transformer) or not conversion.column_methods:
        return {}
    name, places = expression.name, context.builder.places(expression.name, context.columns(expression.inputs))
    steps = {}
    for method, module in conversion.column_methods.items():
        module.requires_grad_(False)
        rejects = context.builder.rejections(expression.estimator, len(places), method)
        steps[method] = ProgramStep(module, takes_of(places), name, rejects)
    return steps


def output_dtypes(context: Context, expression: Expression) -> dict[str, str]:
    """The dtypes of the final transformer's outputs; empty for ``translate``, as training moves whole numbers."""
    conversion = context.conversions.get(expression)
    if not context.conversions.exact:
        return {}
    if isinstance(conversion, Transformer):
        return dict(conversion.dtypes)
    if isinstance(conversion, CategoryEncoding | TokenCounts) and conversion.dtype != "float64":
        return {"transform": conversion.dtype}
    return {}


def predictor_head(pipeline: Any, scored: ScoredPredictor, steps: Mapping[str, ProgramStep]) -> Head:
    """The task, link, loss and methods of a pipeline that ends in a predictor."""
    predictor, classes = scored.predictor, scored.classes
    several = isinstance(classes, list)
    task = "regression" if classes is None else "binary" if not several and len(classes) <= 2 else "multiclass"
    linked = {"predict", "decision_function", "predict_proba", "predict_log_proba"}
    if several and predictor.link == "identity":
        # A chain has methods which raise if a target has more than two classes.
        with_steps = steps.keys() | ({"predict_log_proba"} if "predict_proba" in steps else set())
        linked = {"predict"} | linked & with_steps
    linked -= {*predictor.failing}
    return Head(
        task=task,
        link=predictor.link,
        loss=predictor.loss,
        link_options=predictor.link_options,
        loss_options=predictor.loss_options,
        classes=classes,
        methods=tuple(method for method in METHODS if hasattr(pipeline, method) and method in linked | steps.keys()),
        flat=predictor.flat,
        decision_scale=predictor.decision_scale,
        dtypes=dict(predictor.dtypes),
    )
