"""Ratings of users and items."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.estimators import MatrixFactorization
from windtunnel.modules.linear.factor_model import FactorModel
from windtunnel.translators.registry import Predictor, translates


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
