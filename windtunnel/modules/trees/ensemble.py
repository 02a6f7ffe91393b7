"""The facts of a fitted tree ensemble, whatever library it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2
NEAR_ZERO = 1.0000000180025095e-35
"""The largest number that MISSING_ZERO counts as 0: kZeroThreshold of LightGBM, 1e-35 in float32."""


@dataclass(frozen=True)
class TreeEnsemble:
    """T binary trees with N internal nodes and L leaves in all, adding up to K raw scores.

    score[k] = (base[k] + sum over trees t with output[t] = k of leaf_value[exit leaf of t]) / divisor

    or, with one value per leaf and score,

    score[k] = (base[k] + sum over all trees t of leaf_value[exit leaf of t, k]) / divisor

    Nodes and leaves of tree t are the slices ``node_start[t]:node_start[t + 1]`` and
    ``leaf_start[t]:leaf_start[t + 1]``; a tree without a split has no node and one leaf. The root is the first node.

    A node compares in float64: it goes left where ``x[feature] <= threshold``. Before that a missing value is dealt
    with as ``missing`` says: MISSING_NAN, a NaN goes the default way; MISSING_ZERO, NaN and values within
    ``NEAR_ZERO`` of 0 go the default way; MISSING_NONE, NaN counts as 0. A node in ``categories`` goes left where the
    value, cut to an integer, is in the set; negative values go right, and so does NaN unless MISSING_NAN sends it the
    default way.
    """

    width: int  # number of input features
    node_start: NDArray[np.int64]  # [T + 1]
    leaf_start: NDArray[np.int64]  # [T + 1]
    feature: NDArray[np.int64]  # [N]
    threshold: NDArray[np.float64]  # [N]
    default_left: NDArray[np.bool_]  # [N]
    missing: NDArray[np.int8]  # [N]
    left: NDArray[np.int64]  # [N], child inside the same tree: node number from 0, or ``-1 - leaf number`` for a leaf
    right: NDArray[np.int64]  # [N], as ``left``
    leaf_value: NDArray[np.float64]  # [L] or [L, K]
    output: NDArray[np.int64]  # [T], the raw score that a tree adds to; 0 for trees that add to every one
    base: NDArray[np.float64]  # [K], where the sum starts, before it is divided
    # Node number in 0..N-1 -> the categories that go left:
    categories: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    # [width, 2], least and greatest value seen in training, where the model stores it (NaN where not):
    feature_range: NDArray[np.float64] | None = None
    # [L], weight of the training rows in each leaf, as the source counts it (XGBoost: sum of hessians), where stored:
    leaf_cover: NDArray[np.float64] | None = None
    divisor: float = 1.0  # 1 for boosted trees, the number of trees for their mean
    reads: str = "float64"  # "float64" if the source compares in it, "float32" if it rounds rows to float32 first
    # Which numbers are values of the training rows: "threshold", each threshold is one; "next_above", the float32 above
    # each threshold is one (XGBoost, where a number goes left below it); "unknown", neither need be.
    data_at: str = "unknown"

    @property
    def trees(self) -> int:
        """T, the number of trees."""
        return len(self.node_start) - 1

    @property
    def outputs(self) -> int:
        """K, the number of raw scores."""
        return len(self.base)

    @property
    def vector(self) -> bool:
        """Whether a leaf holds one value for each score."""
        return self.leaf_value.ndim == 2
