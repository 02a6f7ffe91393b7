"""scikit-learn's PowerTransformer."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.preprocessing import PowerTransformer

from windtunnel.modules.columns.power import Power
from windtunnel.translators.registry import translates


@translates(PowerTransformer, trainable="powers, scale, shift", notes="yeo-johnson and box-cox")
def power_transformer(fitted: PowerTransformer) -> Power:
    """Column-wise powers, standardised. Reads lambdas_, method, standardize and the mean_ and scale_ of its scaler."""
    power = torch.from_numpy(np.asarray(fitted.lambdas_, dtype=np.float64).copy())
    zero, one = torch.zeros_like(power), torch.ones_like(power)
    center, unit = zero, one
    if fitted.standardize:
        center = torch.from_numpy(fitted._scaler.mean_.astype(np.float64))
        unit = torch.from_numpy(fitted._scaler.scale_.astype(np.float64))
    return Power(
        power, change=zero, scale=one, shift=zero, center=center, unit=unit, positive=fitted.method == "box-cox"
    )
