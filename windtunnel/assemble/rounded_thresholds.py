"""Thresholds beside values of the data, where a step before the trees rounds in another way than the source's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from windtunnel.modules.trees.hard import TreeWalk

Walk = TypeVar("Walk", bound=TreeWalk)
OF_VALUE, OF_COLUMN = 16, 2
"""How many roundings a function may be off by, in units of the value, and a sum, in units of the largest threshold."""


def cleared(trees: Walk, columns: Sequence[int], dtype: torch.dtype) -> Walk:
    """Move thresholds on columns that steps have computed away from the values of training rows that are beside them.

    The source has put its threshold where a value was, as its own step gave it; torch's logarithm of the same number
    may be the next one above or below. Where such a value goes left (``thresholds_in_data``), the threshold is raised a little.
    Where it goes right (``next_above_in_data``), it is lowered, in float32: float64 rows are rounded to float32 before they
    are compared there, in which a difference in the last bits is lost.

    Parameters
    ----------
    trees : TreeWalk
    columns : sequence of int
        Those that are no raw columns.
    dtype : torch.dtype
        What they are computed in.
    """
    if not (trees.thresholds_in_data or (trees.next_above_in_data and dtype == torch.float32)):
        return trees
    ensemble = trees.ensemble()
    moved = np.isin(ensemble.feature, columns) & np.isfinite(ensemble.threshold)
    moved[list(ensemble.categories)] = False
    if not moved.any():
        return trees
    size = np.abs(ensemble.threshold)
    largest = np.zeros(ensemble.width)
    np.maximum.at(largest, ensemble.feature[moved], size[moved])
    step = torch.finfo(dtype).eps * (OF_VALUE * size + OF_COLUMN * largest[ensemble.feature])
    return trees.with_thresholds(ensemble.threshold + np.where(moved, step if trees.thresholds_in_data else -step, 0.0))
