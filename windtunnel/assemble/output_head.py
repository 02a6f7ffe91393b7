"""What a program answers in the end: its methods, and the head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from windtunnel.assemble.predictors import Scored
from windtunnel.assemble.wires import Place
from windtunnel.modules.base import Module
from windtunnel.modules.tables.category_table import Identity
from windtunnel.pipeline.graph import Expression, Step
from windtunnel.program.head import METHODS, Head
from windtunnel.program.program import ProgramStep, takes_of
from windtunnel.translators.registry import CategoryEncoding, TokenCounts, Transformer

if TYPE_CHECKING:
    from windtunnel.assemble.assembly import Assembly


def methods_of(assembly: Assembly, scored: Scored) -> tuple[dict[str, ProgramStep], Scored]:
    """A step for each method of the source that link and scores do not give; the scores stay the last answer."""
    wanted: dict[str, tuple[Module, list[Place]]] = {}
    for method, (step, answer) in scored.own.items():
        if hasattr(assembly.pipeline, method):
            wanted[method] = (
                answer.then,
                assembly.draft.places(step.name, assembly.wires(assembly.composites.parts(step, answer))),
            )
    if scored.slot != len(assembly.draft.steps) + 1:
        slot = assembly.draft.add(scored.step.name, type(scored.step.estimator).__name__, Identity(), scored.places)
        scored = replace(scored, slot=slot)
    trained = {id(one) for step in assembly.draft.steps for one in step.parameters()}
    for modules, places in ((scored.predictor.methods, scored.places), (scored.predictor.column_methods, scored.given)):
        for method, module in modules.items():
            if hasattr(assembly.pipeline, method):
                # What the scores do not pass through gets no gradient from a loss of the scores.
                for one in module.parameters():
                    one.requires_grad_(id(one) in trained)
                wanted.setdefault(method, (module, places))
    answers = {
        method: ProgramStep(
            module,
            takes_of(at),
            scored.step.name,
            _rejected_rows(assembly, scored, method) if at is scored.given else (),
        )
        for method, (module, at) in wanted.items()
    }
    return answers, scored


def methods_beside(assembly: Assembly, expression: Expression) -> dict[str, ProgramStep]:
    """A step for each method that the final transformer has beside ``transform``."""
    reading = assembly.readings.get(expression)
    if not isinstance(expression, Step) or not isinstance(reading, Transformer) or not reading.column_methods:
        return {}
    name, places = expression.name, assembly.draft.places(expression.name, assembly.wires(expression.inputs))
    takes = takes_of(places)
    for module in reading.column_methods.values():
        module.requires_grad_(False)
    return {
        method: ProgramStep(module, takes, name, assembly.draft.rejections(expression.estimator, len(places), method))
        for method, module in reading.column_methods.items()
    }


def dtypes_of(assembly: Assembly, expression: Expression) -> dict[str, str]:
    """The types of what the final transformer gives; where its tables may be trained, they are no whole numbers."""
    reading = assembly.readings.get(expression)
    if not assembly.exact:
        return {}
    if isinstance(reading, Transformer):
        return dict(reading.dtypes)
    if isinstance(reading, CategoryEncoding | TokenCounts) and reading.dtype != "float64":
        return {"transform": reading.dtype}
    return {}


def head_of(assembly: Assembly, scored: Scored, answers: Mapping[str, ProgramStep]) -> Head:
    """The task, its link and loss, and the methods that the source has."""
    predictor, classes = scored.predictor, scored.classes
    several = isinstance(classes, list)
    task = "regression" if classes is None else "binary" if not several and len(classes) <= 2 else "multiclass"
    plain = {"predict", "decision_function", "predict_proba", "predict_log_proba"}
    if several and predictor.link == "identity":
        # A chain says that it has methods which raise where a target has more than two classes.
        own = answers.keys() | ({"predict_log_proba"} if "predict_proba" in answers else set())
        plain = {"predict"} | plain & own
    return Head(
        task=task,
        link=predictor.link,
        loss=predictor.loss,
        link_options=predictor.link_options,
        loss_options=predictor.loss_options,
        classes=classes,
        methods=tuple(
            method
            for method in METHODS
            if hasattr(assembly.pipeline, method) and (method in plain or method in answers)
        ),
        flat=predictor.flat,
        decision_scale=predictor.decision_scale,
        dtypes=dict(predictor.dtypes),
    )


def _rejected_rows(assembly: Assembly, scored: Scored, method: str) -> tuple[str, ...]:
    """What a method of a predictor rejects in the columns that it reads past the scores."""
    if scored.predictor.codes:
        return ()
    return assembly.draft.rejections(scored.step.estimator, len(scored.given), method)
