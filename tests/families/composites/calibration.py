"""Calibrated classifiers."""

from __future__ import annotations

from typing import Any

from case import AWKWARD, MIXED, NUMBERS, Case, margins, on_text, quick, scaled
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

STEEP = "an isotonic step may be as steep as it likes: what float32 rounds off the score grows by it"


def forest() -> Any:
    return RandomForestClassifier(6, max_depth=4, random_state=0)


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
    Case(
        "calibrated, raw text",
        lambda: CalibratedClassifierCV(on_text(LinearSVC(random_state=0)), cv=2),
        MIXED,
        "grade",
        **AWKWARD,
    ),
    Case(
        "calibrated step by step",
        lambda: CalibratedClassifierCV(margins(), method="isotonic", cv=2),
        NUMBERS,
        coarse=1e-3,
        why=STEEP,
    ),
    Case(
        "calibrated step by step, three classes",
        lambda: CalibratedClassifierCV(scaled(), method="isotonic", cv=2, ensemble=False),
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
    Case(
        "calibrated by a temperature",
        lambda: CalibratedClassifierCV(scaled(), method="temperature", cv=2),
        NUMBERS,
        since="1.8",
    ),
    Case(
        "calibrated by temperatures",
        lambda: CalibratedClassifierCV(margins(), method="temperature", cv=2),
        NUMBERS,
        "grade",
        since="1.8",
    ),
    Case(
        "calibrated forest, by a temperature",
        lambda: CalibratedClassifierCV(forest(), method="temperature", cv=2),
        NUMBERS,
        since="1.8",
    ),
    Case(
        "calibrated probabilities, by temperatures",
        lambda: CalibratedClassifierCV(GaussianNB(), method="temperature", cv=2, ensemble=False),
        NUMBERS,
        "grade",
        since="1.8",
    ),
    Case("frozen, calibrated", scaled, NUMBERS, fit=frozen()),
    Case("frozen, calibrated twice", scaled, NUMBERS, "grade", fit=frozen(cv=2, ensemble=True)),
]
