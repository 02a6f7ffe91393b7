"""Estimators that look at no column, and functions of a single one."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from families.linear.linear import labels


def clipped(**options: Any) -> IsotonicRegression:
    return IsotonicRegression(out_of_bounds="clip", **options)


CASES = [
    Case("dummy classifier", DummyClassifier, NUMBERS),
    Case("dummy classifier, most frequent", lambda: DummyClassifier(strategy="most_frequent"), NUMBERS, "grade"),
    Case("dummy classifier, constant", lambda: DummyClassifier(strategy="constant", constant="yes"), NUMBERS),
    Case("dummy classifier, constant of another type", lambda: DummyClassifier(strategy="constant", constant=7),
         NUMBERS, "grade", fit=lambda estimator, X, y: estimator.fit(X, y.astype(float))),
    Case("dummy classifier, several targets", DummyClassifier, NUMBERS, "value", fit=labels),
    Case("dummy classifier, several constants", lambda: DummyClassifier(strategy="constant", constant=[1, 0, 1]),
         NUMBERS, "value", fit=labels),
    Case("dummy classifier, one class", DummyClassifier, NUMBERS,
         fit=lambda estimator, X, y: estimator.fit(X, np.full(len(y), "only"))),
    Case("dummy regressor", DummyRegressor, NUMBERS, "value"),
    Case("dummy regressor, two targets", lambda: DummyRegressor(strategy="median"), NUMBERS, "pair"),
    Case("dummy regressor, quantile", lambda: DummyRegressor(strategy="quantile", quantile=0.1), NUMBERS, "value"),
    Case("dummy regressor, constant", lambda: DummyRegressor(strategy="constant", constant=3), NUMBERS, "value"),
    Case("isotonic", clipped, ("age",), "value"),
    Case("isotonic, decreasing", lambda: clipped(increasing=False), ("age",), "value"),
    Case("isotonic, bounded", lambda: make_pipeline(StandardScaler(), clipped(y_min=-0.5, y_max=0.5)), ("age",),
         "value"),
    Case("isotonic, twice", lambda: make_pipeline(clipped(), clipped()), ("age",), "value"),
]  # fmt: skip
