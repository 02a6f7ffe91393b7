"""Converters of estimators that are made of other estimators."""

from windtunnel.translators.composites import (
    boosting_and_bagging as boosting_and_bagging,
    calibration as calibration,
    cross_fitted as cross_fitted,
    frozen as frozen,
    multiclass as multiclass,
    multioutput as multioutput,
    search as search,
    stacking as stacking,
    target as target,
    threshold as threshold,
    voting as voting,
)
