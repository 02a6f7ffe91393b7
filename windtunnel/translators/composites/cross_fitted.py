"""Our cross-fitted estimators: the mean of members."""

from __future__ import annotations

import torch

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.cross_fitted import CrossFittedClassifier, CrossFittedRegressor
from windtunnel.modules.ensembles.ensemble import WeightedMean
from windtunnel.modules.ensembles.log_pool import LogPool
from windtunnel.translators.conversions import Composite, Predictor, member_parts
from windtunnel.translators.registry import translates


@translates(CrossFittedClassifier, trainable="as its members")
def cross_fitted_classifier(fitted: CrossFittedClassifier) -> Composite:
    """The mean of the log-probabilities of ``estimators_``; for two classes of their log-odds."""
    classes = len(fitted.classes_)
    if classes < 2:
        raise UnsupportedEstimator(
            f"CrossFittedClassifier was fitted on the one class {fitted.classes_[0]!r}; fit it on two"
        )
    return Composite(member_parts(fitted, "predict_proba"), Predictor.of_classes(LogPool(classes), several=classes > 2))


@translates(CrossFittedRegressor, trainable="as its members", notes="fine-tuned with the loss of its members")
def cross_fitted_regressor(fitted: CrossFittedRegressor) -> Composite:
    """The mean of what ``estimators_`` predict."""
    mean = WeightedMean(torch.ones(len(fitted.estimators_), dtype=torch.float64))
    return Composite(member_parts(fitted, "predict"), Predictor(mean), shared_loss="loss")
