"""scikit-learn's trees and forests, and its gradient boosting over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import dummy, ensemble, tree
from sklearn._loss.loss import ExponentialLoss
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.float32 import Float32
from windtunnel.modules.ensembles.init_scores import LastColumns, RoundToFloat32, ScoresWithInit
from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import LeafOneHot, TreeLeaves
from windtunnel.modules.trees.single_tree import SingleTree, child_numbers, join
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Composite, Part, Predictor, Transformer
from windtunnel.translators.registry import translates
from windtunnel.translators.scikit_learn_version import scikit_learn_before
from windtunnel.translators.trees import TRAINABLE


def tree_ensemble(
    trees: Sequence[Any],
    values: Iterable[NDArray[np.float64]],
    *,
    width: int,
    base: Sequence[float] | NDArray[np.float64],
    divisor: float = 1.0,
    features: Sequence[Any] | None = None,
) -> TreeEnsemble:
    """Convert fitted ``tree_`` objects, which compare float32 rows; each node has a direction for NaN.

    Parameters
    ----------
    trees : sequence of sklearn.tree._tree.Tree
    values : iterable of array
        Per tree ``[nodes]`` or ``[nodes, K]``, what a row in this node adds. With ``[nodes]`` the trees add to
        the K scores in turn.
    width : int
        Columns of the rows.
    base, divisor
        See ``TreeEnsemble``.
    features : sequence of int arrays, optional
        Per tree, the columns of the rows that it reads; None for all columns.
    """
    parts = [
        _one_tree(tree_, value, None if features is None else np.asarray(features[index], np.int64))
        for index, (tree_, value) in enumerate(zip(trees, values, strict=True))
    ]
    return join(parts, width=width, base=np.asarray(base, np.float64), divisor=divisor, reads="float32")


def _one_tree(tree_: Any, value: NDArray[np.float64], columns: NDArray[np.int64] | None) -> SingleTree:
    is_leaf = tree_.children_left < 0
    split = ~is_leaf
    number = child_numbers(is_leaf, split)
    feature = tree_.feature[split]
    return SingleTree(
        feature=feature if columns is None else columns[feature],
        threshold=tree_.threshold[split],
        default_left=tree_.missing_go_to_left[split].astype(np.bool_),
        left=number[tree_.children_left[split]],
        right=number[tree_.children_right[split]],
        leaf_value=value[is_leaf],
        leaf_cover=tree_.weighted_n_node_samples[is_leaf],
    )


def leaf_numbers(trees: Iterable[Any]) -> NDArray[np.int64]:
    """The number of each leaf among the nodes of its tree, as ``apply`` gives it."""
    return np.concatenate([np.flatnonzero(tree_.children_left < 0) for tree_ in trees]).astype(np.int64)


def leaf_values(fitted: Any) -> NDArray[np.float64]:
    """``tree_.value`` as ``[nodes, K]``: the targets concatenated, a probability per class or one value each."""
    value = fitted.tree_.value
    counts = np.atleast_1d(fitted.n_classes_) if is_classifier(fitted) else [1] * fitted.n_outputs_
    parts = [value[:, target, : int(count)] for target, count in enumerate(counts)]
    return np.concatenate(parts, axis=1).astype(np.float64)


@translates(
    tree.DecisionTreeClassifier,
    tree.DecisionTreeRegressor,
    tree.ExtraTreeClassifier,
    tree.ExtraTreeRegressor,
    trainable=TRAINABLE,
    notes="one or several targets, missing values; scores of a classifier are probabilities",
)
def single_tree(fitted: Any) -> Predictor:
    """``tree_``: the value of the leaf, probabilities of a classifier."""
    return _means(fitted, [fitted], [])


@translates(
    ensemble.RandomForestClassifier,
    ensemble.RandomForestRegressor,
    ensemble.ExtraTreesClassifier,
    ensemble.ExtraTreesRegressor,
    trainable=TRAINABLE,
    notes="one or several targets, missing values; scores of a classifier are probabilities",
)
def forest(fitted: Any) -> Predictor:
    """``estimators_``: the mean of the values of the leaves, probabilities of a classifier."""
    return _means(fitted, fitted.estimators_, [len(fitted.estimators_)])


def _means(fitted: Any, members: Sequence[Any], shape: list[int]) -> Predictor:
    trees, values = [member.tree_ for member in members], [leaf_values(member) for member in members]
    width = int(fitted.n_features_in_)
    model = tree_ensemble(trees, values, width=width, base=np.zeros(values[0].shape[1]), divisor=float(len(members)))
    leaves = TreeLeaves.numbered(model, leaf_numbers(trees), shape)
    classifier = is_classifier(fitted)
    return Predictor(
        HardTrees.of(model),
        link="probabilities" if classifier else "identity",
        loss="probabilities" if classifier else LOSSES.get(fitted.criterion, "squared"),
        flat=fitted.n_outputs_ == 1,
        column_methods={"apply": leaves},
        dtypes={"apply": "int64"},
    )


LOSSES = {"absolute_error": "absolute"}
"""Criterion of a regressor -> fine-tuning loss, if it is not the squared one."""


@translates(
    ensemble.RandomTreesEmbedding,
    notes="one column per leaf; a step function, so translate keeps it on the host",
    differentiable=False,
)
def trees_embedding(fitted: ensemble.RandomTreesEmbedding) -> Transformer:
    """One column per leaf of ``estimators_``; ``one_hot_encoder_`` has to contain all leaves."""
    trees = [member.tree_ for member in fitted.estimators_]
    for index, (tree_, leaves) in enumerate(zip(trees, fitted.one_hot_encoder_.categories_, strict=True)):
        if not np.array_equal(np.flatnonzero(tree_.children_left < 0), leaves):
            raise UnsupportedEstimator(
                f"tree {index} of RandomTreesEmbedding has leaves that no training row falls into, which it rejects; "
                "fit it without sample weights of 0"
            )
    numbers = leaf_numbers(trees)
    zeros = [np.zeros(tree_.node_count) for tree_ in trees]
    model = tree_ensemble(trees, zeros, width=int(fitted.n_features_in_), base=[0.0])
    leaves = TreeLeaves.numbered(model, numbers, [len(trees)])
    one_hot = LeafOneHot.numbered(model, np.arange(len(numbers)))
    return Transformer(one_hot, {"apply": leaves}, dtypes={"apply": "int64"})


@translates(
    ensemble.GradientBoostingClassifier,
    trainable=TRAINABLE,
    notes="log_loss and exponential; init estimators that compute in float64, such as trees",
)
def boosting_classifier(fitted: ensemble.GradientBoostingClassifier) -> Predictor | Composite:
    """Log-odds: init_, and learning_rate times the leaves of ``estimators_``; half log-odds for exponential."""
    several = fitted.estimators_.shape[1] > 1
    leaves = _stage_leaves(fitted, [len(fitted.estimators_), fitted.estimators_.shape[1]])
    # A score of exactly 0 predicts the second class.
    methods = {} if several else {"predict": LabelThreshold(tensor(0.0))}
    scale = {"scale": 2.0} if isinstance(fitted._loss, ExponentialLoss) else {}
    return _boosted(
        fitted,
        link="softmax" if several else "sigmoid",
        loss="softmax" if several else "logistic",
        link_options=scale,
        loss_options=scale,
        methods=methods,
        column_methods={"apply": leaves},
    )


@translates(
    ensemble.GradientBoostingRegressor,
    trainable=TRAINABLE,
    notes="every loss; init estimators that compute in float64, such as trees",
)
def boosting_regressor(fitted: ensemble.GradientBoostingRegressor) -> Predictor | Composite:
    """init_, and learning_rate times the leaves of ``estimators_``."""
    names = {"squared_error": "squared", "absolute_error": "absolute", "huber": "huber", "quantile": "quantile"}
    return _boosted(
        fitted,
        loss=names[fitted.loss],
        loss_options={"alpha": float(fitted.alpha)} if fitted.loss == "quantile" else {},
        column_methods={"apply": _stage_leaves(fitted, [len(fitted.estimators_)])},
    )


def _stages(fitted: Any, base: NDArray[np.float64]) -> TreeEnsemble:
    trees = [member.tree_ for member in fitted.estimators_.ravel()]
    values = [fitted.learning_rate * tree_.value[:, 0, 0] for tree_ in trees]
    return tree_ensemble(trees, values, width=int(fitted.n_features_in_), base=base)


def _stage_leaves(fitted: Any, shape: list[int]) -> TreeLeaves:
    trees = [member.tree_ for member in fitted.estimators_.ravel()]
    return TreeLeaves.numbered(_stages(fitted, np.zeros(fitted.estimators_.shape[1])), leaf_numbers(trees), shape)


def _boosted(fitted: Any, **options: Any) -> Predictor | Composite:
    """Trees added to a constant ``init_``, or to what ``init_`` predicts for a row."""
    scores = fitted.estimators_.shape[1]
    init = fitted.init_
    if isinstance(init, dummy.DummyClassifier) and init.strategy in ("stratified", "uniform"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} starts from a {type(init).__name__}(strategy={init.strategy!r}), which draws its "
            "predictions at random; fit it with another init"
        )
    if isinstance(init, str) or isinstance(init, dummy.DummyClassifier | dummy.DummyRegressor):
        row = np.zeros((1, int(fitted.n_features_in_)), np.float32)
        return Predictor(HardTrees.of(_stages(fitted, fitted._raw_predict_init(row)[0])), **options)
    method = "predict_proba" if is_classifier(fitted) else "predict"
    try:
        prediction = getattr(init, method)(np.zeros((1, int(fitted.n_features_in_)), np.float32))
    except ValueError as error:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} starts from a {type(init).__name__} that rejects a row of zeros ({error}), which "
            "tells whether it computes in float64; put the steps that reject it in front of the booster"
        ) from error
    if prediction.dtype == np.float32:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} starts from a {type(init).__name__} that computes in float32, as boosting rounds "
            "its rows, so its predictions cannot be reproduced exactly; take an init that computes in float64, such "
            "as a tree or a forest"
        )
    # The rows are rounded before init_ sees them.
    rounded = Pipeline([("float32", Float32()), ("init", init)])
    # The trees alone are the same estimator with a zero init.
    stages = copy(fitted)
    stages.init_ = "zero"
    shape = options["column_methods"]["apply"].shape
    parts = [
        Part("init_", rounded, method, output_columns=[1] if method == "predict_proba" and scores == 1 else None),
        Part("estimators_", stages, "scores"),
        Part("estimators_", stages, "apply"),
    ]
    options["column_methods"] = {"apply": LastColumns(2 * scores, shape)}
    margin = float(np.finfo(np.float32 if scikit_learn_before("1.8") else np.float64).eps)
    return Composite(parts, Predictor(ScoresWithInit(scores, _start_link(fitted), margin), **options))


def _start_link(fitted: Any) -> str:
    """The link from the output of the init estimator to a raw score."""
    if not is_classifier(fitted):
        return "identity"
    if fitted.estimators_.shape[1] > 1:
        return "log_share"
    return "half_logit" if isinstance(fitted._loss, ExponentialLoss) else "logit"


@translates(Float32, notes="gradient boosting rounds rows in this way before its init estimator")
def float32(fitted: Float32) -> RoundToFloat32:
    """Round to the nearest float32 number."""
    return RoundToFloat32()
