"""scikit-learn's FrozenEstimator, which predicts as the estimator inside."""

from __future__ import annotations

from sklearn.frozen import FrozenEstimator

from windtunnel.translators.conversions import Composite
from windtunnel.translators.registry import translates


@translates(FrozenEstimator, trainable="as the estimator inside", notes="transparent")
def frozen(fitted: FrozenEstimator) -> Composite:
    """Reads ``estimator``."""
    return Composite((), fitted.estimator, name="estimator")
