"""Leaf numbers of rows and trees, computed by the library of the trees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.errors import BadInput

Integers = NDArray[np.int64]


def leaf_ids(ensemble: Any, X: Any) -> Integers:
    """The library's number of the leaf of each row in each tree, int64 ``[rows, trees]``."""
    if hasattr(ensemble, "booster_"):
        ids = ensemble.predict(X, pred_leaf=True)
    elif hasattr(ensemble, "calc_leaf_indexes"):
        ids = ensemble.calc_leaf_indexes(X)
    elif hasattr(ensemble, "_predictors"):
        ids = _histogram_leaves(ensemble, X)
    else:
        ids = ensemble.apply(X)
    ids = np.asarray(ids)
    return ids.reshape(len(ids), -1).astype(np.int64)


def leaf_numbers(ensemble: Any) -> list[Integers]:
    """The library's leaf numbers of each tree, ascending.

    Raises
    ------
    BadInput
        The estimator has no trees, or does not expose their leaves.
    """
    if hasattr(ensemble, "booster_"):  # LightGBM
        return [np.arange(tree["num_leaves"]) for tree in ensemble.booster_.dump_model()["tree_info"]]
    if hasattr(ensemble, "calc_leaf_indexes"):  # CatBoost
        return [np.arange(count) for count in ensemble.get_tree_leaf_counts()]
    if hasattr(ensemble, "_predictors"):  # histogram gradient boosting
        return [np.flatnonzero(tree.nodes["is_leaf"]) for stage in ensemble._predictors for tree in stage]
    if hasattr(ensemble, "get_booster") and ensemble.get_xgb_params().get("booster") != "gblinear":
        return [_dumped_leaves(tree) for tree in _used(ensemble.get_booster()).get_dump()]
    if hasattr(ensemble, "apply") and not hasattr(ensemble, "get_booster"):  # scikit-learn
        members = np.ravel(getattr(ensemble, "estimators_", ensemble))
        return [np.flatnonzero(member.tree_.children_left < 0) for member in members]
    raise BadInput(
        f"estimator={ensemble!r} exposes no leaves; give a model of trees: LightGBM, XGBoost, CatBoost, or of "
        "scikit-learn a decision tree, random forest, extra trees, gradient boosting or histogram gradient boosting"
    )


def _used(booster: Any) -> Any:
    """XGBoost's trees up to the best iteration of early stopping, which ``apply`` uses."""
    best = booster.attr("best_iteration")
    return booster if best is None else booster[: int(best) + 1]


def _dumped_leaves(dump: str) -> Integers:
    """The nodes ``3:leaf=0.25`` of one of XGBoost's trees in its text form."""
    return np.sort(np.array([int(node) for node in re.findall(r"^\s*(\d+):leaf=", dump, re.MULTILINE)], np.int64))


def _histogram_leaves(ensemble: Any, X: Any) -> NDArray[np.float64]:
    """Histogram gradient boosting has no ``apply``: trees with node numbers as values predict the leaf."""
    trees = [_with_numbers(tree) for stage in ensemble._predictors for tree in stage]
    numbered = copy(ensemble)
    numbered._predictors, numbered.n_trees_per_iteration_ = [trees], len(trees)
    numbered._baseline_prediction = np.zeros((1, len(trees)))
    leaves: NDArray[np.float64] = numbered._raw_predict(X)
    return leaves


def _with_numbers(tree: Any) -> Any:
    numbered = copy(tree)
    numbered.nodes = tree.nodes.copy()
    numbered.nodes["value"] = np.arange(len(tree.nodes))
    return numbered


def positions(ids: Integers, numbers: Sequence[Integers]) -> Integers:
    """The position of each leaf among those of its tree, ``[rows, trees]``."""
    return np.stack([np.searchsorted(leaves, column) for leaves, column in zip(numbers, ids.T, strict=True)], axis=1)
