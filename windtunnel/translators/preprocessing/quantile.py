"""scikit-learn's QuantileTransformer."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.preprocessing import QuantileTransformer

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.translators.registry import translates


@translates(QuantileTransformer, trainable="levels at the quantiles", notes="uniform and normal")
def quantile_transformer(fitted: QuantileTransformer) -> QuantileMap:
    """Shares among the quantiles, or their normal numbers. Reads quantiles_, references_ and output_distribution."""
    quantiles = np.ascontiguousarray(fitted.quantiles_.T, dtype=np.float64)
    if not np.isfinite(quantiles).all():
        bad = np.flatnonzero(~np.isfinite(quantiles).all(axis=1)).tolist()
        raise UnsupportedEstimator(
            f"QuantileTransformer was fitted on columns {bad} without a finite value; leave them out and fit again"
        )
    levels = np.broadcast_to(np.asarray(fitted.references_, dtype=np.float64), quantiles.shape).copy()
    if quantiles.shape[1] == 1:
        quantiles, levels = (np.repeat(one, 2, axis=1) for one in (quantiles, levels))
    return QuantileMap(
        torch.from_numpy(quantiles), torch.from_numpy(levels), normal=fitted.output_distribution == "normal"
    )
