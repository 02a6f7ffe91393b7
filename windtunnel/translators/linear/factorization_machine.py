"""Factorization machines."""

from __future__ import annotations

from typing import Any

from windtunnel.estimators import FactorizationMachineClassifier, FactorizationMachineRegressor
from windtunnel.modules.linear.factorization_machine import FactorizationMachine
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import Predictor
from windtunnel.translators.registry import translates


@translates(FactorizationMachineClassifier, trainable="weights, bias, factors")
def factorization_machine_classifier(fitted: FactorizationMachineClassifier) -> Predictor:
    """Log-odds, or a score per class. Reads ``intercept_``, ``coef_`` and ``factors_``."""
    return Predictor.of_classes(_machine(fitted), several=len(fitted.classes_) > 2)


@translates(FactorizationMachineRegressor, trainable="weights, bias, factors")
def factorization_machine_regressor(fitted: FactorizationMachineRegressor) -> Predictor:
    """The value itself. Reads ``intercept_``, ``coef_`` and ``factors_``."""
    return Predictor(_machine(fitted))


def _machine(fitted: Any) -> FactorizationMachine:
    return FactorizationMachine(tensor(fitted.coef_), tensor(fitted.intercept_), tensor(fitted.factors_))
