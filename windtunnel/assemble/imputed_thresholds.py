"""What missing numbers are imputed to, followed exactly through scalers, so that trees decide on it as the source does.

LightGBM puts thresholds right beside zero, which is where a mean imputer and a scaler bring a missing value: to 0, or
to 1e-16 on either side, as float64 rounds. In float32 the same steps end at some 1e-8 on a side of their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from windtunnel.modules.base import Module
from windtunnel.modules.columns.affine import Affine, ClippedAffine
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.trees.hard import TreeWalk

Rows = NDArray[np.float64]
Walk = TypeVar("Walk", bound=TreeWalk)


class Filled(NamedTuple):
    """What a missing number of a column has become so far: in the source, and in float32; NaN where still missing."""

    exact: float = np.nan
    ours: float = np.nan


def follow(transform: Callable[[Rows], Any], module: Module, given: Sequence[Filled]) -> list[Filled]:
    """Take missing numbers through one more step, if it treats each column by itself and takes NaN.

    Parameters
    ----------
    transform : callable
        The source's step, float64 ``[1, columns]`` -> ``[1, width]``.
    module : Module
        Its translation.
    """
    by_column = isinstance(module, Affine | ClippedAffine) or (isinstance(module, Imputer) and module.missing.isnan())
    tensors = (*module.parameters(), *module.buffers())
    dtype = next((one.dtype for one in tensors if one.is_floating_point()), torch.float32)
    with torch.no_grad():
        ours = module(torch.tensor([[one.ours for one in given]], dtype=dtype))[0]
    if not by_column:
        return [Filled()] * len(ours)
    with warnings.catch_warnings():
        # An imputer that drops columns said so when it was fitted, and says it again.
        warnings.simplefilter("ignore")
        answer = transform(np.array([[one.exact for one in given]]))
    exact = np.asarray(answer, dtype=np.float64)[0]
    return [Filled(*pair) for pair in zip(exact.tolist(), ours.tolist(), strict=True)]


def rows_of(estimator: Any) -> Callable[[Rows], Any]:
    """The ``transform`` of a fitted estimator, for rows under the names that it was fitted on."""
    names = getattr(estimator, "feature_names_in_", None)
    return lambda rows: estimator.transform(rows if names is None else pd.DataFrame(rows, columns=names))


def settle(trees: Walk, given: Sequence[Filled]) -> Walk:
    """Move the thresholds between the two values of a column to where float32 decides as the source does."""
    ensemble = trees.ensemble()
    threshold = ensemble.threshold.copy()
    compares = np.ones(len(threshold), dtype=bool)
    compares[list(ensemble.categories)] = False
    for column, (exact, ours) in enumerate(given):
        if not np.isfinite([exact, ours]).all():
            continue
        left = exact <= threshold
        wrong = (ensemble.feature == column) & compares & (left != (ours <= threshold))
        below = float(np.nextafter(np.float32(ours), np.float32(-np.inf)))
        threshold[wrong] = np.where(left[wrong], ours, below)
    if (threshold == ensemble.threshold).all():
        return trees
    return trees.with_thresholds(threshold)
