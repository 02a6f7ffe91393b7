"""scikit-learn's classifiers with a threshold of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from windtunnel.modules.outputs.label_rules import LabelThreshold
from windtunnel.translators.registry import Composite, Part, translates


@translates(FixedThresholdClassifier, trainable="as the estimator inside", notes="the threshold stays")
def fixed_threshold(fitted: FixedThresholdClassifier) -> Composite:
    """The estimator inside; its label by ``threshold`` on the answer for ``pos_label``."""
    estimator = getattr(fitted, "estimator_", fitted.estimator)
    method = _method(fitted, estimator)
    automatic = 0.5 if method == "predict_proba" else 0.0
    bound = automatic if isinstance(fitted.threshold, str) else float(fitted.threshold)
    return _past(estimator, method, bound, fitted.pos_label)


@translates(TunedThresholdClassifierCV, trainable="as the estimator inside", notes="the threshold stays")
def tuned_threshold(fitted: TunedThresholdClassifierCV) -> Composite:
    """The estimator inside; its label by ``best_threshold_`` on the answer for the scorer's positive label."""
    estimator = fitted.estimator_
    bound = float(fitted.best_threshold_)
    return _past(estimator, _method(fitted, estimator), bound, fitted._curve_scorer._get_pos_label())


def _method(fitted: Any, estimator: Any) -> str:
    if fitted.response_method != "auto":
        return str(fitted.response_method)
    return "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"


def _past(estimator: Any, method: str, bound: float, positive: Any) -> Composite:
    """``estimator``, whose label is the positive one where its answer reaches ``bound``."""
    position = 1 if positive is None else int(np.flatnonzero(np.asarray(estimator.classes_) == positive)[0])
    decides = method == "decision_function"
    then = LabelThreshold(
        torch.tensor(bound, dtype=torch.float64), position, sign=-1 if decides and position == 0 else 1
    )
    answer = Part("estimator_", estimator, method, output_columns=None if decides else [position])
    return Composite((), estimator, name="estimator_", methods={"predict": Composite([answer], then)})
