"""scikit-learn's searches for parameters, self-training and frozen estimators: they predict as one estimator inside."""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

# From where they are defined: the public place wants an experimental import, which changes scikit-learn for all.
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.semi_supervised import SelfTrainingClassifier

from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.conversions import Composite
from windtunnel.translators.registry import translates


@translates(
    GridSearchCV,
    RandomizedSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    trainable="as the best estimator",
    notes="the best estimator; refit=False is rejected",
)
def search(fitted: Any) -> Composite:
    """Reads ``best_estimator_``."""
    if not hasattr(fitted, "best_estimator_"):
        raise UnsupportedEstimator(
            f"{type(fitted).__name__}(refit={fitted.refit!r}) keeps no best_estimator_ to translate; fit it with "
            "refit=True, or translate an estimator fitted with its best_params_"
        )
    return Composite((), fitted.best_estimator_, name="best_estimator_")


@translates(SelfTrainingClassifier, trainable="as the estimator inside", notes="the estimator fitted last")
def self_training(fitted: SelfTrainingClassifier) -> Composite:
    """Reads ``estimator_``."""
    return Composite((), fitted.estimator_, name="estimator_")


@translates(FrozenEstimator, trainable="as the estimator inside", notes="transparent")
def frozen(fitted: FrozenEstimator) -> Composite:
    """Reads ``estimator``."""
    return Composite((), fitted.estimator, name="estimator")
