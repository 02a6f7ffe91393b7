"""Convert a tree ensemble to soft trees with nearly the same scores: padding, thresholds, temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.trees.ensemble import MISSING_NAN, TreeEnsemble
from windtunnel.modules.trees.leaf_steps import PaddedTrees
from windtunnel.modules.trees.soft.trees import LEVELS, SoftLeaves, SoftSplits, SoftTrees

LEAF_TEMPERATURE = 0.3
TEMPERATURE_PER_HALF_GAP = 0.3
"""A node's temperature is at least this share of half the gap around its threshold: tanh(1 / 0.3) = 0.997."""
NORMAL_WIDTH = 3.3
"""The distance of the quantiles .05 and .95 of a standard normal, to which columns are scaled."""
LEAST_WIDTH = 1e-6
"""The least temperature of a node, in scaled units, so that float32 holds its slope."""
PART_OF_GAP = 1 / 8
"""Without values, half the gap around a threshold is taken to be this part of the way to the next one."""
PART_OF_WAY = 1 / 20
"""A bound of the value 0 moves by this part of the way to the next threshold."""
HUGE = 1e30
"""Thresholds beyond it tell missing values from all others (LightGBM stores the largest double)."""
Floats = NDArray[np.float64]
Soft = TypeVar("Soft", bound=SoftSplits)


@dataclass(frozen=True)
class Units:
    """The scaled space that soft trees work in: ``z = (x - center) / scale``, per input column."""

    center: Floats
    scale: Floats

    @classmethod
    def of(cls, ensemble: TreeEnsemble, sample: Floats | None, grids: dict[int, Floats]) -> Units:
        """From sampled inputs where there are some, else from what tables and the model itself tell.

        Parameters
        ----------
        sample : float64 [R, width] or None
            Inputs of the trees on calibration rows.
        grids : dict
            Every value that an input column can take, where that is known (columns of category tables).
        """
        center, scale = np.zeros(ensemble.width), np.ones(ensemble.width)
        for column in range(ensemble.width):
            values = _known_values(ensemble, column, sample, grids)
            if len(values) and not np.isin(values, (0.0, 1.0)).all():
                # Nearly all values of a column may be the same: then those that differ tell its width.
                width = _width(values) or _width(np.unique(values)) or float(np.ptp(values))
                center[column], scale[column] = np.quantile(values, 0.5), width / NORMAL_WIDTH or 1.0
        return cls(center, scale)


def _width(values: Floats) -> float:
    """The distance of the quantiles .05 and .95."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low)


def _known_values(ensemble: TreeEnsemble, column: int, sample: Floats | None, grids: dict[int, Floats]) -> Floats:
    if sample is not None and (column not in grids or _varies(sample[:, column])):
        values = sample[:, column]
    elif column in grids:
        values = grids[column]
    else:
        values = ensemble.threshold[ensemble.feature == column]
        if ensemble.feature_range is not None:
            values = np.concatenate([values, ensemble.feature_range[column]])
    return values[np.abs(values) < HUGE]


def _varies(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and bool(np.ptp(finite) > 0)


def soften(ensemble: TreeEnsemble, **options: Any) -> SoftTrees:
    """Soft trees of an ensemble; the options are those of ``_soften``."""
    padded = PaddedTrees.of(ensemble)
    return _soften(SoftTrees, ensemble, padded, _values(ensemble, padded), **options)


def soften_leaves(ensemble: TreeEnsemble, **options: Any) -> SoftLeaves:
    """Soft leaves of an ensemble; the options are those of ``_soften``."""
    padded = PaddedTrees.of(ensemble)
    column = torch.from_numpy(np.flatnonzero(padded.leaf.flatten() >= 0))
    return _soften(SoftLeaves, ensemble, padded, {"column": column}, **options)


def _soften(
    form: type[Soft],
    ensemble: TreeEnsemble,
    padded: PaddedTrees,
    extra: dict[str, Any],
    *,
    level: str = "L4",
    start: str = "warm",
    temperature: float | None = None,
    soft_fraction: float = 0.0,
    sample: Floats | None = None,
    grids: dict[int, Floats] | None = None,
    seed: int = 0,
) -> Soft:
    """Build the module from the tensors of ``SoftSplits`` and the ``extra`` ones of ``form``.

    Parameters
    ----------
    level : str
        "L0" to "L4", see ``SoftTrees``.
    start : str
        "warm" copies the fitted trees; "cold" draws the trainable parts of the same architecture at random.
    temperature : float or None
        One temperature for nodes and leaves, thresholds as they are and columns in their own unit: the paper's form.
        None: thresholds move to the middle of their gap, and each node gets its own temperature.
    soft_fraction : float
        With ``temperature=None``: this fraction of the rows that reach a node lie so near to its threshold that its
        activation is short of tanh(1 / TEMPERATURE_PER_HALF_GAP) = 0.997; 0: only as far as the gap between
        values allows.
    sample, grids
        See ``Units.of``.
    seed : int
        Seed of the cold start.
    """
    if temperature is None:
        units = Units.of(ensemble, sample, grids or {})
        threshold, slope = place_nodes(ensemble, units, soft_fraction, sample, grids or {})
    else:
        units = Units(np.zeros(ensemble.width), np.ones(ensemble.width))
        threshold, slope = _without_huge(ensemble.threshold), np.full(len(ensemble.threshold), 1.0 / temperature)
    low, high = _bounds(ensemble, threshold, slope)
    # Numbers are clipped to the bounds, so none reaches twice a bound.
    twice = 2 * np.where(threshold > 0, high[ensemble.feature], low[ensemble.feature])
    threshold = np.where(np.isinf(threshold), twice, threshold)
    bound = _float(np.stack([low, high]))
    splits = _pack(ensemble, padded, units, threshold, slope, temperature or LEAF_TEMPERATURE, level)
    trees = form(**splits, **extra, bound=bound, level=level)
    if start == "cold":
        _draw(trees, torch.Generator().manual_seed(seed))
    return trees


def _without_huge(threshold: Floats) -> Floats:
    """Thresholds, infinite where they are beyond ``HUGE``."""
    return np.where(np.abs(threshold) < HUGE, threshold, np.copysign(np.inf, threshold))


def place_nodes(
    ensemble: TreeEnsemble,
    units: Units,
    soft_fraction: float,
    sample: Floats | None,
    grids: dict[int, Floats],
) -> tuple[Floats, Floats]:
    """Threshold ``[N]`` and slope ``[N]`` of every node, in scaled units; infinite where it is beyond ``HUGE``."""
    compares = np.ones(len(ensemble.threshold), dtype=bool)
    compares[list(ensemble.categories)] = False  # the others look up a table
    threshold, gap = np.where(compares, _without_huge(ensemble.threshold), 0.0), np.ones(len(compares))
    finite = np.isfinite(threshold)
    for column in np.unique(ensemble.feature[compares]):
        nodes = np.flatnonzero((ensemble.feature == column) & compares & finite)
        if sample is not None or column in grids:
            values = np.unique(np.r_[_known_values(ensemble, column, sample, grids), grids.get(column, ())])
            moved, half = _center_in_gap(ensemble.threshold[nodes], values)
        else:
            seen = np.empty(0) if ensemble.feature_range is None else ensemble.feature_range[column]
            moved, half = _between_thresholds(ensemble.threshold[nodes], seen)
            if ensemble.data_at == "next_above":
                moved -= half
        threshold[nodes] = (moved - units.center[column]) / units.scale[column]
        gap[nodes] = half / units.scale[column]
    width = TEMPERATURE_PER_HALF_GAP * gap
    if soft_fraction > 0 and sample is not None:
        width = np.maximum(
            width, TEMPERATURE_PER_HALF_GAP * _distance_quantile(ensemble, units, threshold, soft_fraction, sample)
        )
    return threshold, 1.0 / np.maximum(width, LEAST_WIDTH)


def _center_in_gap(threshold: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Middle of the gap between the neighbouring values, and half of it; a threshold beyond them all stays."""
    if len(values) < 2:
        return threshold, np.maximum(1.0, np.abs(threshold) * 1e-3)
    above = np.searchsorted(values, threshold, side="right")
    inside = (above > 0) & (above < len(values))
    low, high = values[np.clip(above - 1, 0, len(values) - 1)], values[np.clip(above, 0, len(values) - 1)]
    half = np.where(inside, (high - low) / 2, np.median(np.diff(values)) / 2)
    return np.where(inside, (low + high) / 2, threshold), half


def _between_thresholds(threshold: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Without values: a threshold stays, and its gap is a part of the way to the nearest other one of its column.

    ``seen`` is the range of the column in training, where the model stores it.
    """
    zero = np.abs(threshold) < 1e-30
    marks = np.unique(np.concatenate([threshold[~zero], seen[np.abs(seen) < HUGE], np.zeros(int(zero.any()))]))
    gaps = np.concatenate([[np.inf], np.diff(marks), [np.inf]])
    at = np.searchsorted(marks, threshold)
    moved, half = threshold.copy(), np.minimum(gaps[at], gaps[np.minimum(at + 1, len(gaps) - 1)]) * PART_OF_GAP
    if zero.any():
        moved[zero], half[zero] = _off_zero_bounds(threshold[zero], marks, alone=bool(zero.all()))
    # A lone threshold has its own size as the only clue.
    return moved, np.where(np.isfinite(half), half, np.maximum(np.abs(threshold), 1e-3) / 10)


def _off_zero_bounds(bound: Floats, marks: Floats, *, alone: bool) -> tuple[Floats, Floats]:
    """Move LightGBM's bounds of the value 0, stored as +-1e-35, off the 0 that lies on them, and give half their gap.

    By ``PART_OF_WAY`` to the next mark; to 0.5 in a 0/1 column.
    """
    above, below = marks[marks > 0].min(initial=np.inf), -marks[marks < 0].max(initial=-np.inf)
    if alone and above in (1.0, np.inf) and below == np.inf:
        return np.full_like(bound, 0.5), np.full_like(bound, 0.5)
    step = np.where(bound < 0, below, above)
    step = np.where(np.isfinite(step), step, 1.0) * PART_OF_WAY
    return np.where(bound < 0, -step, step), step


def _distance_quantile(
    ensemble: TreeEnsemble, units: Units, threshold: Floats, fraction: float, sample: Floats
) -> Floats:
    """Per node, the distance from its threshold within which ``fraction`` of the rows that reach it lie, ``[N]``.

    0 where all rows have the same value: other values, which tables have, may lie anywhere.
    """
    scaled = (sample - units.center) / units.scale
    varies = [_varies(column) for column in sample.T]
    distances = np.zeros(len(threshold))
    for tree in range(ensemble.trees):
        first, last = int(ensemble.node_start[tree]), int(ensemble.node_start[tree + 1])
        reached = {0: np.arange(len(scaled))}
        for node in range(last - first):
            rows = reached.pop(node, np.empty(0, dtype=np.int64))
            at = first + node
            x = scaled[rows, ensemble.feature[at]]
            distance = np.sort(np.abs(x - threshold[at])[np.isfinite(x)])
            if len(distance) and varies[ensemble.feature[at]] and np.isfinite(threshold[at]):
                distances[at] = distance[min(len(distance) - 1, int(fraction * len(distance)))]
            left = np.where(np.isnan(x), ensemble.default_left[at], x <= threshold[at])
            for child, goes in ((ensemble.left[at], left), (ensemble.right[at], ~left)):
                if child >= 0:
                    reached[int(child)] = rows[goes]
    return distances


def _pack(
    ensemble: TreeEnsemble,
    padded: PaddedTrees,
    units: Units,
    threshold: Floats,
    slope: Floats,
    leaf_temperature: float,
    level: str,
) -> dict[str, Any]:
    """Nodes and paths as rectangular float32 tensors; padding is 0, its slope 1."""
    node, leaf = padded.node, padded.leaf
    real, leaf_real = node >= 0, leaf >= 0
    length = np.abs(padded.path).sum(axis=1)
    feature = _pad_values(ensemble.feature, node, 0)
    category_node, categorical, table = _category_table(ensemble, padded.node)
    placed = _pad_values(threshold, node, 0.0)
    return dict(
        center=_float(units.center),
        scale=_float(units.scale),
        feature=torch.from_numpy(feature),
        threshold=_float(placed),
        slope=_float(np.where(categorical, 1.0 / leaf_temperature, _pad_values(slope, node, 1.0))),
        missing=torch.from_numpy(_pad_values(ensemble.missing, node, 0)),
        direction=_float(np.where(_pad_values(ensemble.default_left, node, False), -1.0, 1.0)),
        node_weight=_one_hot(feature, real, ensemble.width) if LEVELS.index(level) >= 3 else _float(np.zeros(0)),
        path=torch.from_numpy(padded.path),
        path_bias=_float(np.where(leaf_real, 1 - length, 0)),
        leaf_slope=_float(np.full(leaf.shape, 1.0 / leaf_temperature)),
        node_mask=_float(real),
        leaf_mask=_float(leaf_real),
        category_node=torch.from_numpy(category_node),
        category_table=table,
    )


def _values(ensemble: TreeEnsemble, padded: PaddedTrees) -> dict[str, Any]:
    """The values of leaves, and what all of them share."""
    leaf, leaf_real = padded.leaf, padded.leaf >= 0
    # (1 + h) / 2 is nearly 1 for one leaf and nearly 0 for the others. Their sum is not exactly 1 and would scale a
    # value that all leaves share, so the mean leaf value moves to the base.
    shared = _leaf_means(ensemble)
    if ensemble.vector:
        base = ensemble.base + shared.sum(axis=0)
        leaf_value = np.where(leaf_real[:, :, None], ensemble.leaf_value[np.maximum(leaf, 0)] - shared[:, None], 0.0)
    else:
        base = ensemble.base + np.bincount(ensemble.output, weights=shared, minlength=ensemble.outputs)
        leaf_value = np.where(leaf_real, _pad_values(ensemble.leaf_value, leaf, 0.0) - shared[:, None], 0.0)
    return dict(
        leaf_value=_float(leaf_value / ensemble.divisor),
        base=_float(base / ensemble.divisor),
        output=torch.from_numpy(ensemble.output.copy()),
    )


def _leaf_means(ensemble: TreeEnsemble) -> Floats:
    """Mean over the leaves of each tree, ``[T]``, or ``[T, K]`` where a leaf holds a value for each score."""
    sums = np.add.reduceat(ensemble.leaf_value, ensemble.leaf_start[:-1])
    counts: NDArray[np.int64] = np.diff(ensemble.leaf_start)
    return sums / (counts[:, None] if ensemble.vector else counts)


def _pad_values(values: NDArray[Any], table: NDArray[np.int64], padding: object) -> NDArray[Any]:
    if len(values) == 0:
        return np.full(table.shape, padding, dtype=values.dtype)
    return np.where(table >= 0, values[np.maximum(table, 0)], np.asarray(padding, dtype=values.dtype))


def _one_hot(feature: NDArray[np.int64], real: NDArray[np.bool_], width: int) -> Tensor:
    weight = torch.zeros(feature.shape[0], width, feature.shape[1], dtype=torch.float32)
    return weight.scatter_(1, torch.from_numpy(feature).unsqueeze(1), _float(real).unsqueeze(1))


def _bounds(ensemble: TreeEnsemble, threshold: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """Far outside of the thresholds of a column, so that infinities stay finite and nothing else changes."""
    low, high = np.full(ensemble.width, -1e3), np.full(ensemble.width, 1e3)
    reach = np.where(np.isfinite(threshold), np.abs(threshold), 0.0) + 20.0 / slope
    np.maximum.at(high, ensemble.feature, reach * 10)
    np.minimum.at(low, ensemble.feature, -reach * 10)
    return low, high


def _category_table(
    ensemble: TreeEnsemble, node: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], Tensor]:
    """Positions of categorical nodes in T * n (as numbers and as a mask), and -1 (left) or +1 per category and node.

    The last but one column is for unknown categories: they go right. The last is for missing ones.
    """
    categorical = np.isin(node, list(ensemble.categories))
    positions = np.flatnonzero(categorical)
    size = 2 + max((int(known.max(initial=-1)) + 1 for known in ensemble.categories.values()), default=0)
    table = torch.ones(len(positions), size, dtype=torch.float32)
    missing_left = (ensemble.missing == MISSING_NAN) & ensemble.default_left
    for row, number in enumerate(node.flatten()[positions].tolist()):
        table[row, torch.from_numpy(ensemble.categories[number].copy())] = -1.0
        table[row, -1] = -1.0 if missing_left[number] else 1.0
    return positions, categorical, table


def _draw(trees: SoftSplits, generator: torch.Generator) -> None:
    """A cold start: what is trainable is drawn at the size it had.

    The architecture, what is frozen, and thresholds that no number reaches stay.
    """
    with torch.no_grad():
        for name, parameter in trees.named_parameters():
            if parameter.requires_grad and name != "base" and parameter.numel():
                chosen = ~trees.beyond_bounds() if name == "threshold" else torch.ones_like(parameter, dtype=torch.bool)
                scale = parameter[chosen].std(unbiased=False).clamp_min(1e-3)
                parameter[chosen] = (
                    torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)[chosen] * scale
                )


def _float(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
