"""The 13 operators of Hummingbird's table 11, fitted as there on 150 rows of 20 columns and three classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import Binarizer, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from benchmarks.inference.model import Model

FEATURES, CLASSES = 20, 3
FITTED_ON = 150
OPERATOR_PEERS = ("onnxruntime", "hummingbird")


def labeled(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows that are normal around the center of their class, and the classes."""
    centers = np.random.default_rng(0).normal(scale=0.7, size=(CLASSES, FEATURES))
    random = np.random.default_rng(seed)
    y = random.integers(CLASSES, size=count)
    return (centers[y] + random.normal(size=(count, FEATURES))).astype(np.float32).astype(np.float64), y


def rows(count: int, seed: int) -> NDArray[np.float64]:
    """Rows without their classes."""
    return labeled(count, seed)[0]


def fitted(unfitted: Any) -> Any:
    """The operator on generated rows."""
    return unfitted.fit(*labeled(FITTED_ON, seed=1))


OPERATORS: dict[str, Model] = {
    type(unfitted).__name__: Model(partial(fitted, unfitted), rows, method, OPERATOR_PEERS)
    for unfitted, method in (
        (LogisticRegression(), "predict_proba"),
        (SGDClassifier(random_state=0), "predict"),
        (LinearSVC(), "predict"),
        (NuSVC(), "predict"),
        (SVC(), "predict"),
        (BernoulliNB(), "predict_proba"),
        (MLPClassifier(max_iter=1_000, random_state=0), "predict_proba"),
        (DecisionTreeClassifier(random_state=0), "predict_proba"),
        (Binarizer(), "transform"),
        (MinMaxScaler(), "transform"),
        (Normalizer(), "transform"),
        (PolynomialFeatures(), "transform"),
        (StandardScaler(), "transform"),
    )
}
