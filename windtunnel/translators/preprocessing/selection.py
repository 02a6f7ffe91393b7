"""scikit-learn's selectors of columns."""

from __future__ import annotations

from typing import Any

from sklearn import feature_selection

from windtunnel.translators.conversions import Selection
from windtunnel.translators.registry import translates


@translates(
    feature_selection.GenericUnivariateSelect,
    feature_selection.SelectFdr,
    feature_selection.SelectFpr,
    feature_selection.SelectFromModel,
    feature_selection.SelectFwe,
    feature_selection.SelectKBest,
    feature_selection.SelectPercentile,
    feature_selection.SequentialFeatureSelector,
    feature_selection.VarianceThreshold,
    notes="no parameters; kept columns stay what they are, numbers or categories",
)
def selector(fitted: Any) -> Selection:
    """The columns of get_support()."""
    return Selection(_kept(fitted))


@translates(
    feature_selection.RFE,
    feature_selection.RFECV,
    notes="a selection of columns inside a pipeline; at its end it predicts with its estimator_",
)
def recursive_elimination(fitted: Any) -> Selection:
    """The columns of support_; ``estimator_`` predicts from them."""
    return Selection(_kept(fitted), then=fitted.estimator_ if hasattr(fitted.estimator_, "predict") else None)


def _kept(fitted: Any) -> list[int]:
    return [int(column) for column in fitted.get_support(indices=True)]
