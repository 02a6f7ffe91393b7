"""Thresholds next to values of the data, where a step before the trees rounds differently from the source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch

from windtunnel.modules.base import EPS, Rounding
from windtunnel.modules.trees.hard import TreeWalk

Walk = TypeVar("Walk", bound=TreeWalk)
VALUE_ROUNDINGS, COLUMN_ROUNDINGS = 16, 2
"""Roundings that a function may be off by, in units of the value, and a sum, in units of the largest threshold."""


def shift_rounded(trees: Walk, columns: Mapping[int, Rounding | None], dtype: torch.dtype) -> Walk:
    """Move thresholds on computed columns away from the values of training rows next to them.

    The source puts its threshold at a value that its own step gave; torch's logarithm of the same number may be the
    next one above or below. If such a value goes left (``data_at`` "threshold"), the threshold moves up a little. If it
    goes right ("next_above"), it moves down, in float32 only: there the source compares float64 rows rounded
    to float32, which hides a difference in the last bits.

    ``columns`` are those whose numbers may differ from the source's, each with how much, if this is known; ``dtype`` is
    what they are computed in.
    """
    if trees.data_at == "unknown" or (trees.data_at == "next_above" and dtype == torch.float64):
        return trees
    ensemble = trees.ensemble()
    moved = np.isin(ensemble.feature, [*columns]) & np.isfinite(ensemble.threshold)
    moved[list(ensemble.categories)] = False
    if not moved.any():
        return trees
    size = np.abs(ensemble.threshold)
    largest = np.zeros(ensemble.width)
    np.maximum.at(largest, ensemble.feature[moved], size[moved])
    step = torch.finfo(dtype).eps * (VALUE_ROUNDINGS * size + COLUMN_ROUNDINGS * largest[ensemble.feature])
    for column, rounding in columns.items():
        if rounding is not None:
            here = moved & (ensemble.feature == column)
            known = rounding(torch.from_numpy(ensemble.threshold[here])).numpy()
            step[here] = np.maximum(step[here], known * torch.finfo(dtype).eps / EPS)
    up = 1 if trees.data_at == "threshold" else -1
    return trees.with_thresholds(ensemble.threshold + np.where(moved, up * step, 0.0))
