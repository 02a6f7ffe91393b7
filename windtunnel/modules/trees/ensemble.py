"""The facts of a fitted tree ensemble, whatever library it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MISSING_NONE, MISSING_ZERO, MISSING_NAN = 0, 1, 2


@dataclass(frozen=True)
class TreeEnsemble:
    """T binary trees with N internal nodes and L leaves in all, adding up to K raw scores.

    score[k] = (base[k] + sum over trees t with output[t] = k of leaf_value[exit leaf of t]) / divisor

    or, with one value per leaf and score,

    score[k] = (base[k] + sum over all trees t of leaf_value[exit leaf of t, k]) / divisor

    Nodes and leaves of tree t are the slices ``node_start[t]:node_start[t + 1]`` and
    ``leaf_start[t]:leaf_start[t + 1]``; a tree without a split has no node and one leaf. The root is the first node.

    A node compares in float64: it goes left where ``x[feature] <= threshold``. Before that a missing value is dealt
    with as ``missing`` says: MISSING_NAN, a NaN goes the default way; MISSING_ZERO, NaN and values within 1e-35 of zero
    go the default way; MISSING_NONE, NaN counts as 0. A node in ``categories`` goes left where the value, cut to an
    integer, is in the set; negative values go right, and so does NaN unless MISSING_NAN sends it the default way.

    Attributes
    ----------
    width : int
        Number of input features.
    node_start, leaf_start : int64 [T + 1]
    feature : int64 [N]
    threshold : float64 [N]
    default_left : bool [N]
    missing : int8 [N]
    left, right : int64 [N]
        Child inside the same tree: node number from 0, or ``-1 - leaf number`` for a leaf.
    leaf_value : float64 [L] or [L, K]
    output : int64 [T]
        The raw score that a tree adds to; 0 for trees that add to every one.
    base : float64 [K]
        Where the sum starts, before it is divided.
    categories : mapping from node number in 0..N-1 to the int64 array of categories that go left
    feature_range : float64 [width, 2] or None
        Least and greatest value seen in training, where the model stores it (NaN where not).
    divisor : float
        1 for boosted trees, the number of trees for their mean.
    reads : str
        "float64" where the source compares in float64, "float32" where it rounds rows to float32 first.
    """

    width: int
    node_start: NDArray[np.int64]
    leaf_start: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    default_left: NDArray[np.bool_]
    missing: NDArray[np.int8]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf_value: NDArray[np.float64]
    output: NDArray[np.int64]
    base: NDArray[np.float64]
    categories: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    feature_range: NDArray[np.float64] | None = None
    divisor: float = 1.0
    reads: str = "float64"

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
