"""Ratings of users and items."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.estimators import MatrixFactorization
from windtunnel.modules.linear.factor_model import FactorModel
from windtunnel.translators.arrays import tensor
from windtunnel.translators.categories.sklearn_encoders import plain_categories
from windtunnel.translators.conversions import InputColumns, Predictor
from windtunnel.translators.registry import translates


@translates(
    MatrixFactorization,
    trainable="mean, a row of a table per user and item",
    notes="unknown and missing ids share a row of zeros",
)
def matrix_factorization(fitted: MatrixFactorization) -> Predictor:
    """mean_ + b_u + c_i + <p_u, q_i>; reads user_biases_, user_factors_, item_biases_ and item_factors_."""
    users = _rows(fitted.user_biases_, fitted.user_factors_)
    items = _rows(fitted.item_biases_, fitted.item_factors_)
    scores = FactorModel(tensor([fitted.mean_]), users, items)
    known = {column: plain_categories(fitted, column, ids) for column, ids in enumerate((fitted.users_, fitted.items_))}
    return Predictor(scores, reads=InputColumns(known))


def _rows(biases: NDArray[np.float64], factors: NDArray[np.float64]) -> Tensor:
    """``[ids + 1, 1 + factors]``: bias and factors of each id, and a row of zeros for unknown ids."""
    return tensor(np.pad(np.column_stack([biases, factors]), ((0, 1), (0, 0))))
