"""LightGBM's ranker and linear trees, XGBoost, CatBoost."""

from __future__ import annotations

from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from case import AWKWARD, CATEGORIES, IMPUTE, MIXED, NUMBERS, TEXTS, Case, columns, logistic, on_codes, one_hot, quick
from sklearn.base import clone
from sklearn.ensemble import VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from windtunnel import LeafEncoder

SMALL: dict[str, Any] = {"n_estimators": 8, "max_depth": 3, "n_jobs": 1}
TINY: dict[str, Any] = {"iterations": 8, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
IN_FLOAT32: dict[str, Any] = {"tolerance": 1e-6, "why": "XGBoost adds up in float32"}


def ranked(estimator: Any, X: Any, y: Any) -> Any:
    relevance = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    return estimator.fit(X, relevance, group=[100, len(y) - 100])


def ranked_by_id(estimator: Any, X: Any, y: Any) -> Any:
    relevance = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    return estimator.fit(X, relevance, group_id=np.arange(len(y)) // 100)


def stopped_early(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)


def light_stopped_early(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(
        X[:200], y[:200], eval_X=X[200:], eval_y=y[200:], callbacks=[lgb.early_stopping(3, verbose=False)]
    )


def shares(estimator: Any, X: Any, y: Any) -> Any:
    """Targets between 0 and 1."""
    return estimator.fit(X, 1 / (1 + np.exp(-y)))


def eager(estimator: Any, X: Any, y: Any) -> Any:
    """Takes the second class for probable early."""
    estimator.fit(X, y).set_probability_threshold(0.3)
    return estimator


def summed(estimator: Any, X: Any, y: Any) -> Any:
    """The mean of two models."""
    models = [clone(estimator).set_params(random_seed=seed).fit(X, y) for seed in (1, 2)]
    return cb.to_regressor(cb.sum_models(models, weights=[0.5, 0.5]))


def positive(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X, np.exp(y / 2))


def boosted(cls: type = xgb.XGBRegressor, **options: Any) -> Any:
    return cls(**SMALL | options)


def cat(cls: type = cb.CatBoostRegressor, **options: Any) -> Any:
    return cls(**TINY | options)


LIGHTGBM = [
    Case("lightgbm ranker", lambda: quick(lgb.LGBMRanker), NUMBERS, "value", fit=ranked),
    Case("lightgbm linear trees", lambda: quick(lgb.LGBMRegressor, linear_tree=True), NUMBERS, "value", missing=True),
    Case("lightgbm linear trees of three classes", lambda: quick(linear_tree=True), NUMBERS, "grade"),
    Case("lightgbm linear trees, dart", lambda: quick(
        lgb.LGBMRegressor, linear_tree=True, boosting_type="dart", random_state=0), NUMBERS, "value", missing=True),
    Case("lightgbm with early stopping", lambda: quick(lgb.LGBMRegressor, n_estimators=60, learning_rate=0.8), NUMBERS,
         "value", fit=light_stopped_early),
    Case("lightgbm dart of three classes", lambda: quick(boosting_type="dart", drop_rate=0.5, random_state=0), NUMBERS,
         "grade", missing=True),
    Case("lightgbm, zero as missing among missing ones", lambda: quick(lgb.LGBMRegressor, zero_as_missing=True),
         NUMBERS, "value", missing=True),
    *(Case(f"lightgbm {objective}", lambda objective=objective: quick(lgb.LGBMRegressor, objective=objective), NUMBERS,
           "value", missing=True, fit=positive) for objective in ("poisson", "gamma", "tweedie")),
    Case("lightgbm forest on a float64 grid", lambda: quick(
        boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0), ("age", "visits"), array=True),
]  # fmt: skip
XGBOOST = [
    *(Case(f"xgboost {objective}", lambda objective=objective: boosted(objective=objective, **(
        {"quantile_alpha": 0.3} if "quantile" in objective else {})), NUMBERS, "value", missing=True, **IN_FLOAT32)
      for objective in ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror")),
    *(Case(f"xgboost {objective}", lambda objective=objective: boosted(objective=objective), NUMBERS, "value",
           missing=True, fit=positive, **IN_FLOAT32)
      for objective in ("reg:squaredlogerror", "count:poisson", "reg:gamma", "reg:tweedie", "survival:cox")),
    Case("xgboost shares", lambda: boosted(objective="reg:logistic"), NUMBERS, "value", fit=shares, **IN_FLOAT32),
    Case("vote of xgboost shares", lambda: VotingRegressor(
        [(f"{depth}", boosted(objective="reg:logistic", max_depth=depth)) for depth in (1, 2)]), NUMBERS, "value",
        fit=shares, **IN_FLOAT32),
    Case("xgboost two quantiles", lambda: boosted(objective="reg:quantileerror", quantile_alpha=[0.2, 0.8]), NUMBERS,
         "value", **IN_FLOAT32),
    Case("xgboost with a base score", lambda: boosted(xgb.XGBClassifier, base_score=0.2), NUMBERS, missing=True,
         fit=on_codes, **IN_FLOAT32),
    Case("xgboost from a share of 0", lambda: boosted(xgb.XGBClassifier, base_score=0.0, min_child_weight=0), NUMBERS,
         missing=True, fit=on_codes, **IN_FLOAT32),
    Case("xgboost of three classes", lambda: boosted(xgb.XGBClassifier), NUMBERS, "grade", missing=True, fit=on_codes,
         **IN_FLOAT32),
    Case("xgboost labels of softmax", lambda: boosted(xgb.XGBClassifier, objective="multi:softmax"), NUMBERS, "grade",
         fit=on_codes, **IN_FLOAT32),
    Case("xgboost forest", lambda: boosted(xgb.XGBRFRegressor), NUMBERS, "value", **IN_FLOAT32),
    Case("xgboost forest of classes", lambda: boosted(xgb.XGBRFClassifier), NUMBERS, "grade", fit=on_codes,
         **IN_FLOAT32),
    Case("xgboost trees in parallel", lambda: boosted(
        xgb.XGBClassifier, num_parallel_tree=3, subsample=0.5, random_state=0), NUMBERS, "grade", fit=on_codes,
        **IN_FLOAT32),
    Case("xgboost dart", lambda: boosted(booster="dart", rate_drop=0.5, random_state=0), NUMBERS, "value", missing=True,
         **IN_FLOAT32),
    Case("xgboost linear", lambda: make_pipeline(SimpleImputer(), xgb.XGBRegressor(booster="gblinear", n_estimators=4)),
         ("age", "visits"), "value", missing=True, tolerance=1e-5, why="XGBoost adds up in float32"),
    Case("xgboost linear, missing", lambda: make_pipeline(
        StandardScaler(), xgb.XGBClassifier(booster="gblinear", n_estimators=4)), ("age", "visits"), "grade",
         missing=True, fit=on_codes, tolerance=1e-5, why="XGBoost adds up in float32"),
    Case("xgboost of two targets", boosted, NUMBERS, "pair", **IN_FLOAT32),
    Case("xgboost of leaves with two targets", lambda: boosted(multi_strategy="multi_output_tree"), NUMBERS, "pair",
         **IN_FLOAT32),
    Case("xgboost with early stopping", lambda: boosted(n_estimators=60, learning_rate=0.8, early_stopping_rounds=3),
         NUMBERS, "value", fit=stopped_early, **IN_FLOAT32),
    Case("xgboost ranker", lambda: boosted(xgb.XGBRanker), NUMBERS, "value", fit=ranked, **IN_FLOAT32),
    Case("xgboost categories", lambda: boosted(enable_categorical=True), ("plan", "age"), "value", missing=True,
         **IN_FLOAT32),
    Case("xgboost sets of categories", lambda: boosted(enable_categorical=True, max_cat_to_onehot=1), ("age", "plan"),
         "value", missing=True, **IN_FLOAT32),
    Case("xgboost codes", lambda: boosted(
        enable_categorical=True, feature_types=["q", "c"], max_cat_to_onehot=1), ("age", "visits"), "value",
        missing=True, array=True, **IN_FLOAT32),
    Case("xgboost over sparse one-hot", lambda: make_pipeline(
        columns((one_hot(), list(TEXTS)), (StandardScaler(), ["income"]), ("passthrough", ["visits"])),
        boosted(xgb.XGBClassifier)), fit=on_codes, **AWKWARD, **IN_FLOAT32),
    Case("xgboost over dense one-hot", lambda: make_pipeline(
        columns((one_hot(), list(TEXTS)), ("passthrough", ["visits"]), sparse_threshold=0),
        boosted(xgb.XGBClassifier)), fit=on_codes, **AWKWARD, **IN_FLOAT32),
    Case("xgboost of one tree", lambda: boosted(n_estimators=1), NUMBERS, "value", **IN_FLOAT32),
    Case("xgboost without a split", lambda: boosted(gamma=1e9), NUMBERS, "value", **IN_FLOAT32),
]  # fmt: skip
CATBOOST = [
    *(Case(f"catboost {loss}", lambda loss=loss: cat(loss_function=loss), NUMBERS, "value", missing=True)
      for loss in ("RMSE", "MAE", "Quantile:alpha=0.3", "Huber:delta=2", "LogCosh")),
    *(Case(f"catboost {loss}", lambda loss=loss: cat(loss_function=loss), NUMBERS, "value", missing=True, fit=positive)
      for loss in ("Poisson", "Tweedie:variance_power=1.2")),
    Case("catboost of two targets", lambda: cat(loss_function="MultiRMSE"), NUMBERS, "pair"),
    Case("catboost", lambda: cat(cb.CatBoostClassifier), NUMBERS, missing=True),
    Case("catboost with a threshold of its own", lambda: cat(cb.CatBoostClassifier), NUMBERS, missing=True, fit=eager),
    Case("catboost, two models summed", cat, NUMBERS, "value", missing=True, fit=summed),
    Case("catboost, two of Poisson summed", lambda: cat(loss_function="Poisson"), NUMBERS, "count", fit=summed),
    Case("catboost of three classes", lambda: cat(cb.CatBoostClassifier), NUMBERS, "grade", missing=True),
    Case("catboost one against all", lambda: cat(cb.CatBoostClassifier, loss_function="MultiClassOneVsAll"), NUMBERS,
         "grade"),
    *(Case(f"catboost {policy}", lambda policy=policy: cat(grow_policy=policy), NUMBERS, "value", missing=True)
      for policy in ("Depthwise", "Lossguide")),
    Case("catboost of three classes, leaf by leaf", lambda: cat(cb.CatBoostClassifier, grow_policy="Lossguide"),
         NUMBERS, "grade"),
    Case("catboost, missing as greatest", lambda: cat(nan_mode="Max"), NUMBERS, "value", missing=True),
    Case("catboost ranker", lambda: cat(cb.CatBoostRanker, loss_function="YetiRank"), NUMBERS, "value",
         fit=ranked_by_id),
    Case("catboost over categories", lambda: cat(
        cb.CatBoostClassifier, cat_features=CATEGORIES, iterations=20, one_hot_max_size=3), (*NUMBERS, *CATEGORIES),
        unseen=True),
    Case("catboost over categories of three classes", lambda: cat(
        cb.CatBoostClassifier, cat_features=CATEGORIES, simple_ctr=["Borders:TargetBorderCount=2", "Buckets"]),
        (*CATEGORIES, *NUMBERS), "grade", unseen=True),
    Case("imputer, catboost over categories", lambda: make_pipeline(
        columns((IMPUTE(missing_values=None), ["device"]), (IMPUTE(), ["city"]), (StandardScaler(), ["age"])),
        cat(cat_features=[0, 1])), MIXED, "value", **AWKWARD),
    Case("leaves of catboost over categories", lambda: make_pipeline(
        LeafEncoder(cat(cb.CatBoostClassifier, cat_features=TEXTS)), logistic()), MIXED, unseen=True),
    Case("catboost by its parameters", lambda: cb.CatBoost({"loss_function": "RMSE", **TINY}), NUMBERS, "value"),
]  # fmt: skip
CASES = [*LIGHTGBM, *XGBOOST, *CATBOOST]
