"""Stacks and votes."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import AWKWARD, MIXED, NUMBERS, Case, columns, logistic, on_text, ordinal, quick, scaled
from lightgbm import LGBMRegressor
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC


def members() -> list[tuple[str, Any]]:
    """Three classifiers over numbers."""
    return [
        ("linear", scaled()),
        ("gone", "drop"),
        ("trees", quick(n_estimators=5)),
        ("margins", make_pipeline(MinMaxScaler(), LinearSVC(random_state=0))),
    ]


def likely() -> list[tuple[str, Any]]:
    """Classifiers with probabilities."""
    return [one for one in members() if one[0] != "margins"]


def counting() -> list[tuple[str, Any]]:
    """Regressors of counts, with a logarithmic link."""
    return [
        ("linear", make_pipeline(StandardScaler(), PoissonRegressor())),
        ("trees", HistGradientBoostingRegressor(loss="poisson", max_iter=5, max_depth=3, random_state=0)),
    ]


def regressors() -> list[tuple[str, Any]]:
    return [
        ("linear", make_pipeline(StandardScaler(), Ridge())),
        ("gone", "drop"),
        ("trees", quick(LGBMRegressor, n_estimators=5)),
    ]


def trees_on_text() -> Any:
    return make_pipeline(columns((ordinal(), ["city", "device"]), remainder="passthrough"), quick(n_estimators=5))


def prefit(stack: type, given: Any) -> Any:
    """Fit the members first, on the labels as they are, then a stack over them."""

    def fit(estimator: Any, X: Any, y: Any) -> Any:
        fitted = [(name, one if one == "drop" else one.fit(X, y)) for name, one in given()]
        return stack(fitted, cv="prefit").fit(X, y)

    return fit


CASES = [
    Case("stack, trees and linear", lambda: StackingClassifier(members(), cv=2), NUMBERS),
    Case("stack, three classes", lambda: StackingClassifier(members(), cv=2), NUMBERS, "grade"),
    Case(
        "stack, probabilities, passed through",
        lambda: StackingClassifier(likely(), scaled(), cv=2, stack_method="predict_proba", passthrough=True),
        NUMBERS,
        "grade",
    ),
    Case(
        "stack, decisions",
        lambda: StackingClassifier(
            [("a", scaled(SGDClassifier(random_state=0))), ("b", scaled(LinearSVC(random_state=0)))],
            logistic(),
            cv=2,
            stack_method="decision_function",
        ),
        ("age", "visits"),
        "grade",
    ),
    Case(
        "stack, labels",
        lambda: StackingClassifier(members(), logistic(), cv=2, stack_method="predict"),
        NUMBERS,
    ),
    Case(
        "stack, raw text into parts",
        lambda: StackingClassifier([("linear", on_text()), ("trees", trees_on_text())], logistic(), cv=2),
        MIXED,
        **AWKWARD,
    ),
    Case(
        "stack, trees on top, inside a pipeline",
        lambda: make_pipeline(
            SimpleImputer(), StandardScaler(), StackingClassifier(likely(), quick(n_estimators=4), cv=2)
        ),
        NUMBERS,
        missing=True,
    ),
    Case(
        "stack of fitted ones",
        lambda: None,
        NUMBERS,
        "grade",
        fit=prefit(StackingClassifier, likely),
    ),
    Case(
        "stack of stacks",
        lambda: StackingClassifier(
            [("inner", StackingClassifier(likely(), logistic(), cv=2)), ("trees", quick(n_estimators=4))],
            scaled(VotingClassifier([("a", logistic()), ("b", logistic(C=0.1))], voting="soft")),
            cv=2,
        ),
        NUMBERS,
        "grade",
    ),
    Case(
        "stack in the middle",
        lambda: make_pipeline(
            StackingClassifier(likely(), scaled(), cv=2, passthrough=True), StandardScaler(), logistic()
        ),
        NUMBERS,
        "grade",
    ),
    Case("stack of regressors", lambda: StackingRegressor(regressors(), cv=2), NUMBERS, "value"),
    Case(
        "stack of regressors, passed through",
        lambda: StackingRegressor(regressors(), quick(LGBMRegressor, n_estimators=4), cv=2, passthrough=True),
        NUMBERS,
        "value",
    ),
    Case("stack of fitted regressors", lambda: None, NUMBERS, "value", fit=prefit(StackingRegressor, regressors)),
    Case("vote, soft", lambda: VotingClassifier(likely(), voting="soft"), NUMBERS),
    Case(
        "vote, soft, weighted",
        lambda: VotingClassifier(likely(), voting="soft", weights=[2, 5, 1]),
        NUMBERS,
        "grade",
    ),
    Case(
        "vote, soft, one class",
        lambda: VotingClassifier([("a", RandomForestClassifier(2, max_depth=2))], voting="soft"),
        NUMBERS,
        fit=lambda estimator, X, y: estimator.fit(X, np.full(len(X), "yes")),
    ),
    Case(
        "vote, hard",
        lambda: VotingClassifier(members()),
        NUMBERS,
        "grade",
    ),
    Case(
        "vote, hard, weighted, of raw text",
        lambda: VotingClassifier(
            [("linear", on_text()), ("gone", "drop"), ("trees", trees_on_text())], weights=[1, 7, 2]
        ),
        MIXED,
        **AWKWARD,
    ),
    Case(
        "vote in the middle",
        lambda: make_pipeline(VotingClassifier(likely(), voting="soft"), logistic()),
        NUMBERS,
        "grade",
    ),
    Case("vote of regressors", lambda: VotingRegressor(regressors()), NUMBERS, "value"),
    Case("vote of Poisson models", lambda: VotingRegressor(counting(), weights=[3, 1]), NUMBERS, "count"),
    Case(
        "vote of votes of Poisson models",
        lambda: VotingRegressor([("first", VotingRegressor(counting())), ("second", counting()[0][1])]),
        NUMBERS,
        "count",
    ),
    Case(
        "vote of regressors, weighted, then linear",
        lambda: make_pipeline(VotingRegressor(regressors(), weights=[3, 5, 1]), LinearRegression()),
        NUMBERS,
        "value",
    ),
]
