"""category_encoders."""

from __future__ import annotations

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
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    StandardScaler,
)

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
]
