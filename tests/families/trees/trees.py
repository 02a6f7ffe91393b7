"""scikit-learn's trees, forests, gradient boosting and committees of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case
from sklearn import ensemble, tree
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from families.trees.boosters import positive
from windtunnel.estimators.float32 import Float32

GRID = ("cents", "age")
"""Decimals that float32 has to round."""
SMALL: dict[str, Any] = {"n_estimators": 8, "max_depth": 4, "random_state": 0}
STEEP: dict[str, Any] = {"max_iter": 8, "min_samples_leaf": 5, "random_state": 0}


def on_labels(estimator: Any, X: Any, y: Any) -> Any:
    """Two targets of classes, of two and three labels."""
    low, high = np.quantile(y[:, 0], [0.3, 0.6])
    return estimator.fit(X, np.stack([y[:, 0] > low, (y[:, 0] > low) + 0 + (y[:, 0] > high)], axis=1).astype(int))


def on_one_class(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X, np.full(len(y), "only"))


def with_rare_class(estimator: Any, X: Any, y: Any) -> Any:
    """Three labels, one so rare that samples of rows miss it."""
    return estimator.fit(X, np.where(np.arange(len(y)) < 2, "rare", y))


SINGLE = [
    Case("tree of classes", lambda: tree.DecisionTreeClassifier(max_depth=4), NUMBERS, "grade", missing=True),
    Case("tree of values", lambda: tree.DecisionTreeRegressor(max_depth=4), NUMBERS, "value", missing=True),
    Case(
        "tree of thirty levels", lambda: tree.ExtraTreeRegressor(max_depth=30, random_state=0), NUMBERS, "value",
        softens=0.99, why="every training value is a leaf",
    ),
    Case("tree without a split", lambda: tree.DecisionTreeRegressor(min_samples_leaf=200), NUMBERS, "value"),
    Case("tree of one class", tree.ExtraTreeClassifier, NUMBERS, fit=on_one_class),
    Case("tree of two targets", lambda: tree.DecisionTreeRegressor(max_depth=4), NUMBERS, "pair"),
    Case("tree of two targets of classes", lambda: tree.DecisionTreeClassifier(max_depth=4), NUMBERS, "pair",
         fit=on_labels),
    Case("tree of counts, poisson", lambda: tree.DecisionTreeRegressor(criterion="poisson", max_depth=4), NUMBERS,
         "count"),
    Case("tree that only rises", lambda: tree.DecisionTreeRegressor(max_depth=4, monotonic_cst=[1, 0, 0]), NUMBERS,
         "value"),
]  # fmt: skip
FORESTS = [
    Case("forest on a float64 grid", lambda: ensemble.RandomForestClassifier(**SMALL), GRID, array=True),
    Case("forest of values, missing", lambda: ensemble.RandomForestRegressor(**SMALL), NUMBERS, "value", missing=True),
    Case("forest of absolute errors", lambda: ensemble.RandomForestRegressor(criterion="absolute_error", **SMALL),
         NUMBERS, "value"),
    Case("forest of three classes", lambda: ensemble.ExtraTreesClassifier(**SMALL), NUMBERS, "grade"),
    Case("forest of two targets", lambda: ensemble.ExtraTreesRegressor(**SMALL), NUMBERS, "pair"),
    Case("forest of two targets of classes", lambda: ensemble.RandomForestClassifier(**SMALL), NUMBERS, "pair",
         fit=on_labels),
    Case("forest of one class", lambda: ensemble.RandomForestClassifier(**SMALL), NUMBERS, fit=on_one_class),
    Case("forest of weighted classes", lambda: ensemble.RandomForestClassifier(class_weight="balanced", **SMALL),
         NUMBERS, "grade"),
    Case("forest behind a scaler", lambda: make_pipeline(StandardScaler(), ensemble.RandomForestClassifier(**SMALL)),
         NUMBERS, "grade"),
    Case("trees embedding", lambda: ensemble.RandomTreesEmbedding(n_estimators=5, max_depth=3, random_state=0),
         NUMBERS),
    Case("trees embedding, logistic", lambda: make_pipeline(
        ensemble.RandomTreesEmbedding(n_estimators=5, max_depth=3, random_state=0), LogisticRegression()), NUMBERS),
    Case("rows in float32", lambda: make_pipeline(StandardScaler(), Float32()), NUMBERS),
]  # fmt: skip
# On arrays: with names ``apply`` of scikit-learn warns of its own trees.
BOOSTING = [
    Case("boosted log odds", lambda: ensemble.GradientBoostingClassifier(**SMALL), NUMBERS, array=True),
    Case("boosted log odds of three classes", lambda: ensemble.GradientBoostingClassifier(**SMALL), NUMBERS,
         "grade", array=True),
    Case("boosted exponential loss", lambda: ensemble.GradientBoostingClassifier(loss="exponential", **SMALL),
         NUMBERS, array=True),
    Case("boosted from zero", lambda: ensemble.GradientBoostingClassifier(init="zero", **SMALL), NUMBERS,
         "grade", array=True),
    Case("boosted from a forest", lambda: ensemble.GradientBoostingRegressor(
        init=ensemble.RandomForestRegressor(**SMALL), **SMALL), NUMBERS, "value", array=True),
    Case("boosted from a forest of classes", lambda: ensemble.GradientBoostingClassifier(
        init=ensemble.RandomForestClassifier(**SMALL), **SMALL), NUMBERS, "grade",
        array=True, softens=0, why="the logarithm of probabilities that are exactly 0"),
    *(Case(f"boosted {loss}", lambda loss=loss: ensemble.GradientBoostingRegressor(loss=loss, **SMALL), NUMBERS,
           "value", array=True) for loss in ("squared_error", "absolute_error", "huber", "quantile")),
    Case("boosted with early stopping", lambda: ensemble.GradientBoostingRegressor(
        n_iter_no_change=2, **SMALL | {"n_estimators": 50}), NUMBERS, "value", array=True),
    Case("histogram boosting", lambda: ensemble.HistGradientBoostingClassifier(**STEEP), NUMBERS, missing=True),
    Case("histogram boosting of three classes", lambda: ensemble.HistGradientBoostingClassifier(**STEEP), NUMBERS,
         "grade", missing=True),
    Case("histogram boosting of categories", lambda: ensemble.HistGradientBoostingRegressor(**STEEP),
         ("plan", "age", "visits"), "value", missing=True),
    Case("histogram boosting of texts", lambda: ensemble.HistGradientBoostingRegressor(
        categorical_features=["city", "zip"], **STEEP), ("age", "city", "zip"), "value", missing=True, unseen=True),
    *(Case(f"histogram boosting, {loss}", lambda loss=loss: ensemble.HistGradientBoostingRegressor(
        loss=loss, quantile=0.3 if loss == "quantile" else None, **STEEP), NUMBERS, "value", missing=True,
        fit=positive)
      for loss in ("squared_error", "absolute_error", "poisson", "gamma", "quantile")),
]  # fmt: skip
COMMITTEES = [
    Case("isolation forest", lambda: ensemble.IsolationForest(n_estimators=8, random_state=0), NUMBERS, missing=True),
    Case("isolation forest, contaminated", lambda: ensemble.IsolationForest(
        n_estimators=8, contamination=0.1, max_features=2, random_state=0), NUMBERS),
    Case("isolation forest of one row a tree", lambda: ensemble.IsolationForest(n_estimators=3, max_samples=1),
         NUMBERS),
    Case("ada boost", lambda: ensemble.AdaBoostClassifier(n_estimators=8, random_state=0), NUMBERS),
    Case("ada boost of three classes", lambda: ensemble.AdaBoostClassifier(
        tree.DecisionTreeClassifier(max_depth=2), n_estimators=8, random_state=0), NUMBERS, "grade"),
    Case("ada boost over logistic", lambda: make_pipeline(StandardScaler(), ensemble.AdaBoostClassifier(
        LogisticRegression(), n_estimators=4, random_state=0)), NUMBERS, "grade",
        softens=0, why="votes end the gradient"),
    Case("ada boost of values", lambda: ensemble.AdaBoostRegressor(n_estimators=8, random_state=0), NUMBERS, "value"),
    Case("bagged trees", lambda: ensemble.BaggingClassifier(
        tree.DecisionTreeClassifier(max_depth=4), n_estimators=8, max_features=2, random_state=0), NUMBERS, "grade"),
    Case("bagged trees that miss a class", lambda: ensemble.BaggingClassifier(
        tree.DecisionTreeClassifier(max_depth=4), n_estimators=8, max_samples=0.2, random_state=0), NUMBERS, "grade",
        fit=with_rare_class),
    Case("bagged logistic", lambda: make_pipeline(StandardScaler(), ensemble.BaggingClassifier(
        LogisticRegression(), n_estimators=4, random_state=0)), NUMBERS, "grade"),
    Case("bagged logistic that misses a class", lambda: make_pipeline(StandardScaler(), ensemble.BaggingClassifier(
        tree.DecisionTreeClassifier(max_depth=3), n_estimators=4, max_samples=0.2, random_state=0)), NUMBERS,
        fit=with_rare_class),
    Case("bagged votes", lambda: make_pipeline(StandardScaler(), ensemble.BaggingClassifier(
        LinearSVC(), n_estimators=4, random_state=0)), NUMBERS, softens=0, why="votes end the gradient"),
    Case("bagged trees of values", lambda: ensemble.BaggingRegressor(
        tree.DecisionTreeRegressor(max_depth=4), n_estimators=8, max_features=2, bootstrap_features=True,
        random_state=0), NUMBERS, "value"),
    Case("bagged ridge of two targets", lambda: make_pipeline(StandardScaler(), ensemble.BaggingRegressor(
        Ridge(), n_estimators=4, random_state=0)), NUMBERS, "pair"),
]  # fmt: skip
CASES = [*SINGLE, *FORESTS, *BOOSTING, *COMMITTEES]
