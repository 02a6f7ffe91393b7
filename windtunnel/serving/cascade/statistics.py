"""What each feature group costs, and what it is worth to the predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from scipy import sparse

from windtunnel.errors import InvalidOption
from windtunnel.serving.cascade.groups import GroupedPipeline

TIMED_ROWS = 500
REPEATS = 3
IMPORTANCE_ROWS = 2000


@dataclass(frozen=True)
class FeatureGroup:
    """A part of the features.

    Attributes
    ----------
    name : str
    cost : float
        Seconds per row.
    importance : float
        Of a linear model the sum of |coefficient| times mean |feature|; of any other the loss of accuracy, or of R
        squared, when the columns of the group are permuted. At least 0.
    """

    name: str
    cost: float
    importance: float


def feature_groups(
    grouped: GroupedPipeline, inputs: Any, target: Any, declared: Mapping[str, float], seed: int
) -> list[FeatureGroup]:
    """Cost and importance of each group, on validation rows.

    Parameters
    ----------
    inputs
        What the composite takes.
    declared : mapping
        Name of a group -> seconds per row, in the place of the measured ones.
    """
    if unknown := sorted(set(declared) - set(grouped.names)):
        raise InvalidOption(f"cost= names {unknown[0]!r}; the groups are {', '.join(map(repr, grouped.names))}.")
    few = _take(inputs, slice(TIMED_ROWS))
    costs = {name: declared.get(name, _seconds(grouped, few, name)) for name in grouped.names}
    rows = slice(IMPORTANCE_ROWS)
    blocks = {name: grouped.features(_take(inputs, rows), [name]) for name in grouped.names}
    importance = _importance(grouped, blocks, np.asarray(target)[rows], seed)
    return [FeatureGroup(name, costs[name], importance[name]) for name in grouped.names]


def _seconds(grouped: GroupedPipeline, rows: Any, name: str) -> float:
    """Seconds per row that the source's transformer of a group takes; the least of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        grouped.features(rows, [name])
        times.append(perf_counter() - start)
    return min(times) / int(rows.shape[0])


def _importance(grouped: GroupedPipeline, blocks: Mapping[str, Any], target: Any, seed: int) -> dict[str, float]:
    model = grouped.after[-1]
    widths = {name: block.shape[1] for name, block in blocks.items()}
    if len(grouped.after) == 1 and hasattr(model, "coef_") and np.shape(model.coef_)[-1] == sum(widths.values()):
        size = np.abs(np.atleast_2d(model.coef_)).sum(axis=0)
        parts = np.split(size, np.cumsum([*widths.values()])[:-1])
        return {
            name: float(part @ np.asarray(abs(block).mean(axis=0)).ravel())
            for (name, block), part in zip(blocks.items(), parts, strict=True)
        }
    order = np.random.default_rng(seed).permutation(len(target))
    base = grouped.after.score(_beside(blocks), target)
    return {
        name: max(0.0, float(base - grouped.after.score(_beside({**blocks, name: _take(block, order)}), target)))
        for name, block in blocks.items()
    }


def _beside(blocks: Mapping[str, Any]) -> Any:
    """The columns of all groups beside each other."""
    parts = [*blocks.values()]
    if any(sparse.issparse(part) for part in parts):
        return sparse.hstack(parts, format="csr")
    if all(hasattr(part, "iloc") for part in parts):
        import pandas as pd

        return pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
    return np.hstack(parts)


def _take(rows: Any, at: Any) -> Any:
    return rows.iloc[at] if hasattr(rows, "iloc") else rows[at]
