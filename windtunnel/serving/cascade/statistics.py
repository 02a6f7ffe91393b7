"""The cost of each feature group, and its importance to the predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

from windtunnel.errors import InvalidOption, WindTunnelError
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.groups import GroupedPipeline
from windtunnel.serving.cascade.take_rows import take_rows
from windtunnel.serving.cascade.timing import TIMED_ROWS, least_seconds

IMPORTANCE_ROWS = 2000
"""Rows that importances are measured on: they are only compared with each other."""


@dataclass(frozen=True)
class FeatureGroup:
    """A part of the features.

    Attributes
    ----------
    name : str
    cost : float
        Seconds per row.
    importance : float
        For a linear model the sum of |coefficient| times mean |feature|; for any other the loss of accuracy, or of R
        squared, when the columns of the group are permuted. At least 0.
    """

    name: str
    cost: float
    importance: float


def feature_groups(
    grouped: GroupedPipeline,
    rows: Any,
    target: Any,
    declared: Mapping[str, float],
    seed: int,
    compiled: Callable[[Any], TranslatedPipeline],
) -> list[FeatureGroup]:
    """Cost and importance of each group, on raw validation rows.

    ``declared`` has seconds per row by the name of a group, in the place of the measured ones. ``compiled`` is
    ``windtunnel.compile``.
    """
    if unknown := sorted(set(declared) - set(grouped.names)):
        raise InvalidOption(f"cost= names {unknown[0]!r}; the groups are {', '.join(map(repr, grouped.names))}.")
    for name, seconds in declared.items():
        if not (isinstance(seconds, Real) and 0 <= seconds < np.inf):
            raise InvalidOption(f"cost= gives {name!r} {seconds!r} seconds per row; accepted are numbers from 0 up.")
    first = np.arange(len(target))
    inputs = grouped.inputs(take_rows(rows, first[:IMPORTANCE_ROWS]))
    blocks = {name: grouped.features(inputs, [name]) for name in grouped.names}
    importance = _importance(grouped, blocks, np.asarray(target)[:IMPORTANCE_ROWS], seed)
    few = take_rows(rows, first[:TIMED_ROWS])
    return [
        FeatureGroup(
            name,
            declared[name] if name in declared else _seconds(grouped.transformer([name]), few, compiled),
            importance[name],
        )
        for name in grouped.names
    ]


def _seconds(transformer: Any, rows: Any, compiled: Callable[[Any], TranslatedPipeline]) -> float:
    """Seconds per row that a group takes when it is compiled, its steps on the host included; the least of a few runs.

    For texts only the counting is timed, as sums over counts take far less.
    """
    try:
        net = compiled(transformer)
    except WindTunnelError:  # it does not tell how many columns it gives
        return least_seconds(transformer.transform, rows)
    counting = [host for host in net.hosts if host.tokens is not None]
    if not counting:
        return least_seconds(net.transform, rows)
    source = net.source_rows(rows)
    return sum(least_seconds(host.count, source) for host in counting)


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
    base = grouped.after.score(_concatenated(blocks), target)
    permuted = {name: {**blocks, name: take_rows(block, order)} for name, block in blocks.items()}
    return {
        name: max(0.0, float(base - grouped.after.score(_concatenated(changed), target)))
        for name, changed in permuted.items()
    }


def _concatenated(blocks: Mapping[str, Any]) -> Any:
    """The columns of all groups in one table or matrix."""
    parts = [*blocks.values()]
    if any(sparse.issparse(part) for part in parts):
        # A frame of numbers and booleans becomes an array of objects, which no sparse matrix holds.
        numeric = [part if sparse.issparse(part) else np.asarray(part, dtype=np.float64) for part in parts]
        return sparse.hstack(numeric, format="csr")
    if all(hasattr(part, "iloc") for part in parts):
        import pandas as pd

        return pd.concat([part.reset_index(drop=True) for part in parts], axis=1)
    return np.hstack(parts)
