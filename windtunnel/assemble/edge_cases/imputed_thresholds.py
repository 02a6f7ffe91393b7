"""Follows imputed values through scalers, so that trees decide on missing numbers as the source does.

LightGBM puts thresholds next to zero, where a mean imputer and a scaler put a missing value: at 0, or at 1e-16 on
either side, as float64 rounds. In float32 the same steps end at about 1e-8 on another side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from windtunnel.encode.labels import labels_index
from windtunnel.modules.base import Module
from windtunnel.modules.imputers.imputer import Imputer
from windtunnel.modules.trees.hard import TreeWalk

FloatRows = NDArray[np.float64]
Walk = TypeVar("Walk", bound=TreeWalk)


class ImputedValue(NamedTuple):
    """The value of a missing number after imputation, in the source and in the translation; NaN if still missing."""

    source: float = np.nan
    translated: float = np.nan


def follow(transform: Callable[[FloatRows], Any], module: Module, values: Sequence[ImputedValue]) -> list[ImputedValue]:
    """The imputed values after one more step; NaN if it mixes columns or rejects the values.

    Parameters
    ----------
    transform : callable
        The source's step, float64 ``[1, columns]`` -> ``[1, width]``.
    module : Module
        Its translation.
    """
    imputes = isinstance(module, Imputer) and bool(module.missing.isnan())
    tensors = (*module.parameters(), *module.buffers())
    dtype = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.float32)
    with torch.no_grad():
        translated = module(torch.tensor([[value.translated for value in values]], dtype=dtype))[0]
    if not imputes and module.PER_COLUMN is None:
        return [ImputedValue()] * len(translated)
    row = np.array([[value.source for value in values]])
    missing = np.isnan(row) & (not imputes)
    with warnings.catch_warnings():
        # An imputer that drops columns has warned in fitting, and warns again.
        warnings.simplefilter("ignore")
        # Not every step takes NaN; 1 stands in for what is still missing, as nearly all steps take it.
        try:
            output = transform(np.where(missing, 1.0, row))
        except ValueError:  # the logarithm of an imputed 0 is infinite
            return [ImputedValue()] * len(translated)
    source = np.array(output, dtype=np.float64)[0]
    if not imputes:
        source[missing[0]] = np.nan
    return [ImputedValue(*pair) for pair in zip(source.tolist(), translated.tolist(), strict=True)]


def transform_of(estimator: Any) -> Callable[[FloatRows], Any]:
    """The ``transform`` of a fitted estimator, for rows under the names that it was fitted on."""
    names = getattr(estimator, "feature_names_in_", None)
    labels = None if names is None else labels_index(names)
    return lambda rows: estimator.transform(rows if labels is None else pd.DataFrame(rows, columns=labels))


def align_imputed(trees: Walk, values: Sequence[ImputedValue]) -> Walk:
    """Move thresholds between the two values of a column, so that float32 decides as the source does."""
    ensemble = trees.ensemble()
    threshold = ensemble.threshold.copy()
    compares = np.ones(len(threshold), dtype=bool)
    compares[list(ensemble.categories)] = False
    for column, (source, translated) in enumerate(values):
        if not np.isfinite([source, translated]).all():
            continue
        left = source <= threshold
        wrong = (ensemble.feature == column) & compares & (left != (translated <= threshold))
        below = float(np.nextafter(np.float32(translated), np.float32(-np.inf)))
        threshold[wrong] = np.where(left[wrong], translated, below)
    if (threshold == ensemble.threshold).all():
        return trees
    return trees.with_thresholds(threshold)
