"""scikit-learn's AdaBoost and Bagging, over trees and over any other estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import ensemble, tree

from windtunnel.estimators.fitting import last_step
from windtunnel.modules.ensembles.ensemble import LabelVotes, MeanOfMembers, WeightedMedian
from windtunnel.modules.ensembles.init_scores import LastColumns
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.translators.arrays import indices, tensor
from windtunnel.translators.conversions import Composite, Part, Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE
from windtunnel.translators.trees.sklearn_trees import LOSSES, leaf_values, tree_ensemble

TREES = (tree.DecisionTreeClassifier, tree.DecisionTreeRegressor, tree.ExtraTreeClassifier, tree.ExtraTreeRegressor)


@translates(
    ensemble.AdaBoostClassifier,
    trainable=TRAINABLE,
    notes="any base estimator; votes of other estimators than trees have the gradient of their probabilities",
)
def ada_boost_classifier(fitted: ensemble.AdaBoostClassifier) -> Predictor | Composite:
    """Weighted votes of ``estimators_``: a member adds w to its label and -w / (K - 1) to the others, over sum w."""
    count, weights = len(fitted.classes_), np.asarray(fitted.estimator_weights_, np.float64)[: len(fitted.estimators_)]
    pairs = zip(fitted.estimators_, weights, strict=True)
    vote_values = np.stack([_vote_values(fitted.classes_, member, weight) for member, weight in pairs])
    divisor = float(fitted.estimator_weights_.sum()) * max(1, count - 1)
    options: dict[str, Any] = {"link": "sigmoid", "loss": "logistic"} if count == 2 else {"link": "softmax"}
    if count > 2:
        # Probabilities are a softmax of the decision over K - 1.
        options |= {"loss": "softmax", "decision_scale": float(count - 1)}
    if count == 1:
        options |= {"loss": "logistic", "methods": {"decision_function": LastColumns(0, [1])}}
    if all(type(member) in TREES for member in fitted.estimators_):
        trees = [member.tree_ for member in fitted.estimators_]
        votes = [
            table[leaf_values(member).argmax(axis=1)]
            for member, table in zip(fitted.estimators_, vote_values, strict=True)
        ]
        base = np.zeros(vote_values.shape[2])
        model = tree_ensemble(trees, votes, width=int(fitted.n_features_in_), base=base, divisor=divisor)
        return Predictor(HardTrees.of(model), **options)
    return Composite(_parts(fitted, "votes"), Predictor(LabelVotes(tensor(vote_values), divisor), **options))


def _vote_values(classes: NDArray[Any], member: Any, weight: float) -> NDArray[np.float64]:
    """The scores of a vote for each label of a member, ``[labels, K]``; for two classes the second less the first."""
    count = len(classes)
    same = np.asarray(member.classes_)[:, None] == classes
    if count == 1:
        return np.zeros((1, 1))
    values = np.where(same, weight, -1 / (count - 1) * weight)
    return 2 * values[:, 1:] if count == 2 else values


@translates(
    ensemble.AdaBoostRegressor,
    trainable=TRAINABLE,
    notes="any base estimator, whose loss fine-tuning takes; its weighted median",
)
def ada_boost_regressor(fitted: ensemble.AdaBoostRegressor) -> Composite:
    """The median of what ``estimators_`` predict, weighted by ``estimator_weights_``."""
    weights = np.asarray(fitted.estimator_weights_, np.float64)[: len(fitted.estimators_)]
    return Composite(_parts(fitted, "predict"), Predictor(WeightedMedian(tensor(weights))), shared_loss="loss")


@translates(
    ensemble.BaggingClassifier,
    trainable=TRAINABLE,
    notes="any base estimator; votes of members without probabilities have a gradient too",
)
def bagging_classifier(fitted: ensemble.BaggingClassifier) -> Predictor | Composite:
    """The mean of the probabilities of ``estimators_``, each on its ``estimators_features_``, or of their votes."""
    members, classes = fitted.estimators_, len(fitted.classes_)
    options: dict[str, Any] = {"link": "probabilities", "loss": "probabilities"}
    if all(type(member) in TREES for member in members):
        # Members are fitted on the positions of the labels, of which a sample may miss some.
        values = [_placed(leaf_values(member), member.classes_, classes) for member in members]
        return Predictor(_mean_of_trees(fitted, values), **options)
    widths = [len(member.classes_) for member in members]
    parts = _parts(fitted, "predict_proba" if all(hasattr(member, "predict_proba") for member in members) else "votes")
    scores = MeanOfMembers(
        _places(widths, [member.classes_ for member in members], classes), float(fitted.n_estimators)
    )
    if hasattr(fitted, "decision_function") and not all(_decides_on(member, classes) for member in members):
        options["failing"] = ["decision_function"]
    elif hasattr(fitted, "decision_function"):
        columns = _decision_columns(members[0], classes)
        places = sum(widths) + torch.arange(len(members) * columns).reshape(-1, columns)
        decision = MeanOfMembers(places, float(fitted.n_estimators), flat=columns == 1)
        parts += _parts(fitted, "decision_function")
        options["column_methods"] = {"decision_function": decision}
    return Composite(parts, Predictor(scores, **options))


def _decides_on(member: Any, classes: int) -> bool:
    """Whether a member has a score for every class; the source fails if a sample lacks one."""
    coefficients = getattr(last_step(member), "coef_", None)  # maybe sparse
    rows = classes if coefficients is None or coefficients.ndim < 2 else coefficients.shape[0]
    return len(member.classes_) == classes and rows >= (classes if classes > 2 else 1)


def _decision_columns(member: Any, classes: int) -> int:
    """The columns of the decision of a member: one for two classes, one per pair of classes, or one per class."""
    if classes == 2:
        return 1
    pairs = getattr(last_step(member), "decision_function_shape", "") == "ovo"
    return classes * (classes - 1) // 2 if pairs else classes


@translates(
    ensemble.BaggingRegressor,
    trainable=TRAINABLE,
    notes="any base estimator, whose loss fine-tuning takes; one or several targets",
)
def bagging_regressor(fitted: ensemble.BaggingRegressor) -> Predictor | Composite:
    """The mean of what ``estimators_`` predict, each on its ``estimators_features_``."""
    members = fitted.estimators_
    if all(type(member) in TREES for member in members):
        values = [leaf_values(member) for member in members]
        loss = LOSSES.get(members[0].criterion, "squared")
        return Predictor(_mean_of_trees(fitted, values), loss=loss, flat=members[0].n_outputs_ == 1)
    last, width = members[0], len(fitted.estimators_features_[0])
    if hasattr(last_step(last), "n_features_in_"):  # the steps before may reject a row of zeros
        last, width = last_step(last), int(last_step(last).n_features_in_)
    prediction = np.asarray(last.predict(np.zeros((1, width))))
    targets = 1 if prediction.ndim == 1 else prediction.shape[1]
    places = torch.arange(len(members) * targets).reshape(-1, targets)
    mean = MeanOfMembers(places, float(fitted.n_estimators))
    return Composite(_parts(fitted, "predict"), Predictor(mean, flat=prediction.ndim == 1), shared_loss="loss")


def _mean_of_trees(fitted: Any, values: Sequence[NDArray[np.float64]]) -> HardTrees:
    model = tree_ensemble(
        [member.tree_ for member in fitted.estimators_],
        values,
        width=int(fitted.n_features_in_),
        base=np.zeros(values[0].shape[1]),
        divisor=float(fitted.n_estimators),
        features=fitted.estimators_features_,
    )
    return HardTrees.of(model)


def _placed(values: NDArray[np.float64], columns: NDArray[Any], width: int) -> NDArray[np.float64]:
    """Columns of values at their places among ``width``, 0 elsewhere."""
    placed = np.zeros((len(values), width))
    placed[:, np.asarray(columns, np.int64)] = values
    return placed


def _places(widths: Sequence[int], columns: Sequence[NDArray[Any]], width: int) -> torch.Tensor:
    """The column of each member's output for each class among the concatenated outputs; -1 if it has none."""
    places = np.full((len(widths), width), -1, np.int64)
    start = 0
    for row, count, positions in zip(places, widths, columns, strict=True):
        row[np.asarray(positions, np.int64)] = start + np.arange(count)
        start += count
    return indices(places)


def _parts(fitted: Any, method: str) -> list[Part]:
    features = getattr(fitted, "estimators_features_", [None] * len(fitted.estimators_))
    every = np.arange(int(fitted.n_features_in_))
    return [
        Part(
            f"estimators_.{index}",
            member,
            method,
            None if columns is None or np.array_equal(columns, every) else columns,
        )
        for index, (member, columns) in enumerate(zip(fitted.estimators_, features, strict=True))
    ]
