"""CatBoost: the JSON of a model as flat arrays, its loss as a link."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoost, CatBoostClassifier, CatBoostRanker, CatBoostRegressor
from numpy.typing import NDArray

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.modules.outputs.label_rules import LabelIndexColumn, LabelThreshold
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.single_tree import SingleTree, join
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE
from windtunnel.translators.trees.catboost_categories import Split, Splits

NOTES = "oblivious and other trees; categories by the hash of their text, their statistics as tables that train along"
# Loss of a regressor -> fine-tuning loss. A sum of models with several losses has none.
VALUES = {
    "": "squared",
    "RMSE": "squared",
    "MultiRMSE": "squared",
    "MAE": "absolute",
    "Quantile": "quantile",
    "Huber": "huber",
    "MAPE": "mape",
    "LogCosh": "log_cosh",
    "Expectile": "expectile",
    "Lq": "power",
    "Poisson": "poisson",
    "Tweedie": "tweedie",
} | dict.fromkeys(
    (
        "PairLogit", "PairLogitPairwise", "YetiRank", "YetiRankPairwise", "LambdaMart", "StochasticFilter",
        "StochasticRank", "QueryRMSE", "QuerySoftMax", "QueryCrossEntropy", "GroupQuantile",
    ),
    "relevance",
)  # fmt: skip
CLASSES = {"Logloss": ("sigmoid", "logistic"), "CrossEntropy": ("sigmoid", "logistic"),
           "MultiClass": ("softmax", "softmax"), "MultiClassOneVsAll": ("sigmoids", "logistic")}  # fmt: skip


@translates(CatBoostClassifier, trainable=TRAINABLE, notes=NOTES)
def classifier(fitted: CatBoostClassifier) -> Predictor:
    """Log-odds of the trees; one score per class beyond two."""
    model = _model(fitted)
    if model.loss not in CLASSES:
        raise UnsupportedEstimator(
            f"CatBoostClassifier with loss_function={model.loss!r} has no translation; take {', '.join(CLASSES)}, and "
            "for several labels per row an estimator of each"
        )
    link, loss = CLASSES[model.loss]
    classes = np.asarray(fitted.classes_)
    if model.loss == "MultiClassOneVsAll" and len(classes) == 2:
        raise UnsupportedEstimator(
            "CatBoostClassifier with loss_function='MultiClassOneVsAll' on two classes; fit it with 'Logloss'"
        )
    if model.outputs not in (1, len(classes)):
        raise UnsupportedEstimator(
            f"CatBoostClassifier(classes_count={len(classes)}) was fitted on {model.outputs} classes; fit it without "
            "classes_count"
        )
    return Predictor(
        model.scores(),
        link=link,
        loss=loss,
        classes=classes,
        methods=_labels(fitted, model),
        reads=InputColumns(hashed=model.splits.hashed),
    )


def _labels(fitted: CatBoostClassifier, model: _CatBoostModel) -> dict[str, Module]:
    """The rule of ``predict`` if it is not the greatest score of a row."""
    if model.outputs > 1:
        return {"predict": LabelIndexColumn()}  # a column of labels
    threshold = fitted.get_probability_threshold()
    if threshold == 0.5:
        return {}
    with np.errstate(divide="ignore"):
        bound = -np.log(1 / np.float64(threshold) - 1)
    # The source predicts the second label above the bound, not at it.
    return {"predict": LabelThreshold(tensor(np.nextafter(bound, np.inf)))}


@translates(CatBoostRegressor, CatBoostRanker, trainable=TRAINABLE, notes=NOTES)
def regressor(fitted: Any) -> Predictor:
    """Raw scores of the trees, and what ``predict`` makes of them."""
    model = _model(fitted)
    ranks = isinstance(fitted, CatBoostRanker)
    if model.loss not in VALUES and not ranks:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with loss_function={model.loss!r} has no translation; accepted are "
            f"{', '.join(filter(None, VALUES))}"
        )
    # A sum of models does not store what its parts predict.
    link = "exp" if not ranks and fitted._get_default_prediction_type() == "Exponent" else "identity"
    return model.predictor(link)


@translates(
    CatBoost,
    trainable=TRAINABLE,
    notes="regression and ranking losses, others fine-tuned with a custom loss only; predicts raw scores as "
    f"CatBoost.predict; {NOTES}",
)
def raw(fitted: CatBoost) -> Predictor:
    """Raw scores of the trees."""
    model = _model(fitted)
    if len(fitted.classes_):
        raise UnsupportedEstimator(
            f"CatBoost with loss_function={model.loss!r} is a classifier whose predict gives raw scores; give "
            "catboost.to_classifier(model), or for a file CatBoostClassifier().load_model(path)"
        )
    return model.predictor("identity")


# Loss: parameter of the source -> option of the loss here, CatBoost's default.
_OPTIONS: dict[str, dict[str, tuple[str, float]]] = {
    "Quantile": {"alpha": ("alpha", 0.5)},
    "Expectile": {"alpha": ("alpha", 0.5)},
    "Lq": {"q": ("q", 2.0)},
    "Huber": {"delta": ("delta", 1.0)},
    "Tweedie": {"variance_power": ("power", 1.5)},
}


@dataclass(frozen=True)
class _CatBoostModel:
    """A model's JSON; ``width`` is the number of columns of a row."""

    json: Mapping[str, Any]
    width: int

    @property
    def _loss(self) -> Mapping[str, Any]:
        """The loss; of a sum of models the shared one, without a type if they differ."""
        info = self.json["model_info"]
        loss: Mapping[str, Any] = (
            info["params"]["loss_function"] if "params" in info else json.loads(info.get("loss_function", "{}"))
        )
        return loss

    @property
    def loss(self) -> str:
        return str(self._loss.get("type", ""))

    @property
    def bias(self) -> NDArray[np.float64]:
        return np.atleast_1d(np.asarray(self.json["scale_and_bias"][1], np.float64))

    @property
    def outputs(self) -> int:
        return len(self.bias)

    @cached_property
    def trees(self) -> list[_Tree]:
        if "oblivious_trees" in self.json:
            return [_oblivious(tree, self.outputs) for tree in self.json["oblivious_trees"]]
        return [_nested(tree, self.outputs) for tree in self.json["trees"]]

    @cached_property
    def splits(self) -> Splits:
        return Splits.of(self.json, self.width, [split for tree in self.trees for split in tree.splits])

    def predictor(self, link: str) -> Predictor:
        """The raw scores of a model of values, with the loss that it was fitted with."""
        parameters = self._loss.get("params", {})
        return Predictor(
            self.scores(),
            link=link,
            loss=VALUES.get(self.loss, "unknown"),
            loss_options={
                option: float(parameters.get(name, default))
                for name, (option, default) in _OPTIONS.get(self.loss, {}).items()
            },
            flat=self.outputs == 1,
            reads=InputColumns(hashed=self.splits.hashed),
        )

    def scores(self) -> HardTrees:
        """Score = scale * sum of leaves + bias."""
        scale = float(self.json["scale_and_bias"][0])
        parts = [_one_tree(tree, [*map(self.splits.of_split, tree.splits)], scale) for tree in self.trees]
        return HardTrees.of(join(parts, width=self.splits.width, base=self.bias, reads="float32"))


@dataclass(frozen=True)
class _Tree:
    """Splits from the root down, children as in ``TreeEnsemble``, leaf values ``[leaves, K]``, weights ``[leaves]``."""

    splits: list[Mapping[str, Any]]
    left: list[int]
    right: list[int]
    leaves: NDArray[np.float64]
    cover: NDArray[np.float64] | None


def _model(fitted: Any) -> _CatBoostModel:
    _check(fitted)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        return _CatBoostModel(json.loads(path.read_text()), len(fitted.feature_names_))


def _oblivious(tree: Mapping[str, Any], outputs: int) -> _Tree:
    """All nodes of a level have the same split; bit d of a leaf's number is the outcome of split d."""
    splits = tree["splits"] or []
    depth = len(splits)
    values = np.asarray(tree["leaf_values"], np.float64).reshape(-1, outputs)
    # With the last split at the root, the leaves are in order from left to right.
    nodes = 2**depth - 1
    levels = [splits[depth - 1 - level] for level in range(depth) for _ in range(2**level)]
    children = [[2 * node + 1 + side for node in range(nodes)] for side in (0, 1)]
    left, right = ([child if child < nodes else -1 - (child - nodes) for child in side] for side in children)
    weights = tree.get("leaf_weights")
    return _Tree(levels, left, right, values, np.array(weights, np.float64) if weights else None)


def _nested(tree: Mapping[str, Any], outputs: int) -> _Tree:
    """A node is ``{"split", "left", "right"}``, a leaf ``{"value"}``."""
    splits: list[Mapping[str, Any]] = []
    sides: list[list[int]] = []
    leaves: list[Any] = []
    stack: list[tuple[Mapping[str, Any], int, int]] = [(tree, -1, 0)]
    while stack:
        node, parent, side = stack.pop()
        if "split" in node:
            number = len(splits)
            splits.append(node["split"])
            sides.append([0, 0])
            stack += [(node["right"], number, 1), (node["left"], number, 0)]
        else:
            number = -1 - len(leaves)
            leaves.append(node["value"])
        if parent >= 0:
            sides[parent][side] = number
    values = np.asarray(leaves, np.float64).reshape(-1, outputs)
    return _Tree(splits, [children[0] for children in sides], [children[1] for children in sides], values, None)


def _check(fitted: Any) -> None:
    read = {
        "text_features": fitted.get_text_feature_indices(),
        "embedding_features": fitted.get_embedding_feature_indices(),
    }
    if rejected := [f"{kind} (columns {columns})" for kind, columns in read.items() if columns]:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with {' and '.join(rejected)}, which have no translation; turn these columns "
            "into numbers or categories in front of CatBoost"
        )


def _one_tree(tree: _Tree, splits: Sequence[Split], scale: float) -> SingleTree:
    values = tree.leaves * scale
    return SingleTree(
        feature=np.array([column for column, _, _ in splits], np.int64),
        threshold=np.array([border for _, border, _ in splits], np.float32).astype(np.float64),
        # Missing values fail a comparison, or pass every one.
        default_left=np.array([not passes for _, _, passes in splits], np.bool_),
        left=np.array(tree.left, np.int64),
        right=np.array(tree.right, np.int64),
        leaf_value=values if values.shape[1] > 1 else values[:, 0],
        leaf_cover=tree.cover,
    )
