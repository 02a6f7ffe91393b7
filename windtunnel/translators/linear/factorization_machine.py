"""Factorization machines."""

from __future__ import annotations

from typing import Any

import torch

from windtunnel.estimators import FactorizationMachineClassifier, FactorizationMachineRegressor
from windtunnel.modules.linear.factorization_machine import FactorizationMachine
from windtunnel.translators.registry import Predictor, translates


@translates(FactorizationMachineClassifier, trainable="weights, bias, factors")
def factorization_machine_classifier(fitted: FactorizationMachineClassifier) -> Predictor:
    """Log-odds, or a score per class. Reads ``intercept_``, ``coef_`` and ``factors_``."""
    if len(fitted.classes_) == 2:
        return Predictor(_machine(fitted), link="sigmoid", loss="logistic")
    return Predictor(_machine(fitted), link="softmax", loss="softmax")


@translates(FactorizationMachineRegressor, trainable="weights, bias, factors")
def factorization_machine_regressor(fitted: FactorizationMachineRegressor) -> Predictor:
    """The value itself. Reads ``intercept_``, ``coef_`` and ``factors_``."""
    return Predictor(_machine(fitted))


def _machine(fitted: Any) -> FactorizationMachine:
    tensors = (torch.from_numpy(one) for one in (fitted.coef_, fitted.intercept_, fitted.factors_))
    return FactorizationMachine(*tensors)
