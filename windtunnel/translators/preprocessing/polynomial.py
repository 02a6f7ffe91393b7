"""scikit-learn's PolynomialFeatures."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.preprocessing import PolynomialFeatures

from windtunnel.modules.columns.polynomial import Polynomial
from windtunnel.translators.registry import translates


@translates(PolynomialFeatures, notes="no parameters; gradients pass through")
def polynomial_features(fitted: PolynomialFeatures) -> Polynomial:
    """Products of columns. Reads powers_. The source multiplies a product of later columns by an earlier one."""
    powers = np.asarray(fitted.powers_)
    width = fitted.n_features_in_
    degree = max(1, int(powers.sum(axis=1).max(initial=0)))
    factors = np.full((len(powers), degree), width, dtype=np.int64)
    for row, power in zip(factors, powers, strict=True):
        columns = np.repeat(np.arange(width), power)[::-1]
        row[: len(columns)] = columns
    return Polynomial(torch.from_numpy(factors))
