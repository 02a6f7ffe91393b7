"""Readers of the estimators that WindTunnel brings along."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.estimators import (
    FactorizationMachineClassifier,
    FactorizationMachineRegressor,
    MatrixFactorization,
    RareCategories,
    TwoHotEncoder,
)
from windtunnel.modules.factor_model import FactorModel
from windtunnel.modules.factorization_machine import FactorizationMachine
from windtunnel.translators.registry import Encoding, Predictor, Recoding, translates


@translates(
    RareCategories,
    notes="rare and unseen categories become missing; other columns pass through",
    differentiable=False,
)
def rare_categories(fitted: RareCategories) -> Recoding:
    """Category -> itself where kept, else missing. Reads ``categories_``, ``rare_`` and ``missing_``."""
    missing = fitted.missing_
    kept = [None if categories is None else set(categories) for categories in fitted.categories_]

    def recode(column: int, values: list[Any]) -> list[Any]:
        keep = kept[column]
        return values if keep is None else [value if value in keep else missing[column] for value in values]

    known = [
        None if categories is None or rare is None else categories + rare
        for categories, rare in zip(fitted.categories_, fitted.rare_, strict=True)
    ]
    return Recoding(recode, known)


@translates(TwoHotEncoder, trainable="one row of a table per category", notes="missing categories are all zeros")
def two_hot(fitted: TwoHotEncoder) -> Encoding:
    """Category -> two one-hots, a row of a table. Reads ``categories_`` and ``handle_unknown``."""
    # Missing values are accepted whatever handle_unknown says.
    known = [None if categories is None else [*categories, math.nan] for categories in fitted.categories_]
    return Encoding(known, refuses_unknown=fitted.handle_unknown == "error")


@translates(
    MatrixFactorization,
    trainable="mean, a row of a table per user and item",
    notes="unknown and missing ones share a row of zeros",
)
def matrix_factorization(fitted: MatrixFactorization) -> Predictor:
    """mean_ + b_u + c_i + <p_u, q_i>; reads user_biases_, user_factors_, item_biases_ and item_factors_."""
    users = _rows(fitted.user_biases_, fitted.user_factors_)
    items = _rows(fitted.item_biases_, fitted.item_factors_)
    scores = FactorModel(torch.tensor([fitted.mean_], dtype=torch.float64), users, items)
    return Predictor(scores, codes={0: fitted.users_, 1: fitted.items_})


def _rows(biases: NDArray[np.float64], factors: NDArray[np.float64]) -> Tensor:
    """Biases and vectors side by side, and a row of zeros for unknown ones."""
    rows = np.concatenate([biases[:, None], factors], axis=1)
    return torch.from_numpy(np.concatenate([rows, np.zeros((1, rows.shape[1]))]))


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
