"""The estimators that WindTunnel brings along."""

from __future__ import annotations

import category_encoders as ce
from case import (
    AWKWARD,
    CATEGORIES,
    MIXED,
    NUMBERS,
    TEXTS,
    Case,
    columns,
    logistic,
    one_hot,
    quick,
    scaled,
)
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    OneHotEncoder,
    StandardScaler,
    TargetEncoder,
)

from windtunnel import (
    BinEncoder,
    CrossFittedClassifier,
    CrossFittedRegressor,
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    MatrixFactorization,
    RareCategories,
    TwoHotEncoder,
)

CASES = [
    Case(
        "rare, two-hot, trees", lambda: make_pipeline(RareCategories(min_count=20), TwoHotEncoder(), quick()), **AWKWARD
    ),
    Case(
        "rare, two-hot in columns",
        lambda: make_pipeline(
            columns(
                (make_pipeline(RareCategories(min_frequency_quantile=0.1), TwoHotEncoder()), list(CATEGORIES)),
                (StandardScaler(), ["income"]),
            ),
            logistic(C=0.1),
        ),
        (*NUMBERS, *CATEGORIES),
        **AWKWARD,
    ),
    Case("rare, one-hot", lambda: make_pipeline(RareCategories(min_count=20), one_hot(), logistic()), TEXTS, **AWKWARD),
    Case(
        "rare, hashing",
        lambda: make_pipeline(
            RareCategories(min_count=20), ce.HashingEncoder(n_components=5, max_process=1), logistic()
        ),
        TEXTS,
        **AWKWARD,
    ),
    Case(
        "bins two-hot, with the numbers",
        lambda: make_pipeline(
            make_union("passthrough", BinEncoder(n_bins=8), BinEncoder(TargetEncoder(cv=KFold(3)), n_bins=5)), quick()
        ),
        NUMBERS,
        since="1.9",
        **AWKWARD,
    ),
    Case("bins alone", lambda: BinEncoder(OneHotEncoder(drop="first"), n_bins=8), NUMBERS, missing=True),
    Case("two-hot alone", TwoHotEncoder, (*MIXED, "plan"), **AWKWARD),
    Case(
        "factorization machine over one-hot",
        lambda: make_pipeline(
            one_hot(), FactorizationMachineClassifier(3, learning_rate=0.01, epochs=5, random_state=0)
        ),
        TEXTS,
        **AWKWARD,
    ),
    Case(
        "factorization machine of three classes",
        lambda: scaled(FactorizationMachineClassifier(3, learning_rate=0.01, epochs=5, random_state=0)),
        NUMBERS,
        "grade",
    ),
    Case(
        "factorization machine of values",
        lambda: scaled(FactorizationMachineRegressor(3, learning_rate=0.01, epochs=5, random_state=0)),
        NUMBERS,
        "value",
    ),
    Case("matrix factorization", lambda: MatrixFactorization(3, random_state=0), ("zip", "city"), "value", **AWKWARD),
    Case(
        "rare, matrix factorization of an array",
        lambda: make_pipeline(RareCategories(min_count=20), MatrixFactorization(3, random_state=0)),
        TEXTS,
        "value",
        array=True,
        **AWKWARD,
    ),
    Case(
        "cross-fitted trees",
        lambda: CrossFittedClassifier(make_pipeline(RareCategories(min_count=20), TwoHotEncoder(), quick()), folds=3),
        **AWKWARD,
    ),
    Case("cross-fitted, three classes", lambda: CrossFittedClassifier(scaled(), folds=2), NUMBERS, "grade"),
    Case("cross-fitted values", lambda: CrossFittedRegressor(scaled(Ridge()), folds=3), NUMBERS, "value"),
]
