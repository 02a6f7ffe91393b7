"""XGBoost: the JSON of a booster as flat arrays, its objective as a link and a loss."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster, DMatrix, XGBClassifier, XGBRanker, XGBRegressor, XGBRFClassifier, XGBRFRegressor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.linear.linear import LinearSkippingMissing
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaves import TreeLeaves
from windtunnel.modules.trees.single_tree import SingleTree, child_numbers, join
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE

# Objective: link, loss, and the function that gives base_score from the raw score.
OBJECTIVES = {
    "reg:squarederror": ("identity", "squared", "identity"),
    "reg:squaredlogerror": ("identity", "squared_log", "identity"),
    "reg:absoluteerror": ("identity", "absolute", "identity"),
    "reg:pseudohubererror": ("identity", "pseudo_huber", "identity"),
    "reg:quantileerror": ("identity", "quantile", "identity"),
    "reg:logistic": ("logistic", "logistic", "sigmoid"),
    "binary:logistic": ("logistic", "logistic", "sigmoid"),
    "binary:logitraw": ("identity", "logistic", "identity"),
    "count:poisson": ("exp", "poisson", "exp"),
    "reg:gamma": ("exp", "gamma", "exp"),
    "reg:tweedie": ("exp", "tweedie", "exp"),
    "survival:cox": ("exp", "unknown", "exp"),
    "survival:aft": ("exp", "unknown", "exp"),
    "multi:softprob": ("softmax", "softmax", "identity"),
    "multi:softmax": ("softmax", "softmax", "identity"),
    "rank:pairwise": ("identity", "relevance", "identity"),
    "rank:ndcg": ("identity", "relevance", "identity"),
    "rank:map": ("identity", "relevance", "identity"),
}
PRUNED = 2**31 - 1
"""The split index of a node that XGBoost has pruned (``tree_method="exact"``), and left where it was."""
LEAST_SHARE = np.float32(1e-6)
"""XGBoost clips the base score of logistic objectives to [LEAST_SHARE, 1 - LEAST_SHARE]."""
FLOAT32 = dict.fromkeys(("predict", "predict_proba", "apply"), "float32")


@translates(
    XGBClassifier,
    XGBRFClassifier,
    trainable=TRAINABLE,
    notes="gbtree, dart and gblinear; the source adds up in float32, so predictions agree to 1e-6",
)
def classifier(fitted: XGBClassifier) -> Predictor:
    """The booster up to ``best_iteration``: log-odds, one score per class beyond two."""
    model = _model(fitted)
    if model.objective not in ("binary:logistic", "multi:softprob", "multi:softmax"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with objective={model.objective!r} gives values that are no probabilities; fit "
            "it with objective='binary:logistic' or 'multi:softprob'"
        )
    if model.targets > 1:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} was fitted on {model.targets} labels per row; fit one estimator for each label"
        )
    link, loss = ("sigmoid", "logistic") if model.outputs == 1 else ("softmax", "softmax")
    dtypes = {name: dtype for name, dtype in FLOAT32.items() if name != "predict"}
    # With multi:softmax the source returns the labels of the booster.
    kind = np.int32 if model.objective == "multi:softmax" else np.int64
    return model.predictor(link=link, loss=loss, dtypes=dtypes, classes=np.arange(fitted.n_classes_, dtype=kind))


@translates(
    XGBRegressor,
    XGBRFRegressor,
    XGBRanker,
    trainable=TRAINABLE,
    notes="gbtree, dart and gblinear, every objective with its link and loss, several targets or quantiles; the source "
    "adds up in float32, so predictions agree to 1e-6; rankers are tuned on the squared error unless told otherwise, "
    "survival models with a custom loss only",
)
def regressor(fitted: Any) -> Predictor:
    """The booster up to ``best_iteration``: raw scores, and the values that ``predict`` makes of them."""
    model = _model(fitted)
    if model.objective not in OBJECTIVES or model.objective.startswith("multi"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with objective={model.objective!r} has no translation; accepted are "
            f"{', '.join(name for name in OBJECTIVES if not name.startswith('multi'))}"
        )
    link, loss, _ = OBJECTIVES[model.objective]
    return model.predictor(link=link, loss=loss, loss_options=model.loss_options(), dtypes=FLOAT32)


@dataclass(frozen=True)
class _XGBoostModel:
    """The parts of a booster's JSON that its predictions come from."""

    booster: Booster
    learner: Mapping[str, Any]
    iterations: int | None

    @property
    def objective(self) -> str:
        return str(self.learner["objective"]["name"])

    @property
    def parameters(self) -> Mapping[str, str]:
        parameters: Mapping[str, str] = self.learner["learner_model_param"]
        return parameters

    @property
    def _trees(self) -> Any:
        """The part that holds the trees; before 3.3, dart has a whole gbtree within it."""
        booster = self.learner["gradient_booster"]
        return booster.get("gbtree", booster)["model"]

    @property
    def targets(self) -> int:
        return int(self.parameters["num_target"])

    @property
    def outputs(self) -> int:
        return max(1, int(self.parameters["num_class"]), self.targets)

    @property
    def base(self) -> NDArray[np.float64]:
        """base_score as raw scores: one number, or one for each; a version before 3 stores no list."""
        stored = np.atleast_1d(json.loads(self.parameters["base_score"])).astype(np.float32)
        kind = OBJECTIVES[self.objective][2]
        # In float32, as the source: near 1 the last digit of a probability moves its log-odds by several percent.
        if kind == "sigmoid":
            clipped = np.clip(stored, LEAST_SHARE, 1 - LEAST_SHARE)
            stored = -np.log(1 / clipped - 1)
        elif kind == "exp":
            with np.errstate(divide="ignore"):  # the mean of targets that are all 0
                stored = np.log(stored)
        return np.broadcast_to(stored.astype(np.float64), (self.outputs,)).copy()

    def loss_options(self) -> dict[str, float | list[float]]:
        objective = self.learner["objective"]
        if self.objective == "reg:tweedie":
            return {"power": float(objective["tweedie_regression_param"]["tweedie_variance_power"])}
        if self.objective == "reg:pseudohubererror":
            return {"delta": float(objective["pseudo_huber_param"]["huber_slope"])}
        if self.objective == "reg:quantileerror":
            levels = np.atleast_1d(json.loads(objective["quantile_loss_param"]["quantile_alpha"])).tolist()
            return {"alpha": levels[0] if len(levels) == 1 else levels}
        return {}

    def predictor(self, **options: Any) -> Predictor:
        flat = self.outputs == 1
        if self.learner["gradient_booster"]["name"] == "gblinear":
            return Predictor(self._linear(), flat=flat, reads=InputColumns(sparse_zeros=False), **options)
        model, numbers = self._ensemble()
        # apply has no column for a single tree.
        shape = [model.trees] if model.trees > 1 else []
        scores, leaves = HardTrees.of(model), TreeLeaves.numbered(model, numbers, shape)
        codes = self._codes()
        # XGBoost 3.2 takes some unknown categories for the next known one; later versions reject them.
        reads = InputColumns(codes, [*codes], needs_names=True, sparse_zeros=False)
        return Predictor(scores, flat=flat, reads=reads, column_methods={"apply": leaves}, **options)

    def _linear(self) -> Module:
        """The weights of gblinear, ``[features + 1, K]``, the last row the bias."""
        weights = np.array(self.learner["gradient_booster"]["model"]["weights"], np.float32).astype(np.float64)
        table = weights.reshape(-1, self.outputs)[:-1]
        # XGBoost 3.2 adds the first base_score to every score, so the bias is its prediction for a row of zeros.
        zeros = DMatrix(np.zeros((1, len(table))), feature_names=self.booster.feature_names)
        bias = self.booster.predict(zeros, output_margin=True).reshape(-1).astype(np.float64)
        return LinearSkippingMissing(tensor(table.T), tensor(bias))

    def _ensemble(self) -> tuple[TreeEnsemble, NDArray[np.int64]]:
        model = self._trees
        trees, info = model["trees"], np.array(model["tree_info"], np.int64)
        # The weights of dart: since 3.4 stored with the trees, before that one level above.
        drops = model.get("weight_drop") or self.learner["gradient_booster"].get("weight_drop") or np.ones(len(trees))
        drops = np.array(drops, np.float32).astype(np.float64)
        if self.iterations is not None:
            count = int(model["iteration_indptr"][self.iterations])
            trees, info, drops = trees[:count], info[:count], drops[:count]
        leaves = [_leaves(tree) for tree in trees]
        parts = [_tree(tree, is_leaf, weight) for tree, is_leaf, weight in zip(trees, leaves, drops, strict=True)]
        numbers = [np.flatnonzero(is_leaf) for is_leaf in leaves]
        width = int(self.parameters["num_feature"])
        ensemble = join(parts, width=width, base=self.base, output=info, reads="float32", data_at="next_above")
        return ensemble, np.concatenate([np.empty(0), *numbers]).astype(np.int64)

    def _codes(self) -> dict[int, list[Any]]:
        """The categories of each column that was a category of a DataFrame, in the order of their codes."""
        encodings = self._trees.get("cats", {}).get("enc", [])
        categories = {column: _categories(encoding) for column, encoding in enumerate(encodings)}
        return {column: values for column, values in categories.items() if values}


def _model(fitted: Any) -> _XGBoostModel:
    if fitted.missing is not None and not math.isnan(fitted.missing):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with missing={fitted.missing!r} takes that number for missing; fit it with "
            "missing=nan, after SimpleImputer or a FunctionTransformer that puts NaN in its place"
        )
    booster: Booster = fitted.get_booster()
    best = booster.attr("best_iteration")
    learner = json.loads(booster.save_raw("json"))["learner"]
    if callable(getattr(fitted, "objective", None)):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with a custom objective does not define what its scores mean; fit it with a "
            "named objective"
        )
    return _XGBoostModel(booster, learner, None if best is None else int(best) + 1)


def _categories(encoding: Mapping[str, Any]) -> list[Any]:
    """Texts as one run of bytes with offsets, numbers as they are."""
    if "offsets" not in encoding:
        return list(encoding["values"])
    if min(encoding["values"], default=0) < 0:
        raise UnsupportedEstimator(
            "XGBoost stores as many bytes of a category as it has characters, so texts beyond ASCII (é, 上) are cut "
            "off; recode the categories in ASCII, or as numbers, before fitting"
        )
    octets, offsets = bytes(encoding["values"]), encoding["offsets"]
    return [octets[start:end].decode() for start, end in zip(offsets, offsets[1:], strict=False)]


def _leaves(tree: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Which nodes of a tree are leaves, bool ``[nodes]``: those without children, but for pruned ones."""
    leaves: NDArray[np.bool_] = (np.array(tree["left_children"]) < 0) & (np.array(tree["split_indices"]) != PRUNED)
    return leaves


def _tree(tree: Mapping[str, Any], is_leaf: NDArray[np.bool_], weight: float) -> SingleTree:
    # A number goes left below its threshold, so the float32 just below it is the last that does. A category in the set
    # goes right, all others left: children change sides, and with them the default.
    left, right = np.array(tree["left_children"], np.int64), np.array(tree["right_children"], np.int64)
    is_split = left >= 0
    number = child_numbers(is_leaf, is_split)
    condition = np.array(tree["split_conditions"], np.float32)
    is_set = np.array(tree["split_type"])[is_split] == 1
    with np.errstate(over="ignore"):
        below = np.nextafter(condition[is_split], np.float32(-np.inf)).astype(np.float64)
    left, right = number[left[is_split]], number[right[is_split]]
    default_left = np.array(tree["default_left"], np.bool_)[is_split]
    return SingleTree(
        feature=np.array(tree["split_indices"], np.int64)[is_split],
        threshold=np.where(is_set, 0.0, below),
        default_left=default_left ^ is_set,
        left=np.where(is_set, right, left),
        right=np.where(is_set, left, right),
        leaf_value=_leaf_value(tree, is_leaf, condition) * weight,
        leaf_cover=np.array(tree["sum_hessian"], np.float64)[is_leaf],
        categories={int(number[node]): members for node, members in _sets(tree) if is_split[node]},
    )


def _leaf_value(tree: Mapping[str, Any], is_leaf: NDArray[np.bool_], condition: NDArray[np.float32]) -> NDArray[Any]:
    """``[leaves]``, or ``[leaves, K]`` of a tree with a value for each target."""
    size = int(tree["tree_param"]["size_leaf_vector"])
    if size <= 1:
        return condition[is_leaf].astype(np.float64)
    values = np.array(tree["leaf_weights"], np.float32).astype(np.float64).reshape(-1, size)
    return values[np.array(tree["right_children"], np.int64)[is_leaf]]


def _sets(tree: Mapping[str, Any]) -> list[tuple[int, NDArray[np.int64]]]:
    starts, sizes = tree["categories_segments"], tree["categories_sizes"]
    members = np.array(tree["categories"], np.int64)
    return [
        (node, members[start : start + size])
        for node, start, size in zip(tree["categories_nodes"], starts, sizes, strict=True)
    ]
