"""Naive Bayes."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import CATEGORIES, NUMBERS, Case, ordinal
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler


def partly(estimator: Any, X: Any, y: Any) -> Any:
    """Fit with a class that has no row."""
    return estimator.partial_fit(X, y, classes=[*np.unique(y), 100])


def alone(estimator: Any, X: Any, y: Any) -> Any:
    """Fit with a single class."""
    return estimator.fit(X, np.full(len(y), -3))


CASES = [
    Case("gaussian naive bayes", GaussianNB, NUMBERS),
    Case("gaussian naive bayes, scaled", lambda: make_pipeline(StandardScaler(), GaussianNB(var_smoothing=0.1)),
         NUMBERS, "grade"),
    Case("gaussian naive bayes, priors", lambda: GaussianNB(priors=[0.1, 0.7, 0.2]), NUMBERS, "grade"),
    Case("gaussian naive bayes, a class without rows", lambda: GaussianNB(priors=[0.3, 0.3, 0.3, 0.1]),
         NUMBERS, "grade", fit=partly),
    Case("gaussian naive bayes, one class", GaussianNB, NUMBERS, fit=alone),
    Case("bernoulli naive bayes", BernoulliNB, ("visits",), "grade"),
    Case("bernoulli naive bayes, threshold", lambda: make_pipeline(StandardScaler(), BernoulliNB(binarize=0.3)),
         NUMBERS),
    Case("bernoulli naive bayes, no threshold", lambda: make_pipeline(MinMaxScaler(clip=True),
         BernoulliNB(binarize=None, fit_prior=False)), NUMBERS, "grade"),
    Case("multinomial naive bayes", lambda: MultinomialNB(alpha=[0.5, 2.0]), ("visits", "zip"), "grade"),
    Case("multinomial naive bayes, no priors", lambda: MultinomialNB(fit_prior=False), ("visits", "zip")),
    Case("complement naive bayes", ComplementNB, ("visits", "zip"), "grade"),
    Case("complement naive bayes, normalised", lambda: ComplementNB(norm=True, alpha=0.1), ("visits", "zip", "cents"),
         "grade"),
    Case("complement naive bayes, one class", ComplementNB, ("visits", "zip"), "grade", fit=alone),
    Case("categorical naive bayes", lambda: make_pipeline(ordinal(unknown_value=8, encoded_missing_value=8),
         CategoricalNB(alpha=0.5, min_categories=9)), CATEGORIES, "grade", missing=True, unseen=True),
    Case("categorical naive bayes over numbers", lambda: CategoricalNB(min_categories=20, fit_prior=False),
         ("visits",)),
]  # fmt: skip
