"""scikit-learn's classifiers of several classes, or labels, made of classifiers of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier, is_regressor
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier, _ConstantPredictor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.ensembles.one_vs_rest import CodeScores, MemberProbabilities, MemberScores, OneVsOneVotes
from windtunnel.modules.outputs.label_rules import AboveThreshold, LastLabelIndex
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.conversions import Composite, Part, Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.scikit_learn_version import scikit_learn_before


@translates(
    OneVsRestClassifier,
    trainable="as its parts",
    notes="two or more classes, or several labels; classes_ of several labels are 0 and 1 for each",
)
def one_vs_rest(fitted: OneVsRestClassifier) -> Composite:
    """One score per estimator of ``estimators_``: decisions, else probabilities, or values of regressors."""
    members = fitted.estimators_
    labels = fitted.label_binarizer_.y_type_.startswith("multilabel")
    binary = not labels and len(members) == 1
    decides = all(hasattr(member, "decision_function") for member in members)
    bound = AboveThreshold(tensor(_threshold(members[0])))
    place, constant = _layout(members)
    pair = binary and not decides and not is_regressor(members[0])
    rules: dict[str, Module] = {}
    if labels or (binary and not pair and len(fitted.classes_) > 1):
        rules["predict"] = bound
    elif not binary and scikit_learn_before("1.9"):
        rules["predict"] = LastLabelIndex()
    then = Predictor(
        MemberScores(place, constant, pair=pair),
        link="identity",
        loss="logistic" if decides or labels or not hasattr(fitted, "predict_proba") else "probabilities",
        classes=[np.array([0, 1])] * len(members) if labels else None,
        methods=rules,
    )
    methods = {}
    if _has(fitted, "predict_proba"):
        shares = MemberScores(place, constant) if labels else MemberProbabilities(place, constant)
        methods["predict_proba"] = Composite(_parts(members, "predict_proba"), shares)
    if _has(fitted, "decision_function") and labels:
        methods["decision_function"] = Composite(_parts(members, "decision_function"), MemberScores(place, constant))
    return Composite(_parts(members, None), then, methods=methods)


@translates(OneVsOneClassifier, trainable="as its parts", notes="votes pass the gradient of what they were cast by")
def one_vs_one(fitted: OneVsOneClassifier) -> Composite:
    """Votes of ``estimators_``, one per pair of classes; sums of their confidences decide between equal ones."""
    members = fitted.estimators_
    others = sorted({type(member).__name__ for member in members if not is_classifier(member)})
    if others:
        raise UnsupportedEstimator(f"OneVsOneClassifier votes with {', '.join(others)}, no classifier of two classes")
    columns = fitted.pairwise_indices_ or [None] * len(members)
    votes = [
        Part(f"estimators_.{index}", member, "position", columns=at)
        for index, (member, at) in enumerate(zip(members, columns, strict=True))
    ]
    confidences = [
        _part(index, member, None, columns=at) for index, (member, at) in enumerate(zip(members, columns, strict=True))
    ]
    count = len(fitted.classes_)
    threshold = _threshold(members[0])
    methods = {"predict": AboveThreshold(tensor(threshold))} if count == 2 and threshold != 0 else {}
    loss = "logistic" if count == 2 else "softmax"
    return Composite([*votes, *confidences], Predictor(OneVsOneVotes(count), loss=loss, methods=methods))


@translates(OutputCodeClassifier, trainable="code book, and as its parts", notes="the nearest code")
def output_code(fitted: OutputCodeClassifier) -> Composite:
    """The row of ``code_book_`` that is nearest to the outputs of ``estimators_``."""
    members = fitted.estimators_
    if not members:
        raise UnsupportedEstimator("OutputCodeClassifier has no estimators; fit it with a larger code_size")
    code = tensor(fitted.code_book_)
    then = Predictor(CodeScores(code, *_layout(members)), loss="softmax" if len(code) > 1 else "squared")
    return Composite(_parts(members, None), then)


def _part(index: int, member: Any, method: str | None, columns: Any = None) -> Part:
    """The output of a member for its second class; ``method`` None takes the method that the source prefers."""
    if method is None and is_regressor(member):
        return Part(f"estimators_.{index}", member, "predict", columns)
    if method is None:
        method = "decision_function" if hasattr(member, "decision_function") else "predict_proba"
    return Part(
        f"estimators_.{index}", member, method, columns, output_columns=[1] if method == "predict_proba" else None
    )


def _parts(members: Sequence[Any], method: str | None) -> list[Part]:
    return [
        _part(index, member, method)
        for index, member in enumerate(members)
        if not isinstance(member, _ConstantPredictor)
    ]


def _layout(members: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The column of each member among the outputs, -1 for members fitted on a single label; and that label."""
    fixed = np.array([isinstance(member, _ConstantPredictor) for member in members])
    place = np.where(fixed, -1, np.cumsum(~fixed) - 1)
    constant = [float(member.y_[0]) if always else 0.0 for member, always in zip(members, fixed, strict=True)]
    return indices(place), tensor(constant)


def _threshold(member: Any) -> float:
    """The score above which a member predicts its second label, as in the source."""
    return 0.0 if hasattr(member, "decision_function") and is_classifier(member) else 0.5


def _has(fitted: Any, method: str) -> bool:
    """Whether all estimators have a method. Raises if only some have it, as the source checks the first alone."""
    lacking = sorted({type(member).__name__ for member in fitted.estimators_ if not hasattr(member, method)})
    if lacking and hasattr(fitted, method):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} says that it has {method}, and its estimators {', '.join(lacking)} have not"
        )
    return not lacking
