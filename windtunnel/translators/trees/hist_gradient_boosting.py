"""scikit-learn's histogram gradient boosting, missing values and native categories included."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import ensemble
from sklearn._loss.link import LogLink

from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.single_tree import SingleTree, child_numbers, join
from windtunnel.translators.categories.sklearn_encoders import plain_categories
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.registry import translates
from windtunnel.translators.trees import TRAINABLE

# Loss of the source: loss that is fine-tuned.
LOSSES = {
    "squared_error": "squared",
    "absolute_error": "absolute",
    "quantile": "quantile",
    "poisson": "poisson",
    "gamma": "gamma",
}


@translates(
    ensemble.HistGradientBoostingClassifier,
    trainable=TRAINABLE,
    notes="missing values, native categories of texts, numbers and booleans",
)
def classifier(fitted: ensemble.HistGradientBoostingClassifier) -> Predictor:
    """Log-odds: ``_baseline_prediction`` and the leaves of ``_predictors``, one score per class beyond two."""
    several = fitted.n_trees_per_iteration_ > 1
    return Predictor.of_classes(_scores(fitted), several=several, reads=InputColumns(_codes(fitted)))


@translates(
    ensemble.HistGradientBoostingRegressor,
    trainable=TRAINABLE,
    notes="every loss, missing values, native categories of texts, numbers and booleans",
)
def regressor(fitted: ensemble.HistGradientBoostingRegressor) -> Predictor:
    """``_baseline_prediction`` and the leaves of ``_predictors``, in the logarithm for poisson and gamma."""
    return Predictor(
        _scores(fitted),
        link="exp" if isinstance(fitted._loss.link, LogLink) else "identity",  # of the loss in fit
        loss=LOSSES[fitted.loss],
        loss_options={"alpha": float(fitted.quantile)} if fitted.loss == "quantile" else {},
        reads=InputColumns(_codes(fitted)),
    )


def _codes(fitted: Any) -> dict[int, list[Any]]:
    """The categories of each native category column, in the order of their codes in the trees."""
    if fitted.is_categorical_ is None:
        return {}
    encoder = fitted._preprocessor.named_transformers_["encoder"]
    columns = np.flatnonzero(fitted.is_categorical_).tolist()
    # NaN, the last of the categories, has no code: for the trees it is a missing number. None has one.
    return {
        column: [value for value in plain_categories(fitted, column, listed) if value is None or value == value]
        for column, listed in zip(columns, encoder.categories_, strict=True)
    }


def _scores(fitted: Any) -> HardTrees:
    width = int(fitted.n_features_in_)
    columns = np.arange(width)
    if fitted.is_categorical_ is not None:
        # The preprocessor puts the categories first.
        columns = np.argsort(~fitted.is_categorical_, kind="stable")
    trees = [_tree(predictor, columns) for stage in fitted._predictors for predictor in stage]
    base = np.asarray(fitted._baseline_prediction, np.float64).reshape(-1)
    return HardTrees.of(join(trees, width=width, base=base, data_at="threshold"))


def _tree(predictor: Any, columns: NDArray[np.int64]) -> SingleTree:
    """One ``TreePredictor``: its record array ``nodes`` and the bit sets of categories that go left."""
    nodes = predictor.nodes
    is_leaf = nodes["is_leaf"].astype(np.bool_)
    number, split = child_numbers(is_leaf, ~is_leaf), nodes[~is_leaf]
    is_set = split["is_categorical"].astype(np.bool_)
    sets = np.asarray(predictor.raw_left_cat_bitsets, "<u4").view(np.uint8)  # [sets, 32]
    return SingleTree(
        feature=columns[split["feature_idx"].astype(np.int64)],
        threshold=np.where(is_set, 0.0, split["num_threshold"]),
        default_left=split["missing_go_to_left"].astype(np.bool_),
        left=number[split["left"].astype(np.int64)],
        right=number[split["right"].astype(np.int64)],
        leaf_value=nodes["value"][is_leaf],
        leaf_cover=nodes["count"][is_leaf].astype(np.float64),
        categories={
            node: np.flatnonzero(np.unpackbits(sets[split["bitset_idx"][node]], bitorder="little"))
            for node in np.flatnonzero(is_set).tolist()
        },
    )
