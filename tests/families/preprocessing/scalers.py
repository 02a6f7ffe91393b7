"""Scalers."""

from __future__ import annotations

from case import (
    NUMBERS,
    Case,
    logistic,
    quick,
)
from sklearn.linear_model import (
    Lasso,
    Ridge,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC, LinearSVR

CASES = [
    Case("standard scaler alone", StandardScaler, NUMBERS),
    Case("standard scaler, logistic", lambda: make_pipeline(StandardScaler(), logistic()), NUMBERS),
    Case(
        "standard scaler without mean",
        lambda: make_pipeline(StandardScaler(with_mean=False), Ridge()),
        NUMBERS,
        "value",
    ),
    Case("min-max scaler, clipped", lambda: make_pipeline(MinMaxScaler(clip=True), Ridge()), NUMBERS, "value"),
    Case("max-abs scaler", lambda: make_pipeline(MaxAbsScaler(), LinearSVR()), NUMBERS, "value"),
    Case("robust scaler", lambda: make_pipeline(RobustScaler(), Lasso(alpha=0.01)), NUMBERS, "value"),
    Case(
        "normalizer",
        lambda: make_pipeline(StandardScaler(), Normalizer("l1"), LinearSVC(dual=False)),
        NUMBERS,
        "grade",
    ),
    Case(
        "scaler fitted on an array", lambda: make_pipeline(StandardScaler(), quick()), NUMBERS, array=True, missing=True
    ),
]
