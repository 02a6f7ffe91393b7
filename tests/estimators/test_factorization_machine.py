"""Factorization machines: their fit, their formula, and scikit-learn's checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from windtunnel import FactorizationMachineClassifier, FactorizationMachineRegressor
from windtunnel.errors import InvalidOption


def pairs(rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Numbers whose products two by two make the target."""
    X = np.random.default_rng(0).normal(size=(rows, 4))
    return X, X[:, 0] * X[:, 1] - 2 * X[:, 2] * X[:, 3] + 0.5 * X[:, 0]


def test_it_learns_products_of_columns() -> None:
    X, y = pairs()
    machine = FactorizationMachineRegressor(4, learning_rate=0.02, epochs=60, batch_size=32, random_state=0).fit(X, y)
    assert machine.score(X, y) > 0.95 > 0.5 > LinearRegression().fit(X, y).score(X, y)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-1, 1])]
    for target in (labels, y > 0):
        options: dict[str, Any] = {"learning_rate": 0.02, "epochs": 40, "batch_size": 32, "random_state": 0}
        classifier = FactorizationMachineClassifier(4, **options).fit(X, target)
        assert classifier.score(X, target) > LogisticRegression().fit(X, target).score(X, target) + 0.1


def test_scores_follow_the_formula() -> None:
    X, y = pairs(50)
    machine = FactorizationMachineRegressor(3, epochs=3, random_state=0).fit(X, y)
    products = machine.factors_[0] @ machine.factors_[0].T
    wanted = machine.intercept_[0] + X @ machine.coef_[0]
    for i in range(4):
        for j in range(i):
            wanted = wanted + products[i, j] * X[:, i] * X[:, j]
    np.testing.assert_allclose(machine.predict(X), wanted, 1e-12)


def test_sparse_rows_give_the_same_model() -> None:
    X, y = pairs(80)
    X[np.abs(X) < 0.8] = 0
    dense = FactorizationMachineRegressor(3, epochs=3, random_state=0).fit(X, y)
    again = clone(dense).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(again.predict(sparse.csr_matrix(X)), dense.predict(X), 1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_factors": 0}, "n_factors=0; give a whole number from 1 up"),
        ({"learning_rate": 0}, "learning_rate=0; give a number above 0"),
        ({"regularization": -1}, "regularization=-1"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        FactorizationMachineRegressor(**options).fit(*pairs(20))


@parametrize_with_checks(
    [
        FactorizationMachineClassifier(2, learning_rate=0.1, epochs=15, batch_size=16, random_state=0),
        FactorizationMachineRegressor(2, learning_rate=0.1, epochs=15, batch_size=16, random_state=0),
    ]
)
def test_sklearn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
