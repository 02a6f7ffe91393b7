"""Classifiers of several classes, or labels, made of classifiers of two."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from case import AWKWARD, MIXED, NUMBERS, Case, margins, on_text, quick, scaled
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.naive_bayes import GaussianNB


def forest() -> Any:
    """Probabilities, and no decisions."""
    return RandomForestClassifier(4, max_depth=4, random_state=0)


def labels(estimator: Any, X: Any, y: Any) -> Any:
    """Fit three labels that may be there or not, of which one always is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Label 1 is present in all", UserWarning)
        return estimator.fit(X, np.stack([y[:, 0] > 0, np.ones(len(y), bool), y[:, 1] > 1], axis=1).astype(int))


def one_class(estimator: Any, X: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Label .* is present in all", UserWarning)
        return estimator.fit(X, np.full(len(y), "yes"))


def negative(estimator: Any, X: Any, y: Any) -> Any:
    """Labels that are negative and leave gaps."""
    return estimator.fit(X, np.select([y == 1, y == 3], [-5, 12], -1))


CASES = [
    Case("one against the rest, decisions", lambda: OneVsRestClassifier(scaled()), NUMBERS, "grade"),
    Case(
        "one against the rest, negative labels", lambda: OneVsRestClassifier(margins()), NUMBERS, "grade", fit=negative
    ),
    Case("one against the rest, forests", lambda: OneVsRestClassifier(forest()), NUMBERS, "grade"),
    Case(
        "one against the rest, trees",
        lambda: OneVsRestClassifier(quick(n_estimators=4)),
        NUMBERS,
        "grade",
        missing=True,
    ),
    Case("one against the rest, raw text", lambda: OneVsRestClassifier(on_text()), MIXED, "grade", **AWKWARD),
    Case("one against the rest, two classes", lambda: OneVsRestClassifier(scaled()), NUMBERS),
    Case("one against the rest, two classes, forests", lambda: OneVsRestClassifier(forest()), NUMBERS),
    Case("one against the rest, values", lambda: OneVsRestClassifier(Ridge()), NUMBERS, "grade"),
    Case("one against the rest, two classes, values", lambda: OneVsRestClassifier(Ridge()), NUMBERS),
    Case("one against the rest, one class", lambda: OneVsRestClassifier(scaled()), NUMBERS, fit=one_class),
    Case("labels, decisions", lambda: OneVsRestClassifier(scaled()), NUMBERS, "pair", fit=labels),
    Case("labels, forests", lambda: OneVsRestClassifier(forest()), NUMBERS, "pair", fit=labels),
    Case("one against one", lambda: OneVsOneClassifier(scaled()), NUMBERS, "grade"),
    Case("one against one, margins", lambda: OneVsOneClassifier(margins()), NUMBERS, "grade", fit=negative),
    Case("one against one, probabilities", lambda: OneVsOneClassifier(GaussianNB()), NUMBERS, "grade"),
    Case("one against one, two classes", lambda: OneVsOneClassifier(scaled()), NUMBERS),
    Case(
        "one against one, two classes, trees",
        lambda: OneVsOneClassifier(quick(n_estimators=4)),
        NUMBERS,
    ),
    Case("codes, decisions", lambda: OutputCodeClassifier(scaled(), code_size=2, random_state=0), NUMBERS, "grade"),
    Case(
        "codes, probabilities",
        lambda: OutputCodeClassifier(GaussianNB(), code_size=3, random_state=1),
        NUMBERS,
        "grade",
    ),
    Case("codes, two classes", lambda: OutputCodeClassifier(margins(), code_size=3, random_state=2), NUMBERS),
]
