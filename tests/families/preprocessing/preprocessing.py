"""Bins, quantiles, powers, products, splines, functions and the imputers that learn from other columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from case import NUMBERS, Case, columns, logistic, quick, scaled
from scipy.special import expit
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    KernelCenterer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

POSITIVE = ("age", "income", "cents")
HAZY = ("age", "income", "cents", "visits")


def bins(**options: Any) -> KBinsDiscretizer:
    return KBinsDiscretizer(**{"quantile_method": "averaged_inverted_cdf", "subsample": None} | options)


def square(estimator: Any, X: Any, y: Any) -> Any:
    """Fit on as many rows as there are columns, as kernels are."""
    return estimator.fit(X[: X.shape[1]])


def used(estimator: Any, X: Any, y: Any) -> Any:
    """Fit and ask once: SciPy's splines then make their arrays contiguous."""
    estimator.fit(X).transform(X)
    return estimator


CASES = [
    *[
        Case(
            f"bins, {encode}, {strategy}",
            lambda encode=encode, strategy=strategy: bins(n_bins=4, encode=encode, strategy=strategy),
            POSITIVE,
        )
        for encode in ("onehot", "onehot-dense", "ordinal")
        for strategy in ("uniform", "quantile")
    ],
    Case("bins of float32", lambda: bins(n_bins=[3, 5], strategy="uniform", dtype=np.float32), ("age", "visits")),
    Case("binarizer", lambda: Binarizer(threshold=1.0), NUMBERS),
    *[
        Case(
            f"quantiles, {distribution}",
            lambda distribution=distribution: QuantileTransformer(n_quantiles=40, output_distribution=distribution),
            HAZY,
            missing=True,
        )
        for distribution in ("uniform", "normal")
    ],
    Case(
        "quantiles, trees",
        lambda: make_pipeline(QuantileTransformer(n_quantiles=30), quick()),
        NUMBERS,
        missing=True,
    ),
    Case("power, yeo-johnson", PowerTransformer, HAZY, missing=True),
    Case("power, box-cox", lambda: PowerTransformer("box-cox"), POSITIVE, missing=True),
    Case(
        "power without scale, logistic",
        lambda: make_pipeline(PowerTransformer(standardize=False), StandardScaler(), logistic()),
        NUMBERS,
    ),
    Case("products of columns", lambda: scaled(PolynomialFeatures(3)), NUMBERS),
    Case(
        "interactions, ridge",
        lambda: scaled(PolynomialFeatures((2, 3), interaction_only=True, include_bias=False), Ridge()),
        NUMBERS,
        "value",
    ),
    *[
        Case(
            f"splines, {extrapolation}",
            lambda extrapolation=extrapolation: SplineTransformer(4, extrapolation=extrapolation),
            ("age", "income"),
            fit=used,
        )
        for extrapolation in ("constant", "linear", "continue", "periodic")
    ],
    Case(
        "splines that take missing numbers, logistic",
        lambda: make_pipeline(
            SplineTransformer(5, degree=2, knots="quantile", handle_missing="zeros", include_bias=False), logistic()
        ),
        ("age", "cents"),
        missing=True,
        since="1.9",
    ),
    Case(
        "functions of numbers",
        lambda: columns(
            (FunctionTransformer(np.log1p), ["visits"]),
            (make_pipeline(FunctionTransformer(np.sqrt, validate=True), StandardScaler()), ["income"]),
            (FunctionTransformer(np.clip, kw_args={"a_min": 20, "a_max": 50}), ["age"]),
            (FunctionTransformer(np.nan_to_num, kw_args={"nan": -1.0}), ["age"]),
            (scaled(FunctionTransformer(expit)), ["age"]),
        ),
        NUMBERS,
        missing=True,
    ),
    Case("kernel centred", lambda: scaled(KernelCenterer()), NUMBERS, fit=square),
    Case("flags of missing numbers", lambda: MissingIndicator(features="all"), NUMBERS, missing=True),
    Case(
        "flags of what was missing, logistic",
        lambda: make_pipeline(MissingIndicator(), logistic()),
        HAZY,
        missing=True,
    ),
    Case("flags of missing texts", lambda: MissingIndicator(missing_values="phone", features="all"), ("device",)),
    Case(
        "nearest rows impute",
        lambda: scaled(KNNImputer(n_neighbors=3, add_indicator=True)),
        ("age", "share"),
        missing=True,
    ),
    Case(
        "imputer round by round",
        lambda: scaled(IterativeImputer(max_iter=4, random_state=0), logistic()),
        HAZY,
        missing=True,
    ),
    Case(
        "imputer round by round, bounds and flags",
        lambda: IterativeImputer(Ridge(), max_iter=2, tol=10, min_value=0, add_indicator=True, random_state=0),
        ("age", "cents", "visits"),
        missing=True,
    ),
]
