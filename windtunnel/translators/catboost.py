"""CatBoost: the JSON of a model as flat arrays, its loss as a link."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoost, CatBoostClassifier, CatBoostRanker, CatBoostRegressor
from numpy.typing import NDArray

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.at_least import PositionColumn
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.one_tree import OneTree, join
from windtunnel.translators.registry import Predictor, translates

TRAINABLE = "leaf values, thresholds, feature weights, paths (levels L1-L4)"
NOTES = "oblivious and other trees over numbers; splits on categories are refused"
# Loss of a regressor: link of predict, loss that is fine-tuned.
VALUES = {
    "RMSE": ("identity", "squared"),
    "MultiRMSE": ("identity", "squared"),
    "MAE": ("identity", "absolute"),
    "Quantile": ("identity", "quantile"),
    "Huber": ("identity", "huber"),
    "MAPE": ("identity", "mape"),
    "LogCosh": ("identity", "squared"),
    "Expectile": ("identity", "squared"),
    "Lq": ("identity", "squared"),
    "Poisson": ("exp", "poisson"),
    "Tweedie": ("exp", "tweedie"),
}
CLASSES = {"Logloss": ("sigmoid", "logistic"), "CrossEntropy": ("sigmoid", "logistic"),
           "MultiClass": ("softmax", "softmax"), "MultiClassOneVsAll": ("sigmoids", "logistic")}  # fmt: skip


@translates(CatBoostClassifier, trainable=TRAINABLE, notes=NOTES)
def classifier(fitted: CatBoostClassifier) -> Predictor:
    """Log-odds of the trees; one score per class beyond two."""
    model = _model(fitted)
    if model.loss not in CLASSES:
        raise UnsupportedEstimator(
            f"CatBoostClassifier with loss_function={model.loss!r} has no translation; known are {', '.join(CLASSES)}"
        )
    link, loss = CLASSES[model.loss]
    classes = np.asarray(fitted.classes_)
    if model.loss == "MultiClassOneVsAll" and len(classes) == 2:
        raise UnsupportedEstimator(
            "CatBoostClassifier with loss_function='MultiClassOneVsAll' on two classes; fit it with 'Logloss'"
        )
    # predict gives labels of more than two classes as a column.
    answers = {"predict": PositionColumn()} if model.outputs > 1 else {}
    return Predictor(model.scores(), link=link, loss=loss, classes=classes, answers=answers)


@translates(CatBoostRegressor, CatBoostRanker, trainable=TRAINABLE, notes=NOTES)
def regressor(fitted: Any) -> Predictor:
    """Raw scores of the trees, and what ``predict`` makes of them."""
    model = _model(fitted)
    ranks = isinstance(fitted, CatBoostRanker)
    if model.loss not in VALUES and not ranks:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} with loss_function={model.loss!r} has no translation; known are "
            f"{', '.join(VALUES)}"
        )
    link, loss = VALUES.get(model.loss, ("identity", "squared"))
    options = {}
    for name, (here, default) in _OPTIONS.get(model.loss, {}).items():
        options[here] = float(model.loss_parameters.get(name, default))
    return Predictor(model.scores(), link=link, loss=loss, loss_options=options, flat=model.outputs == 1)


@translates(
    CatBoost,
    trainable=TRAINABLE,
    notes=f"regression and ranking losses; predicts raw scores as CatBoost.predict; {NOTES}",
)
def raw(fitted: CatBoost) -> Predictor:
    """Raw scores of the trees."""
    model = _model(fitted)
    if len(fitted.classes_):
        raise UnsupportedEstimator(
            f"CatBoost with loss_function={model.loss!r} is a classifier whose predict gives raw scores; fit a "
            "CatBoostClassifier with the same options"
        )
    return Predictor(model.scores(), loss=VALUES.get(model.loss, ("", "squared"))[1], flat=model.outputs == 1)


# Loss: parameter of the source -> option of the loss here, CatBoost's default.
_OPTIONS: dict[str, dict[str, tuple[str, float]]] = {
    "Quantile": {"alpha": ("alpha", 0.5)},
    "Huber": {"delta": ("delta", 1.0)},
    "Tweedie": {"variance_power": ("power", 1.5)},
}


@dataclass(frozen=True)
class _Model:
    """A model's JSON; ``width`` is the number of columns of a row."""

    json: Mapping[str, Any]
    width: int

    @property
    def _loss(self) -> Mapping[str, Any]:
        loss: Mapping[str, Any] = self.json["model_info"]["params"]["loss_function"]
        return loss

    @property
    def loss(self) -> str:
        return str(self._loss["type"])

    @property
    def loss_parameters(self) -> Mapping[str, Any]:
        parameters: Mapping[str, Any] = self._loss.get("params", {})
        return parameters

    @property
    def bias(self) -> NDArray[np.float64]:
        return np.atleast_1d(np.asarray(self.json["scale_and_bias"][1], np.float64))

    @property
    def outputs(self) -> int:
        return len(self.bias)

    def scores(self) -> HardTrees:
        """Score = scale * sum of leaves + bias."""
        features = {
            one["feature_index"]: (one["flat_feature_index"], one["nan_value_treatment"])
            for one in self.json["features_info"].get("float_features", [])
        }
        scale = float(self.json["scale_and_bias"][0])
        if "oblivious_trees" in self.json:
            trees = [_oblivious(one, self.outputs) for one in self.json["oblivious_trees"]]
        else:
            trees = [_nested(one, self.outputs) for one in self.json["trees"]]
        _check(trees)
        parts = [_one_tree(tree, features, scale) for tree in trees]
        return HardTrees.of(join(parts, width=self.width, base=self.bias, reads="float32"))


@dataclass(frozen=True)
class _Tree:
    """Splits from the root on, children as in ``TreeEnsemble``, leaf values ``[leaves, K]``."""

    splits: list[Mapping[str, Any]]
    left: list[int]
    right: list[int]
    leaves: NDArray[np.float64]


def _model(fitted: Any) -> _Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        return _Model(json.loads(path.read_text()), len(fitted.feature_names_))


def _oblivious(tree: Mapping[str, Any], outputs: int) -> _Tree:
    """Every node of a level asks the same; bit d of a leaf's number is the answer to split d."""
    splits = tree["splits"] or []
    depth = len(splits)
    values = np.asarray(tree["leaf_values"], np.float64).reshape(-1, outputs)
    # The last split at the root: then the leaves stand in order from left to right.
    nodes = 2**depth - 1
    levels = [splits[depth - 1 - level] for level in range(depth) for _ in range(2**level)]
    children = [[2 * node + 1 + side for node in range(nodes)] for side in (0, 1)]
    left, right = ([one if one < nodes else -1 - (one - nodes) for one in side] for side in children)
    return _Tree(levels, left, right, values)


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
    return _Tree(splits, [one[0] for one in sides], [one[1] for one in sides], values)


def _check(trees: Sequence[_Tree]) -> None:
    kinds = {split["split_type"] for tree in trees for split in tree.splits}
    if other := sorted(kinds - {"FloatFeature"}):
        raise UnsupportedEstimator(
            f"the CatBoost model splits on categories ({', '.join(other)}), whose statistics have no translation; "
            "encode the categories in the pipeline in front of CatBoost, as with category_encoders.CatBoostEncoder or "
            "OneHotEncoder, and fit it without cat_features"
        )


def _one_tree(tree: _Tree, features: Mapping[int, tuple[int, str]], scale: float) -> OneTree:
    read = [features[split["float_feature_index"]] for split in tree.splits]
    values = tree.leaves * scale
    return OneTree(
        feature=np.array([column for column, _ in read], np.int64),
        threshold=np.array([split["border"] for split in tree.splits], np.float32).astype(np.float64),
        # Missing values fail a comparison, or pass every one.
        default_left=np.array([treatment != "AsTrue" for _, treatment in read], np.bool_),
        left=np.array(tree.left, np.int64),
        right=np.array(tree.right, np.int64),
        leaf_value=values if values.shape[1] > 1 else values[:, 0],
    )
