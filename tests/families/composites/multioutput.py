"""Several targets, side by side or in a chain."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import AWKWARD, MIXED, NUMBERS, Case, on_text, quick, scaled
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.svm import LinearSVC


def forest() -> Any:
    return RandomForestClassifier(3, max_depth=3, random_state=0)


def texts(estimator: Any, X: Any, y: Any) -> Any:
    """Fit targets of two and of three labels that are texts."""
    grade = np.array(["low", "middle", "top"])[np.digitize(y[:, 0], [-0.5, 0.8])]
    return estimator.fit(X, np.stack([np.where(y[:, 1] > 1, "yes", "no"), grade], axis=1))


def binary(estimator: Any, X: Any, y: Any) -> Any:
    """Fit three targets of two numbers each."""
    return estimator.fit(X, np.stack([*_binary(y), y[:, 0] > 0.8], axis=1))


def _binary(y: Any) -> list[Any]:
    return [np.where(y[:, 1] > 1, 7, -2), np.where(y[:, 0] > 0, 1, 0)]


def three(estimator: Any, X: Any, y: Any) -> Any:
    """Fit three values."""
    return estimator.fit(X, np.stack([y[:, 0], y[:, 1], y[:, 0] - y[:, 1]], axis=1))


CASES = [
    Case("targets of values", lambda: MultiOutputRegressor(Ridge()), NUMBERS, "pair"),
    Case(
        "targets of values, trees", lambda: MultiOutputRegressor(quick(LGBMRegressor, n_estimators=4)), NUMBERS, "pair"
    ),
    Case("targets of values, raw text", lambda: MultiOutputRegressor(on_text(Ridge())), MIXED, "pair", **AWKWARD),
    Case(
        "a target of values",
        lambda: MultiOutputRegressor(Ridge()),
        NUMBERS,
        "pair",
        fit=lambda estimator, X, y: estimator.fit(X, y[:, :1]),
    ),
    Case("targets of texts", lambda: MultiOutputClassifier(scaled()), NUMBERS, "pair", fit=texts),
    Case("targets of texts, forests", lambda: MultiOutputClassifier(forest()), NUMBERS, "pair", fit=texts),
    Case("targets of texts, margins", lambda: MultiOutputClassifier(scaled(LinearSVC())), NUMBERS, "pair", fit=texts),
    Case("chain of values", lambda: RegressorChain(LinearRegression(), order=[2, 0, 1]), NUMBERS, "pair", fit=three),
    Case("chain of values, trees", lambda: RegressorChain(quick(LGBMRegressor, n_estimators=4), cv=2), NUMBERS, "pair"),
    Case("chain of labels", lambda: ClassifierChain(scaled(), order=(1, 2, 0)), NUMBERS, "pair", fit=binary),
    Case(
        "chain of labels, forests",
        lambda: ClassifierChain(forest(), order="random", random_state=3),
        NUMBERS,
        "pair",
        fit=binary,
    ),
    *(
        Case(
            f"chain of {method}",
            lambda method=method: ClassifierChain(scaled(), order=[2, 0, 1], cv=2, chain_method=method),
            NUMBERS,
            "pair",
            fit=binary,
        )
        for method in ("predict_proba", "predict_log_proba", "decision_function")
    ),
    Case(
        "chain, trees and their probabilities",
        lambda: ClassifierChain(quick(n_estimators=4), chain_method="predict_proba"),
        NUMBERS,
        "pair",
        fit=binary,
    ),
]
