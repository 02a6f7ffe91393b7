"""Pipelines and ensembles of imbalanced-learn."""

from __future__ import annotations

from typing import Any

from case import AWKWARD, NUMBERS, Case, columns, one_hot, quick
from imblearn.ensemble import (
    BalancedBaggingClassifier,
    BalancedRandomForestClassifier,
    EasyEnsembleClassifier,
    RUSBoostClassifier,
)
from imblearn.over_sampling import SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline
from imblearn.under_sampling import RandomUnderSampler
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

SMALL: dict[str, Any] = {"n_estimators": 4, "random_state": 0}


def tree() -> Any:
    return DecisionTreeClassifier(max_depth=3, random_state=0)


CASES = [
    Case(
        "trees on rows drawn again",
        lambda: make_pipeline(RandomOverSampler(random_state=0), columns((one_hot(), ["city"])), quick()),
        (*NUMBERS, "city"),
        **AWKWARD,
    ),
    Case(
        "made-up rows",
        lambda: make_pipeline(StandardScaler(), SMOTE(k_neighbors=3, random_state=0), LogisticRegression()),
        NUMBERS,
        "grade",
    ),
    Case(
        "samplers around passthrough",
        lambda: make_pipeline(
            RandomUnderSampler(random_state=0), "passthrough", SMOTE(random_state=0), StandardScaler(), quick()
        ),
        NUMBERS,
        array=True,
    ),
    Case(
        "balanced forest", lambda: BalancedRandomForestClassifier(max_depth=3, **SMALL), NUMBERS, "grade", missing=True
    ),
    Case("balanced bagging of trees", lambda: BalancedBaggingClassifier(tree(), **SMALL), NUMBERS, "grade"),
    Case(
        "balanced bagging of pipelines",
        lambda: BalancedBaggingClassifier(make_pipeline(StandardScaler(), LogisticRegression()), **SMALL),
        NUMBERS,
    ),
    Case("easy ensemble", lambda: EasyEnsembleClassifier(**SMALL), NUMBERS),
    Case("boosting under samples", lambda: RUSBoostClassifier(tree(), **SMALL), NUMBERS),
]
