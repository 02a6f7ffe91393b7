"""scikit-learn's estimators of several targets, independent or in a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.outputs.method_outputs import CastColumns
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.conversions import Composite, Part, Predictor, member_parts
from windtunnel.translators.registry import translates


@translates(MultiOutputRegressor, trainable="as its parts")
def multi_output_regressor(fitted: MultiOutputRegressor) -> Composite:
    """The predictions of each of ``estimators_``."""
    return Composite(member_parts(fitted, "predict"), Predictor(Identity(), flat=False), shared_loss="loss")


@translates(MultiOutputClassifier, trainable="as its parts", notes="targets of classes are tuned one by one")
def multi_output_classifier(fitted: MultiOutputClassifier) -> Composite:
    """The label that each of ``estimators_`` gives, and its probabilities."""
    members = fitted.estimators_
    methods = {"predict": Composite(member_parts(fitted, "position"), CastColumns(torch.zeros((), dtype=torch.int64)))}
    if all(hasattr(member, "predict_proba") for member in members):
        methods["predict_proba"] = Composite(member_parts(fitted, "predict_proba"), Identity())
    then = Predictor(Identity(), loss="probabilities", classes=[member.classes_ for member in members])
    scores = [Part(part.name, part.estimator, _gradient_method(part.estimator)) for part in member_parts(fitted, "")]
    return Composite(scores, then, methods=methods)


@translates(RegressorChain, trainable="as its parts", notes="every order")
def regressor_chain(fitted: RegressorChain) -> Composite:
    """``estimators_``, each over the columns and what those before it predict; targets by ``order_``."""
    links = _links(fitted, "predict", None)
    outputs = _outputs(fitted, links, "predict")
    return Composite(outputs, Predictor(Identity(), flat=False), rejects=("nan", "inf"), shared_loss="loss")


@translates(
    ClassifierChain,
    trainable="as its parts",
    notes="every order and chain_method; probabilities and decisions of targets of two classes",
)
def classifier_chain(fitted: ClassifierChain) -> Composite:
    """``estimators_``, each over the columns and what ``chain_method_`` of those before it gives."""
    members, method = fitted.estimators_, getattr(fitted, "chain_method_", "predict")
    binary = all(len(member.classes_) == 2 for member in members)
    if not binary and method != "predict":
        raise UnsupportedEstimator(
            f"ClassifierChain(chain_method={method!r}) was fitted on targets of "
            f"{[len(member.classes_) for member in members]} classes, where the source raises; it takes two for each"
        )
    links = _links(fitted, method, [1] if "proba" in method else None)
    methods = {
        "predict": Composite(_outputs(fitted, links, "position"), CastColumns(torch.zeros((), dtype=torch.int64)))
    }
    if binary and all(hasattr(member, "predict_proba") for member in members):
        methods["predict_proba"] = Composite(_outputs(fitted, links, "predict_proba", [1]), Identity())
    if binary and all(hasattr(member, "decision_function") for member in members):
        methods["decision_function"] = Composite(_outputs(fitted, links, "decision_function"), Identity())
    # The source gives labels as floating-point numbers, in the order of the targets.
    classes = [np.asarray(members[link].classes_, np.float64) for link in np.argsort(fitted.order_)]
    scores = _outputs(fitted, links, _gradient_method(members[0]))
    then = Predictor(Identity(), loss="probabilities", classes=classes)
    return Composite(scores, then, methods=methods, rejects=("nan", "inf"))


def _gradient_method(estimator: Any) -> str:
    """The method whose output carries the gradient."""
    named = (name for name in ("predict_proba", "decision_function") if hasattr(estimator, name))
    return next(named, "votes")


def _links(fitted: Any, method: str, take: list[int] | None) -> list[Part]:
    """One part per link: its output, which later links read too."""
    links: list[Part] = []
    for index, member in enumerate(fitted.estimators_):
        links.append(Part(f"estimators_.{index}", member, method, output_columns=take, after=tuple(links)))
    return links


def _outputs(fitted: Any, links: Sequence[Part], method: str, take: list[int] | None = None) -> list[Part]:
    """The outputs of the chain, in the order of the targets."""
    parts = [Part(link.name, link.estimator, method, output_columns=take, after=link.after) for link in links]
    return [parts[link] for link in np.argsort(fitted.order_)]
