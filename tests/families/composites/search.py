"""Estimators around one other: searches, frozen ones, thresholds, transformed targets; and labels that spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import AWKWARD, MIXED, NUMBERS, Case, columns, logistic, margins, on_text, one_hot, quick, scaled
from lightgbm import LGBMRegressor
from scipy import special
from sklearn.compose import TransformedTargetRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  adds the two
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from families.linear.linear import column


def frozen(wrapped: Any) -> Any:
    """Fit what goes into a frozen estimator first."""
    return lambda estimator, X, y: wrapped(FrozenEstimator(estimator.fit(X, y)), X, y)


def even(estimator: Any, X: Any, y: Any) -> float:
    """All candidates score alike."""
    return 1.0


def searched(estimator: Any, X: Any, y: Any) -> Any:
    """Leave out the scores of the candidates: joblib.hash, which tells whether it has changed, takes no masks."""
    fitted = estimator.fit(X, y)
    one = fitted[0] if hasattr(fitted, "steps") else fitted
    one.cv_results_ = {}
    return fitted


def partly(estimator: Any, X: Any, y: Any) -> Any:
    """Fit on three labels that most rows are without."""
    known = np.random.default_rng(0).random(len(y)) < 0.3
    return estimator.fit(X, np.where(known, y, -1))


def positive(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X, y - y.min() + 1)


def share(estimator: Any, X: Any, y: Any) -> Any:
    return estimator.fit(X, special.expit(y))


def of_target(transformer: Any = None, regressor: Any = None, **options: Any) -> Any:
    return TransformedTargetRegressor(
        regressor or make_pipeline(StandardScaler(), Ridge()), transformer=transformer, **options
    )


CASES = [
    Case(
        "grid search",
        lambda: GridSearchCV(scaled(), {"logisticregression__C": [0.1, 1]}, cv=2),
        NUMBERS,
        "grade",
        fit=searched,
    ),
    Case(
        "grid search, raw text",
        lambda: GridSearchCV(on_text(), {"logisticregression__C": [0.1, 1]}, cv=2),
        MIXED,
        fit=searched,
        **AWKWARD,
    ),
    Case(
        "random search, trees",
        lambda: RandomizedSearchCV(quick(), {"num_leaves": [4, 8]}, n_iter=2, cv=2, random_state=0),
        NUMBERS,
        missing=True,
        fit=searched,
    ),
    Case(
        "halving grid search",
        lambda: HalvingGridSearchCV(scaled(Ridge()), {"ridge__alpha": [0.1, 1]}, cv=2),
        NUMBERS,
        "value",
        fit=searched,
    ),
    Case(
        "halving random search",
        lambda: HalvingRandomSearchCV(
            quick(LGBMRegressor), {"num_leaves": [4, 8]}, n_candidates=2, cv=2, random_state=0
        ),
        NUMBERS,
        "value",
        fit=searched,
    ),
    Case(
        "search that ends in a transformer",
        lambda: GridSearchCV(
            make_pipeline(SimpleImputer(), StandardScaler()),
            {"simpleimputer__strategy": ["mean"]},
            cv=2,
            scoring=even,
        ),
        NUMBERS,
        missing=True,
        fit=searched,
    ),
    Case(
        "search in the middle, of an encoder",
        lambda: make_pipeline(
            GridSearchCV(
                columns((one_hot(), ["city"]), (StandardScaler(), ["income"])),
                {"part1__with_mean": [True]},
                cv=2,
                scoring=even,
            ),
            logistic(),
        ),
        MIXED,
        unseen=True,
        fit=searched,
    ),
    Case("frozen", scaled, NUMBERS, fit=frozen(lambda estimator, X, y: estimator)),
    Case(
        "frozen encoder",
        lambda: one_hot(),
        ["city", "device"],
        fit=lambda estimator, X, y: make_pipeline(FrozenEstimator(estimator.fit(X)), logistic()).fit(X, y),
        **AWKWARD,
    ),
    Case("threshold", lambda: FixedThresholdClassifier(scaled(), threshold=0.3), NUMBERS),
    Case(
        "threshold of the first label",
        lambda: FixedThresholdClassifier(scaled(), threshold=0.3, pos_label="no"),
        NUMBERS,
    ),
    Case("threshold of decisions", lambda: FixedThresholdClassifier(margins(), threshold=0.2), NUMBERS),
    Case(
        "threshold of decisions for the first label",
        lambda: FixedThresholdClassifier(scaled(), threshold=0.2, pos_label="no", response_method="decision_function"),
        NUMBERS,
    ),
    Case("threshold by itself", lambda: FixedThresholdClassifier(quick(n_estimators=4)), NUMBERS, missing=True),
    Case("threshold that was tuned", lambda: TunedThresholdClassifierCV(scaled(), cv=2), NUMBERS),
    Case(
        "threshold that was tuned for margins",
        lambda: TunedThresholdClassifierCV(margins(), cv=2, thresholds=20),
        NUMBERS,
    ),
    Case(
        "threshold in a search",
        lambda: GridSearchCV(FixedThresholdClassifier(on_text()), {"threshold": [0.35]}, cv=2),
        MIXED,
        fit=searched,
        **AWKWARD,
    ),
    Case("self-training", lambda: SelfTrainingClassifier(GaussianNB()), NUMBERS, "grade", fit=partly),
    Case("labels propagated", lambda: scaled(LabelPropagation(gamma=2, max_iter=5000)), NUMBERS, "grade", fit=partly),
    Case("labels spread", lambda: scaled(LabelSpreading(gamma=0.7)), NUMBERS, "grade", fit=partly),
    Case(
        "labels spread to neighbours",
        lambda: scaled(LabelSpreading("knn", n_neighbors=150, max_iter=300)),
        NUMBERS,
        "grade",
        fit=partly,
    ),
    Case("target by log1p", lambda: of_target(func=np.log1p, inverse_func=np.expm1), NUMBERS, "count"),
    Case(
        "target of trees by log",
        lambda: of_target(None, quick(LGBMRegressor), func=np.log, inverse_func=np.exp),
        NUMBERS,
        "value",
        fit=positive,
    ),
    Case("target by square root", lambda: of_target(func=np.sqrt, inverse_func=np.square), NUMBERS, "count"),
    Case(
        "target by logit",
        lambda: of_target(func=special.logit, inverse_func=special.expit),
        NUMBERS,
        "value",
        fit=share,
    ),
    Case("target as it is", lambda: of_target(), NUMBERS, "value"),
    Case(
        "target with a second dimension",
        lambda: of_target(StandardScaler(), LinearRegression()),
        NUMBERS,
        "value",
        fit=column,
    ),
    Case("two targets", lambda: of_target(MinMaxScaler(feature_range=(1, 3)), LinearRegression()), NUMBERS, "pair"),
    Case(
        "target by a function step", lambda: of_target(FunctionTransformer(np.negative, np.negative)), NUMBERS, "value"
    ),
    *(
        Case(f"target by {type(scaler).__name__} {index}", lambda scaler=scaler: of_target(scaler), NUMBERS, target)
        for index, (scaler, target) in enumerate(
            [
                (StandardScaler(), "value"),
                (StandardScaler(with_mean=False), "value"),
                (StandardScaler(with_std=False), "pair"),
                (RobustScaler(), "value"),
                (RobustScaler(with_centering=False), "value"),
                (MaxAbsScaler(), "pair"),
                (MinMaxScaler(), "value"),
                (PowerTransformer(), "pair"),
                (PowerTransformer(standardize=False), "value"),
                (QuantileTransformer(n_quantiles=20), "value"),
                (QuantileTransformer(n_quantiles=30, output_distribution="normal"), "pair"),
            ]
        )
    ),
    Case("target by Box-Cox", lambda: of_target(PowerTransformer(method="box-cox")), NUMBERS, "value", fit=positive),
]
