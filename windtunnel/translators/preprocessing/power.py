"""scikit-learn's PowerTransformer."""

from __future__ import annotations

import torch
from sklearn.preprocessing import PowerTransformer

from windtunnel.modules.columns.power import Power
from windtunnel.translators.arrays import tensor
from windtunnel.translators.registry import translates


@translates(PowerTransformer, trainable="powers, scale, shift", notes="yeo-johnson and box-cox")
def power_transformer(fitted: PowerTransformer) -> Power:
    """Column-wise powers, standardised. Reads lambdas_, method, standardize and the mean_ and scale_ of its scaler."""
    power = tensor(fitted.lambdas_)
    zeros, ones = torch.zeros_like(power), torch.ones_like(power)
    center, unit = zeros, ones
    if fitted.standardize:
        center, unit = tensor(fitted._scaler.mean_), tensor(fitted._scaler.scale_)
    return Power(
        power, change=zeros, scale=ones, shift=zeros, center=center, unit=unit, positive=fitted.method == "box-cox"
    )
