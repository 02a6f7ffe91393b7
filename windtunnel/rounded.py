"""Thresholds that are values of the data, where a step before the trees rounds in another way than the source's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from windtunnel.modules.trees.hard import TreeWalk

Walk = TypeVar("Walk", bound=TreeWalk)
OF_VALUE, OF_COLUMN = 16, 2
"""How many roundings a function may be off by, in units of the value, and a sum, in units of the largest threshold."""


def raised(trees: Walk, columns: Sequence[int], dtype: torch.dtype) -> Walk:
    """Raise thresholds on columns that steps have computed, so that a value on one stays on its left.

    The source has put the value of a training row there, as its own step gave it. Torch's logarithm of the same number
    may be the next one above.

    Parameters
    ----------
    trees : TreeWalk
    columns : sequence of int
        Those that are no raw columns.
    dtype : torch.dtype
        What they are computed in.
    """
    ensemble = trees.ensemble()
    moved = np.isin(ensemble.feature, columns) & np.isfinite(ensemble.threshold)
    moved[list(ensemble.categories)] = False
    if not moved.any():
        return trees
    size = np.abs(ensemble.threshold)
    largest = np.zeros(ensemble.width)
    np.maximum.at(largest, ensemble.feature[moved], size[moved])
    step = torch.finfo(dtype).eps * (OF_VALUE * size + OF_COLUMN * largest[ensemble.feature])
    threshold = np.where(moved, ensemble.threshold + step, ensemble.threshold)
    state = trees.state_dict() | {"threshold": torch.from_numpy(threshold)}
    again = type(trees).rebuild(state, trees.facts())
    again.on_values = trees.on_values
    return again
