"""Thresholds and edges of bins at values of the data, where a step before rounds differently from the source's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.modules.base import EPSILON, Rounding
from windtunnel.modules.columns.bins import Bins
from windtunnel.modules.trees.hard import TreeWalk

FloatArray = NDArray[np.float64]
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
    step = _roundings(ensemble.threshold, ensemble.feature, moved, columns, dtype)
    up = 1 if trees.data_at == "threshold" else -1
    return trees.with_thresholds(ensemble.threshold + up * step)


def lower_rounded(bins: Bins, columns: Mapping[int, Rounding | None], dtype: torch.dtype) -> Bins:
    """Move edges of bins on computed columns a little below the values of training rows that they are.

    A number at an edge is in the bin above it. ``columns`` and ``dtype`` are those of ``shift_rounded``.
    """
    if not bins.seen or not columns:
        return bins
    edges = bins.edges.numpy()
    column = np.repeat(np.arange(len(edges))[:, None], edges.shape[1], axis=1)
    moved = np.isin(column, [*columns]) & (bins.there.numpy() > 0)
    step = _roundings(edges, column, moved, columns, dtype)
    return Bins(torch.from_numpy(edges - step), bins.there, bins.kept, bins.ordinal, bins.seen, bins.single)


def _roundings(
    values: FloatArray,
    column: NDArray[Any],
    moved: NDArray[np.bool_],
    columns: Mapping[int, Rounding | None],
    dtype: torch.dtype,
) -> FloatArray:
    """How far numbers of these columns may be from the source's, at these values; 0 where none is moved."""
    size = np.where(moved, np.abs(values), 0.0)
    largest = np.zeros(int(column.max(initial=0)) + 1)
    np.maximum.at(largest, column[moved], size[moved])
    step = np.where(moved, torch.finfo(dtype).eps * (VALUE_ROUNDINGS * size + COLUMN_ROUNDINGS * largest[column]), 0.0)
    for position, rounding in columns.items():
        if rounding is not None:
            here = moved & (column == position)
            known = rounding(torch.from_numpy(values[here])).numpy()
            known = np.where(np.isfinite(known), known * torch.finfo(dtype).eps / EPSILON, 0.0)
            step[here] = np.maximum(step[here], known)
    return step
