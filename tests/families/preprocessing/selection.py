"""Selectors of columns."""

from __future__ import annotations

import numpy as np
from case import FOUR, NUMBERS, Case, columns, logistic, one_hot, quick, scaled
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    chi2,
    f_regression,
)
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

CASES = [
    Case("k best alone", lambda: SelectKBest(k=2), FOUR),
    Case("k best, logistic", lambda: scaled(SelectKBest(k=2), logistic()), FOUR),
    Case("percentile", lambda: make_pipeline(SelectPercentile(f_regression, percentile=50), Ridge()), FOUR, "value"),
    Case("false positive rate", lambda: make_union(SelectFpr(alpha=0.3), StandardScaler()), FOUR),
    Case("false discovery rate", lambda: SelectFdr(alpha=0.3), FOUR),
    Case("family-wise error", lambda: make_pipeline(SelectFwe(alpha=0.3), quick()), FOUR),
    Case("univariate selection", lambda: GenericUnivariateSelect(mode="k_best", param=3), FOUR, "grade"),
    Case("variance threshold with missing values", lambda: VarianceThreshold(1.0), FOUR, missing=True),
    Case(
        "categories that are selected as numbers, then encoded",
        lambda: make_pipeline(SelectKBest(chi2, k=1), one_hot(), logistic()),
        ("visits", "zip"),
        unseen=True,
    ),
    Case(
        "variance threshold inside columns, then trees",
        lambda: make_pipeline(
            columns(
                (make_pipeline(one_hot(sparse_output=False), VarianceThreshold(0.05)), ["city", "device"]),
                (VarianceThreshold(1.0), list(FOUR)),
            ),
            quick(),
        ),
        (*FOUR, "city", "device"),
        missing=True,
        unseen=True,
    ),
    Case(
        "selection by a model",
        lambda: scaled(SelectFromModel(logistic(), threshold=-np.inf, max_features=2), logistic()),
        FOUR,
    ),
    Case("selection by trees, missing values", lambda: SelectFromModel(quick()), FOUR, missing=True),
    Case(
        "sequential selection",
        lambda: SequentialFeatureSelector(LinearRegression(), n_features_to_select=2, cv=2),
        FOUR,
        "value",
    ),
    Case("elimination that predicts labels", lambda: RFE(logistic(), n_features_to_select=2), NUMBERS),
    Case(
        "elimination that predicts three labels", lambda: scaled(RFE(logistic(), n_features_to_select=2)), FOUR, "grade"
    ),
    Case("elimination that predicts values", lambda: RFE(Ridge(), n_features_to_select=2), FOUR, "value"),
    Case(
        "elimination inside a pipeline",
        lambda: scaled(RFECV(logistic(), cv=2, min_features_to_select=2), logistic()),
        FOUR,
        "grade",
    ),
    Case("elimination by trees", lambda: RFECV(quick(), cv=2), FOUR, missing=True),
]
