"""Linear models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from case import (
    NUMBERS,
    Case,
)
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.linear_model import (
    ElasticNet,
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
    SGDOneClassSVM,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    StandardScaler,
)
from sklearn.svm import LinearSVC, LinearSVR


def scaled(make: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    return lambda: make_pipeline(StandardScaler(), make(**options))


def deprecated(name: str, **options: Any) -> Callable[[], Any]:
    """An estimator that scikit-learn is about to remove, and says so wherever it is made."""

    def make() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return make_pipeline(StandardScaler(), getattr(linear_model, name)(**options))

    return make


def several(y: NDArray[Any]) -> NDArray[Any]:
    """Three labels at once, of which a row may have any."""
    return np.stack([y > 0, y > 1, (y < 0.5) & (y > -1)], axis=1).astype(int)


def labels(estimator: Any, X: Any, y: Any) -> Any:
    """Fit to several labels."""
    return estimator.fit(X, several(y))


def column(estimator: Any, X: Any, y: Any) -> Any:
    """Fit to one target in two dimensions."""
    return estimator.fit(X, y[:, None])


def sparsified(estimator: Any, X: Any, y: Any) -> Any:
    """Keep the coefficients as a sparse matrix."""
    estimator.fit(X, y)[-1].sparsify()
    return estimator


def legacy(estimator: Any, X: Any, y: Any) -> Any:
    """Fit a logistic regression with cross-validation without the warning of attributes that will change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return estimator.fit(X, y)


REGRESSORS = [
    "ARDRegression", "BayesianRidge", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso", "LassoCV",
    "LassoLars", "LassoLarsCV", "LassoLarsIC", "OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV", "Ridge",
    "RidgeCV",
]  # fmt: skip
SEVERAL = [
    "Lars", "Lasso", "LassoLars", "MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV",
    "OrthogonalMatchingPursuit", "RANSACRegressor", "Ridge", "RidgeCV",
]  # fmt: skip
SEEDED = {name: {"random_state": 0} for name in ("RANSACRegressor", "TheilSenRegressor")}

CASES = [
    Case("linear regression, two targets", LinearRegression, NUMBERS, "pair"),
    Case("linear regression, one column", LinearRegression, NUMBERS, "value", fit=column),
    Case("linear regression, positive", scaled(LinearRegression, positive=True), NUMBERS, "value"),
    Case("linear regression, one feature", scaled(LinearRegression, fit_intercept=False), ("age",), "value"),
    *(Case(f"regressor {name}", scaled(getattr(linear_model, name)), NUMBERS, "value") for name in REGRESSORS),
    *(
        Case(f"regressor {name}, two targets", scaled(getattr(linear_model, name), **SEEDED.get(name, {})), NUMBERS,
             "pair")
        for name in SEVERAL
    ),
    Case("ridge, one column", scaled(Ridge, fit_intercept=False), NUMBERS, "value", fit=column),
    Case("quantile regressor", scaled(linear_model.QuantileRegressor, alpha=0.01, quantile=0.8), NUMBERS, "value"),
    Case("theil-sen", scaled(linear_model.TheilSenRegressor, random_state=0, max_subpopulation=200), NUMBERS, "value"),
    Case("ransac", scaled(linear_model.RANSACRegressor, random_state=0), NUMBERS, "value"),
    Case(
        "ransac over a pipeline",
        lambda: linear_model.RANSACRegressor(
            make_pipeline(StandardScaler(), Ridge()), min_samples=20, random_state=0
        ),
        NUMBERS,
        "value",
    ),
    Case("elastic net", lambda: make_pipeline(StandardScaler(), ElasticNet(alpha=0.01)), NUMBERS, "value"),
    Case(
        "sgd regressor",
        lambda: make_pipeline(StandardScaler(), SGDRegressor(loss="epsilon_insensitive", random_state=0)),
        NUMBERS,
        "value",
    ),
    Case("sgd regressor, huber", scaled(SGDRegressor, loss="huber", average=True, random_state=0), NUMBERS, "value"),
    Case("sgd regressor, sparse", scaled(SGDRegressor, penalty="l1", random_state=0), NUMBERS, "value",
         fit=sparsified),
    Case("passive aggressive regressor", deprecated("PassiveAggressiveRegressor", random_state=0), NUMBERS, "value"),
    Case("linear svr", scaled(LinearSVR, intercept_scaling=3, random_state=0), NUMBERS, "value"),
    Case("poisson", scaled(linear_model.PoissonRegressor), NUMBERS, "count"),
    Case("gamma", scaled(linear_model.GammaRegressor), NUMBERS, "count",
         fit=lambda estimator, X, y: estimator.fit(X, y + 1)),
    Case("tweedie, power 1.5", scaled(TweedieRegressor, power=1.5), NUMBERS, "count"),
    Case("tweedie, power 0", scaled(TweedieRegressor, power=0), NUMBERS, "value"),
    Case("tweedie, power 0, log link", scaled(TweedieRegressor, power=0, link="log"), NUMBERS, "count"),
    Case("tweedie, power 1.5, identity link", scaled(TweedieRegressor, power=1.5, link="identity", alpha=10.0),
         NUMBERS, "count", fit=lambda estimator, X, y: estimator.fit(X, y + 5)),
    Case("logistic, three classes", scaled(LogisticRegression), NUMBERS, "grade"),
    Case("logistic, liblinear", scaled(LogisticRegression, solver="liblinear", intercept_scaling=5), NUMBERS),
    Case("logistic, sparse", scaled(LogisticRegression, fit_intercept=False), NUMBERS, "grade", fit=sparsified),
    Case("logistic, cross-validated", scaled(linear_model.LogisticRegressionCV, Cs=3, cv=3), NUMBERS, fit=legacy),
    Case("logistic, cross-validated, three classes", scaled(linear_model.LogisticRegressionCV, Cs=3, cv=3), NUMBERS,
         "grade", fit=legacy),
    Case("ridge classifier", scaled(RidgeClassifier), NUMBERS),
    Case("ridge classifier, three classes", scaled(RidgeClassifier, fit_intercept=False), NUMBERS, "grade"),
    Case("ridge classifier, several labels", scaled(RidgeClassifier), NUMBERS, "value", fit=labels),
    Case("ridge classifier, one class", scaled(RidgeClassifier), NUMBERS,
         fit=lambda estimator, X, y: estimator.fit(X, np.full(len(y), "only"))),
    Case("ridge classifier, cross-validated", scaled(RidgeClassifierCV), NUMBERS, "grade"),
    Case("ridge classifier, cross-validated, several labels", scaled(RidgeClassifierCV), NUMBERS, "value", fit=labels),
    Case("perceptron", scaled(linear_model.Perceptron, random_state=0), NUMBERS, "grade"),
    Case("passive aggressive classifier", deprecated("PassiveAggressiveClassifier", random_state=0), NUMBERS, "grade"),
    Case("sgd log loss", scaled(SGDClassifier, loss="log_loss", random_state=0), NUMBERS),
    Case("sgd log loss, all margins far below 0", lambda: SGDClassifier(loss="log_loss", random_state=0), NUMBERS,
         "grade", since="1.9"),
    Case("sgd modified huber, two classes", scaled(SGDClassifier, loss="modified_huber", random_state=0), NUMBERS),
    Case(
        "sgd modified huber",
        lambda: make_pipeline(StandardScaler(), SGDClassifier(loss="modified_huber", random_state=0)),
        NUMBERS,
        "grade",
    ),
    Case("sgd modified huber, sparse", scaled(SGDClassifier, loss="modified_huber", random_state=0), NUMBERS, "grade",
         fit=sparsified),
    Case("sgd one class", scaled(SGDOneClassSVM, nu=0.2, random_state=0), NUMBERS),
    Case("linear svc", lambda: make_pipeline(StandardScaler(), LinearSVC()), NUMBERS),
    Case("linear svc, crammer-singer",
         scaled(LinearSVC, multi_class="crammer_singer", C=0.01, max_iter=20_000, random_state=0), NUMBERS, "grade",
         since="1.9"),
    Case("linear svc, intercept scaled", scaled(LinearSVC, intercept_scaling=10, random_state=0), NUMBERS, "grade"),
]  # fmt: skip
