"""scikit-learn's random projections."""

from __future__ import annotations

from typing import Any

from sklearn import random_projection

from windtunnel.modules.linear.linear import Linear
from windtunnel.translators.decomposition.decomposition import linear
from windtunnel.translators.registry import translates


@translates(
    random_projection.GaussianRandomProjection,
    random_projection.SparseRandomProjection,
    trainable="components, bias",
)
def projection(fitted: Any) -> Linear:
    """X components_^T."""
    return linear(fitted.components_)
