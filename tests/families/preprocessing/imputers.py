"""Imputers."""

from __future__ import annotations

import category_encoders as ce
import lightgbm as lgb
from case import (
    AWKWARD,
    IMPUTE,
    NUMBERS,
    TEXTS,
    Case,
    logistic,
    one_hot,
    ordinal,
    quick,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    StandardScaler,
)

from windtunnel import RareCategories, TwoHotEncoder

CASES = [
    Case(
        "mean imputer with indicator",
        lambda: make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), logistic()),
        NUMBERS,
        "grade",
        missing=True,
    ),
    Case("imputer of zeros, trees", lambda: make_pipeline(SimpleImputer(missing_values=0), quick()), NUMBERS[1:]),
    Case("imputer of texts, one-hot", lambda: make_pipeline(IMPUTE(), one_hot(), logistic()), TEXTS, **AWKWARD),
    Case(
        "constant imputer, ordinal, trees",
        lambda: make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), ordinal(), quick()),
        TEXTS,
        **AWKWARD,
    ),
    Case(
        "imputer of numbers, one-hot",
        lambda: make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot(), logistic()),
        ("cents", "visits"),
        missing=True,
    ),
    # An imputer of NaN leaves None alone, so both are in these rows, and mean different things.
    Case("imputer of NaN, two-hot", lambda: make_pipeline(IMPUTE(), TwoHotEncoder(), logistic()), TEXTS, **AWKWARD),
    Case(
        "rare, imputer of NaN, target encoder",
        lambda: make_pipeline(RareCategories(min_count=20), IMPUTE(), ce.TargetEncoder(), quick(lgb.LGBMRegressor)),
        TEXTS,
        "value",
        **AWKWARD,
    ),
    Case(
        "imputer of one text",
        lambda: make_pipeline(SimpleImputer(missing_values="phone", strategy="most_frequent"), one_hot(), logistic()),
        ("device",),
        unseen=True,
    ),
    Case(
        "imputer of one integer, one-hot",
        lambda: make_pipeline(SimpleImputer(missing_values=205, strategy="most_frequent"), one_hot(), logistic()),
        ("zip",),
        unseen=True,
    ),
]
