"""scikit-learn's QuantileTransformer."""

from __future__ import annotations

import numpy as np
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.quantile import QuantileMap
from windtunnel.translators.arrays import dense, tensor
from windtunnel.translators.registry import translates


@translates(QuantileTransformer, trainable="levels at the quantiles", notes="uniform and normal")
def quantile_transformer(fitted: QuantileTransformer) -> QuantileMap:
    """Levels, or their normal quantiles. Reads quantiles_, references_ and output_distribution."""
    finite = np.isfinite(fitted.quantiles_).all(axis=0)
    if not finite.all():
        bad = np.flatnonzero(~finite).tolist()
        raise UnsupportedEstimator(
            f"QuantileTransformer was fitted on columns {bad} without a finite value; leave them out and fit again"
        )
    return QuantileMap(*quantiles_and_levels(fitted), normal=fitted.output_distribution == "normal")


def quantiles_and_levels(fitted: QuantileTransformer) -> tuple[Tensor, Tensor]:
    """quantiles_ and references_ as ``[columns, points]``, at least two points each."""
    quantiles = dense(fitted.quantiles_.T)
    levels = np.broadcast_to(np.asarray(fitted.references_, dtype=np.float64), quantiles.shape)
    repeats = 2 if quantiles.shape[1] == 1 else 1
    return tensor(np.repeat(quantiles, repeats, axis=1)), tensor(np.repeat(levels, repeats, axis=1))
