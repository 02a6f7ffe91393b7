"""The leaves of trees as columns."""

from __future__ import annotations

from typing import Any

import catboost as cb
import lightgbm as lgb
import xgboost as xgb
from case import AWKWARD, NUMBERS, TEXTS, Case, columns, logistic, on_codes, one_hot, quick
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from windtunnel import FactorizationMachineClassifier, FactorizationMachineRegressor, LeafEncoder, TwoHotEncoder

FITTING: dict[str, Any] = {"learning_rate": 0.02, "epochs": 5, "random_state": 0}
CAT: dict[str, Any] = {"iterations": 6, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1}


def boosted(cls: type, **options: Any) -> Any:
    return cls(n_estimators=4, max_depth=3, random_state=0, **options)


CASES = [
    Case(
        "two-hot, leaves, factorization machine",
        lambda: make_pipeline(
            columns((TwoHotEncoder(), list(TEXTS)), ("passthrough", list(NUMBERS))),
            LeafEncoder(quick()),
            FactorizationMachineClassifier(3, **FITTING),
        ),
        (*NUMBERS, *TEXTS),
        **AWKWARD,
    ),
    Case(
        "leaves of three classes, factorization machine",
        lambda: make_pipeline(LeafEncoder(quick(n_estimators=3)), FactorizationMachineClassifier(2, **FITTING)),
        NUMBERS,
        "grade",
        missing=True,
    ),
    Case(
        "leaves over pandas categories",
        lambda: make_pipeline(LeafEncoder(quick(lgb.LGBMRegressor)), FactorizationMachineRegressor(2, **FITTING)),
        (*NUMBERS, "plan"),
        "value",
        **AWKWARD,
    ),
    Case(
        "leaves of XGBoost over sparse zeros",
        lambda: make_pipeline(one_hot(), LeafEncoder(boosted(xgb.XGBClassifier, n_jobs=1)), logistic()),
        TEXTS,
        fit=on_codes,
        **AWKWARD,
    ),
    Case("leaves of CatBoost", lambda: LeafEncoder(cb.CatBoostClassifier(**CAT)), NUMBERS, missing=True),
    Case(
        "leaves of CatBoost by depth",
        lambda: make_pipeline(LeafEncoder(cb.CatBoostRegressor(grow_policy="Depthwise", **CAT)), Ridge()),
        NUMBERS,
        "value",
        missing=True,
    ),
    Case(
        "leaves of a forest",
        lambda: make_pipeline(LeafEncoder(boosted(RandomForestRegressor)), Ridge()),
        NUMBERS,
        "pair",
        missing=True,
    ),
    Case("leaves of extra trees", lambda: LeafEncoder(boosted(ExtraTreesClassifier)), NUMBERS, missing=True),
    Case(
        "leaves of gradient boosting",
        lambda: make_pipeline(LeafEncoder(boosted(GradientBoostingClassifier)), logistic()),
        ("income", "visits"),
        "grade",
    ),
    Case(
        "leaves of histograms over categories",
        lambda: make_pipeline(
            LeafEncoder(HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=6, min_samples_leaf=5)), Ridge()
        ),
        (*NUMBERS, "plan"),
        "value",
        **AWKWARD,
    ),
    Case("leaves of one tree", lambda: LeafEncoder(DecisionTreeClassifier(max_depth=4)), NUMBERS, missing=True),
    Case("numbers of leaves", lambda: LeafEncoder(quick(), output="ids"), NUMBERS, missing=True),
    Case(
        "numbers of leaves of histograms over categories",
        lambda: LeafEncoder(HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=6), output="ids"),
        (*NUMBERS, "plan"),
        "value",
        **AWKWARD,
    ),
]
