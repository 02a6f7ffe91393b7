"""scikit-learn's classifiers with a decision threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Composite, Part
from windtunnel.translators.registry import translates


@translates(FixedThresholdClassifier, trainable="as the estimator inside", notes="the threshold stays")
def fixed_threshold(fitted: FixedThresholdClassifier) -> Composite:
    """The estimator inside; its label by ``threshold`` on the score of ``pos_label``."""
    estimator = getattr(fitted, "estimator_", fitted.estimator)
    method = _method(fitted, estimator)
    automatic = 0.5 if method == "predict_proba" else 0.0
    bound = automatic if isinstance(fitted.threshold, str) else float(fitted.threshold)
    return _thresholded(estimator, method, bound, fitted.pos_label)


@translates(TunedThresholdClassifierCV, trainable="as the estimator inside", notes="the threshold stays")
def tuned_threshold(fitted: TunedThresholdClassifierCV) -> Composite:
    """The estimator inside; its label by ``best_threshold_`` on the score of the scorer's positive label."""
    estimator = fitted.estimator_
    bound = float(fitted.best_threshold_)
    return _thresholded(estimator, _method(fitted, estimator), bound, fitted._curve_scorer._get_pos_label())


def _method(fitted: Any, estimator: Any) -> str:
    if fitted.response_method != "auto":
        if not hasattr(estimator, fitted.response_method):
            raise UnsupportedEstimator(
                f"{type(fitted).__name__}(response_method={fitted.response_method!r}) cannot predict, as "
                f"{type(estimator).__name__} has no such method; fit it with response_method='auto'"
            )
        return str(fitted.response_method)
    return "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"


def _thresholded(estimator: Any, method: str, bound: float, positive: Any) -> Composite:
    """``estimator``, which predicts the positive label if its score reaches ``bound``."""
    position = 1 if positive is None else int(np.flatnonzero(np.asarray(estimator.classes_) == positive)[0])
    decides = method == "decision_function"
    then = LabelThreshold(tensor(bound), position, sign=-1 if decides and position == 0 else 1)
    score = Part("estimator_", estimator, method, output_columns=None if decides else [position])
    return Composite((), estimator, name="estimator_", methods={"predict": Composite([score], then)})
