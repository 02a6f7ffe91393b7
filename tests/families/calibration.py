"""Calibrated classifiers."""

from __future__ import annotations

from typing import Any

from case import AWKWARD, MIXED, NUMBERS, Case, columns, logistic, one_hot, quick
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

STEEP = "an isotonic step may be as steep as it likes: what float32 rounds off the score grows by it"


def linear() -> Any:
    return make_pipeline(StandardScaler(), logistic())


def margins() -> Any:
    return make_pipeline(StandardScaler(), LinearSVC(random_state=0))


def forest() -> Any:
    return RandomForestClassifier(6, max_depth=4, random_state=0)


def on_text() -> Any:
    numbers = (make_pipeline(SimpleImputer(), StandardScaler()), list(NUMBERS))
    return make_pipeline(columns((one_hot(), ["city"]), numbers), LinearSVC(random_state=0))


def frozen(**options: Any) -> Any:
    """Calibrates what was fitted before, on the same rows."""

    def fit(estimator: Any, X: Any, y: Any) -> Any:
        return CalibratedClassifierCV(FrozenEstimator(estimator.fit(X, y)), **options).fit(X, y)

    return fit


CASES = [
    Case("calibrated by a sigmoid", lambda: CalibratedClassifierCV(margins(), cv=2), NUMBERS),
    Case("calibrated by sigmoids", lambda: CalibratedClassifierCV(margins(), cv=3), NUMBERS, "grade"),
    Case(
        "calibrated by one sigmoid", lambda: CalibratedClassifierCV(margins(), ensemble=False, cv=2), NUMBERS, "grade"
    ),
    Case("calibrated forest", lambda: CalibratedClassifierCV(forest(), cv=2), NUMBERS, "grade"),
    Case("calibrated trees", lambda: CalibratedClassifierCV(quick(n_estimators=5), cv=2), NUMBERS, missing=True),
    Case("calibrated, raw text", lambda: CalibratedClassifierCV(on_text(), cv=2), MIXED, "grade", **AWKWARD),
    Case(
        "calibrated step by step",
        lambda: CalibratedClassifierCV(margins(), method="isotonic", cv=2),
        NUMBERS,
        coarse=1e-3,
        why=STEEP,
    ),
    Case(
        "calibrated step by step, three classes",
        lambda: CalibratedClassifierCV(linear(), method="isotonic", cv=2, ensemble=False),
        NUMBERS,
        "grade",
        coarse=1e-3,
        why=STEEP,
    ),
    Case(
        "calibrated trees, step by step",
        lambda: CalibratedClassifierCV(quick(n_estimators=5), method="isotonic", cv=2),
        NUMBERS,
        "grade",
        coarse=1e-3,
        why=STEEP,
    ),
    Case("calibrated by a temperature", lambda: CalibratedClassifierCV(linear(), method="temperature", cv=2), NUMBERS),
    Case(
        "calibrated by temperatures",
        lambda: CalibratedClassifierCV(margins(), method="temperature", cv=2),
        NUMBERS,
        "grade",
    ),
    Case(
        "calibrated forest, by a temperature",
        lambda: CalibratedClassifierCV(forest(), method="temperature", cv=2),
        NUMBERS,
    ),
    Case(
        "calibrated probabilities, by temperatures",
        lambda: CalibratedClassifierCV(GaussianNB(), method="temperature", cv=2, ensemble=False),
        NUMBERS,
        "grade",
    ),
    Case("frozen, calibrated", linear, NUMBERS, fit=frozen()),
    Case("frozen, calibrated twice", linear, NUMBERS, "grade", fit=frozen(cv=2, ensemble=True)),
]
