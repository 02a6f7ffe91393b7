"""category_encoders."""

from __future__ import annotations

import warnings
from typing import Any

import category_encoders as ce
import lightgbm as lgb
from case import (
    AWKWARD,
    CATEGORIES,
    TEXTS,
    Case,
    columns,
    logistic,
    quick,
)
from category_encoders.count_target import CountTargetEncoder
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    StandardScaler,
)


def quietly(encoder: Any, X: Any, y: Any) -> Any:
    """Fit an encoder that calls pandas in a way that pandas 4 will not take."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Starting with pandas version 4.0", DeprecationWarning)
        return encoder.fit(X, y)


CASES = [
    Case("ce one-hot", lambda: make_pipeline(ce.OneHotEncoder(cols=list(TEXTS)), quick()), **AWKWARD),
    Case("ce ordinal", lambda: make_pipeline(ce.OrdinalEncoder(), quick()), **AWKWARD),
    Case(
        "ce binary", lambda: make_pipeline(ce.BinaryEncoder(), SimpleImputer(), StandardScaler(), logistic()), **AWKWARD
    ),
    Case("ce base n", lambda: make_pipeline(ce.BaseNEncoder(base=3), quick()), CATEGORIES, **AWKWARD),
    Case("ce hashing", lambda: make_pipeline(ce.HashingEncoder(n_components=6, max_process=1), quick()), **AWKWARD),
    Case(
        "ce hashing of one column, numbers beside",
        lambda: make_pipeline(
            columns((ce.HashingEncoder(n_components=5, max_process=1, cols=["city"]), ["city", "age"])), quick()
        ),
        **AWKWARD,
    ),
    Case("ce target", lambda: make_pipeline(ce.TargetEncoder(), quick(lgb.LGBMRegressor)), target="value", **AWKWARD),
    Case("ce count", lambda: make_pipeline(ce.CountEncoder(), quick()), **AWKWARD),
    *[
        Case(f"ce {cls.__name__}", cls, ("city", "plan", "age"), "value", **AWKWARD)
        for cls in (
            ce.BackwardDifferenceEncoder,
            ce.CatBoostEncoder,
            ce.HelmertEncoder,
            ce.JamesSteinEncoder,
            ce.LeaveOneOutEncoder,
            ce.MEstimateEncoder,
            ce.PolynomialEncoder,
            ce.QuantileEncoder,
            ce.RankHotEncoder,
            ce.SumEncoder,
            ce.SummaryEncoder,
        )
    ],
    *[
        Case(f"ce {cls.__name__}", cls, ("city", "plan", "age"), "label", **AWKWARD)
        for cls in (ce.WOEEncoder, CountTargetEncoder)
    ],
    Case(
        "ce unknown as NaN, missing as NaN",
        lambda: ce.MEstimateEncoder(handle_unknown="return_nan", handle_missing="return_nan", min_group_size=15),
        ("city", "zip", "age"),
        "value",
        **AWKWARD,
    ),
    Case(
        "ce contrasts that reject, without what does not vary",
        lambda: ce.HelmertEncoder(handle_unknown="error", handle_missing="error", drop_invariant=True),
        CATEGORIES,
    ),
    Case(
        "ce counts that reject in one column",
        lambda: ce.CountEncoder(handle_unknown={"city": "error"}, cols=["city", "device"]),
        ("city", "device"),
    ),
    Case("ce GrayEncoder", ce.GrayEncoder, ("city", "plan", "age"), fit=quietly, **AWKWARD),
]
