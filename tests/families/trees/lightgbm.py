"""LightGBM."""

from __future__ import annotations

import lightgbm as lgb
from case import (
    NUMBERS,
    Case,
    booster,
    columns,
    quick,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)

from windtunnel import RareCategories

CASES = [
    Case("trees alone", quick, NUMBERS, missing=True),
    Case("trees over pandas categories", quick, ("age", "plan", "visits"), missing=True),
    Case("trees of three classes", quick, NUMBERS, "grade", missing=True, array=True),
    Case("trees one against all", lambda: quick(objective="multiclassova"), NUMBERS, "grade", missing=True),
    Case("trees of counts", lambda: quick(lgb.LGBMRegressor, objective="poisson"), NUMBERS, "count", missing=True),
    Case("trees, zero as missing", lambda: quick(zero_as_missing=True), NUMBERS),
    Case("trees, dart", lambda: quick(lgb.LGBMRegressor, boosting_type="dart", random_state=0), NUMBERS, "value"),
    Case(
        "trees, random forest of classes",
        lambda: quick(boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0),
        NUMBERS,
        missing=True,
    ),
    Case(
        "trees, random forest",
        lambda: quick(lgb.LGBMRegressor, boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0),
        NUMBERS,
        "value",
    ),
    Case(
        "rare, trees over pandas categories",
        lambda: make_pipeline(RareCategories(min_count=20), quick()),
        ("age", "plan", "visits"),
        missing=True,
    ),
    Case(
        "mean imputer, scaler, trees",
        lambda: make_pipeline(SimpleImputer(), StandardScaler(), quick(n_estimators=20)),
        NUMBERS,
        missing=True,
    ),
    Case(
        "median imputer in columns, robust scaler, trees",
        lambda: make_pipeline(
            columns((make_pipeline(SimpleImputer(strategy="median"), RobustScaler()), ["cents", "age"])), quick()
        ),
        ("cents", "age"),
        missing=True,
    ),
    Case("min-max scaler, trees", lambda: make_pipeline(MinMaxScaler(), quick()), ("cents", "income")),
    Case("booster", lambda: quick(objective="binary"), NUMBERS, missing=True, fit=booster),
    Case("booster over pandas categories", quick, ("age", "plan"), "value", missing=True, fit=booster),
]
