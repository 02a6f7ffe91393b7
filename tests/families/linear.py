"""Linear models."""

from __future__ import annotations

from case import (
    NUMBERS,
    Case,
)
from sklearn.linear_model import (
    ElasticNet,
    LinearRegression,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    StandardScaler,
)
from sklearn.svm import LinearSVC

CASES = [
    Case("linear regression, two targets", LinearRegression, NUMBERS, "pair"),
    Case("elastic net", lambda: make_pipeline(StandardScaler(), ElasticNet(alpha=0.01)), NUMBERS, "value"),
    Case(
        "sgd regressor",
        lambda: make_pipeline(StandardScaler(), SGDRegressor(loss="epsilon_insensitive", random_state=0)),
        NUMBERS,
        "value",
    ),
    Case(
        "sgd modified huber",
        lambda: make_pipeline(StandardScaler(), SGDClassifier(loss="modified_huber", random_state=0)),
        NUMBERS,
        "grade",
    ),
    Case("linear svc", lambda: make_pipeline(StandardScaler(), LinearSVC()), NUMBERS),
]
