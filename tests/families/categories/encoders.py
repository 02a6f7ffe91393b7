"""scikit-learn's encoders."""

from __future__ import annotations

import numpy as np
from case import (
    AWKWARD,
    CATEGORIES,
    TEXTS,
    Case,
    logistic,
    one_hot,
    ordinal,
    quick,
)
from sklearn.linear_model import (
    SGDClassifier,
)
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    OneHotEncoder,
    OrdinalEncoder,
    TargetEncoder,
)

CASES = [
    Case("one-hot alone, sparse", one_hot, CATEGORIES, **AWKWARD),
    Case(
        "one-hot, infrequent and dropped",
        lambda: make_pipeline(
            OneHotEncoder(drop="first", min_frequency=20, handle_unknown="infrequent_if_exist"),
            SGDClassifier(loss="log_loss", random_state=0),
        ),
        CATEGORIES,
        "grade",
        missing=True,
        unseen=True,
    ),
    Case("one-hot that rejects", lambda: make_pipeline(OneHotEncoder(), logistic()), CATEGORIES),
    Case("ordinal alone", ordinal, CATEGORIES, **AWKWARD),
    Case("ordinal, one-hot", lambda: make_pipeline(ordinal(), one_hot(), logistic()), CATEGORIES, **AWKWARD),
    Case("ordinal that rejects, one-hot", lambda: make_pipeline(OrdinalEncoder(), one_hot(), logistic()), CATEGORIES),
    Case(
        "ordinal, trees with categories",
        lambda: make_pipeline(ordinal(), quick()),
        TEXTS,
        fit=lambda pipeline, X, y: pipeline.fit(X, y, lgbmclassifier__categorical_feature=[0, 1]),
        **AWKWARD,
    ),
    Case(
        "ordinal with NaN, trees",
        lambda: make_pipeline(ordinal(encoded_missing_value=np.nan), quick()),
        TEXTS,
        missing=True,
    ),
    Case(
        "one-hot of an array of objects",
        lambda: make_pipeline(one_hot(), logistic()),
        CATEGORIES,
        array=True,
        **AWKWARD,
    ),
    *[
        Case(f"target encoder, {kind}", TargetEncoder, CATEGORIES, target, **AWKWARD)
        for kind, target in (("two classes", "label"), ("three classes", "grade"), ("values", "value"))
    ],
    Case(
        "target encoder, trees",
        lambda: make_pipeline(TargetEncoder(cv=KFold(3)), quick()),
        TEXTS,
        since="1.9",
        **AWKWARD,
    ),
]
