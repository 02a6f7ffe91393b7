"""CatBoost's categories: the hashes and tables of target statistics in the JSON of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from windtunnel.encode.cityhash import signed, wrapped
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.tables.target_statistics import AboveBorders, TargetStatistics
from windtunnel.translators.arrays import tensor
from windtunnel.translators.conversions import HashedColumns

MULTIPLIER = 0x4906BA494954CB65
"""A hash h with one more value x is m (h + m x) modulo 2^64, for this odd m."""
SALT = 0x1E3779B97F4A7C15
EMPTY = "18446744073709551615"
"""Marks an empty cell of a hash table, 2^64 - 1."""
NO_LIMIT = 2**63
"""From this value on, ctr_leaf_count_limit has no effect."""
Numbers = NDArray[np.float32]
Split = tuple[int, float, bool]
"""A column of the trees, the border above which a value goes right, and whether missing ones do."""


@dataclass(frozen=True)
class Statistic:
    """A statistic of a combination of features: its value for each key of a table, and for all other keys."""

    elements: tuple[tuple[Any, ...], ...]
    keys: NDArray[np.int64]
    values: Numbers
    otherwise: float


@dataclass(frozen=True)
class Splits:
    """The columns that the trees of a model compare: numbers, then one for each statistic or compared category."""

    features: Mapping[int, tuple[int, str]]  # number of a feature -> its column, and the treatment of missing values
    columns: Mapping[Any, int]  # number of a statistic, or a category's feature and its hash -> column
    borders: Sequence[tuple[int, float]]
    """The splits by statistics, in the model's order: the number of the statistic, and the border."""
    first: int  # the number of the first of these splits
    width: int  # how many columns the trees read
    hashed: HashedColumns | None  # computes the columns after the numbers; None without categories

    @classmethod
    def of(cls, model: Mapping[str, Any], width: int, splits: Iterable[Mapping[str, Any]]) -> Splits:
        """Convert ``features_info`` and ``ctr_data`` of the JSON of a model over rows of ``width`` columns."""
        info = model["features_info"]
        categorical = info.get("categorical_features", [])
        categories = {feature["feature_index"]: feature["flat_feature_index"] for feature in categorical}
        flat = [column for column in range(width) if column not in categories.values()]
        features = {
            feature["feature_index"]: (flat.index(feature["flat_feature_index"]), feature["nan_value_treatment"])
            for feature in info.get("float_features", [])
        }
        if not categories:
            return cls(features, {}, [], 0, width, None)
        ctrs = info.get("ctrs", [])
        statistics: dict[Any, Statistic] = {
            number: _statistic(ctr, model["ctr_data"][ctr["identifier"]]) for number, ctr in enumerate(ctrs)
        }
        for split in splits:
            if split["split_type"] == "OneHotFeature":
                equal = (split["cat_feature_index"], split["value"])
                statistics.setdefault(equal, _indicator(*equal))
        if not flat and not statistics:
            raise UnsupportedEstimator(
                "the CatBoost model reads nothing but categories and splits by none of them, so that all rows get the "
                "same prediction; fit it on more rows, or take a DummyRegressor or DummyClassifier"
            )
        columns = {key: len(flat) + place for place, key in enumerate(statistics)}
        borders = [(number, border) for number, ctr in enumerate(ctrs) for border in ctr["borders"]]
        limit = model["model_info"]["params"]["cat_feature_params"]["ctr_leaf_count_limit"]
        hashed = _hashed(info, list(statistics.values()), categories, features, flat, whole=limit >= NO_LIMIT)
        # Splits by numbers come first, then those by a category.
        numbers = sum(len(feature["borders"]) for feature in info.get("float_features", []))
        first = numbers + sum(len(feature.get("values", [])) for feature in categorical)
        return cls(features, columns, borders, first, len(flat) + len(columns), hashed)

    def of_split(self, split: Mapping[str, Any]) -> Split:
        """The column, border and missing-value direction of a split."""
        kind = split["split_type"]
        if kind == "FloatFeature":
            column, treatment = self.features[split["float_feature_index"]]
            return column, split["border"], treatment == "AsTrue"
        if kind == "OneHotFeature":
            return self.columns[split["cat_feature_index"], split["value"]], 0.5, False
        number, border = self.borders[split["split_index"] - self.first]
        if border != split["border"]:
            raise UnsupportedEstimator(
                f"the CatBoost model numbers its splits in an unknown order: {split} is not at border {border}; fit it "
                "with catboost 1.2"
            )
        return self.columns[number], border, False


def _elements(ctr: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    """The elements of a combination, in the order of its hash: columns, columns compared, numbers above a border."""
    kinds = {
        "cat_feature_value": ("cat_feature_index",),
        "cat_feature_exact_value": ("cat_feature_index", "value"),
        "float_feature": ("float_feature_index", "border"),
    }
    named = [(element["combination_element"], element) for element in ctr["elements"]]
    return tuple((kind, *(element[key] for key in kinds[kind])) for kind, element in named)


def _statistic(ctr: Mapping[str, Any], table: Mapping[str, Any]) -> Statistic:
    """The numbers of one ctr, in float32: y = ((good + prior) / (all + prior's weight) + shift) scale."""
    stride = table["hash_stride"]
    cells = np.array(table["hash_map"], dtype=object).reshape(-1, stride)
    cells = cells[cells[:, 0] != EMPTY]
    keys = np.array([*map(int, cells[:, 0])], np.uint64).view(np.int64)
    cells, keys = cells[np.argsort(keys)], np.sort(keys)
    counts, kind = cells[:, 1:].astype(np.float64), ctr["ctr_type"]
    border, denominator = ctr["target_border_idx"], float(table["counter_denominator"])
    everything, nothing = counts.sum(axis=1), (0.0, 0.0)
    if kind in ("Counter", "FeatureFreq"):
        good, everything, nothing = counts[:, 0], np.full(len(counts), denominator), (0.0, denominator)
    elif kind in ("BinarizedTargetMeanValue", "FloatTargetMeanValue"):
        good, everything = counts[:, 0], counts[:, 1]
    elif kind == "Buckets":
        good = counts[:, border]
    elif kind == "Borders":
        good = counts[:, border + 1 :].sum(axis=1)
    else:
        raise UnsupportedEstimator(f"the CatBoost model has target statistics of an unknown kind, {kind!r}")
    prior, weight, shift, scale = (
        np.float32(ctr[name]) for name in ("prior_numerator", "prior_denomerator", "shift", "scale")
    )

    def value(good: Any, everything: Any) -> Any:
        return ((np.float32(good) + prior) / (np.float32(everything) + weight) + shift) * scale

    return Statistic(_elements(ctr), keys, value(good, everything), float(value(*nothing)))


def _indicator(category: int, value: int) -> Statistic:
    """1 where a column has this hash, else 0."""
    key = np.array([_factor(1, 0) * signed(value) % 2**64], np.uint64).view(np.int64)
    return Statistic((("cat_feature_value", category),), key, np.ones(1, np.float32), 0.0)


def _hashed(
    info: Mapping[str, Any],
    statistics: list[Statistic],
    categories: Mapping[int, int],
    features: Mapping[int, tuple[int, str]],
    flat: Sequence[int],
    whole: bool,
) -> HashedColumns:
    place = {index: at for at, index in enumerate(categories)}
    conditions = sorted(set(_parts(statistics, "float_feature")))
    return HashedColumns(
        categories={column: _stored_hashes(info, statistics, index) for index, column in categories.items()},
        complete=frozenset(
            column for index, column in categories.items() if whole and _all_hashes_stored(statistics, index)
        ),
        numbers=[flat[features[feature][0]] for _, feature, _ in conditions],
        borders=AboveBorders(
            tensor([border for *_, border in conditions]),
            torch.tensor([features[feature][1] == "AsTrue" for _, feature, _ in conditions], dtype=torch.bool),
        ),
        statistics=_module(statistics, place, {condition: len(place) + at for at, condition in enumerate(conditions)}),
    )


def _parts(statistics: Iterable[Statistic], kind: str) -> list[tuple[Any, ...]]:
    return [part for statistic in statistics for part in statistic.elements if part[0] == kind]


def _all_hashes_stored(statistics: Iterable[Statistic], index: int) -> bool:
    """Whether the model stores the hash of every category of a column: it is never combined, or has its own table."""
    column = ("cat_feature_value", index)
    alone = any(statistic.elements == (column,) and len(statistic.keys) > 1 for statistic in statistics)
    together = any(len(statistic.elements) > 1 and column in statistic.elements for statistic in statistics)
    return alone or not together


def _stored_hashes(info: Mapping[str, Any], statistics: Iterable[Statistic], index: int) -> list[int]:
    """The hashes of a column in the tables and comparisons of the model, from 0 to 2^32 - 1."""
    back = pow(_factor(1, 0), -1, 2**64)
    tables = [statistic for statistic in statistics if statistic.elements == (("cat_feature_value", index),)]
    keys = [key for statistic in tables for key in statistic.keys.tolist()]
    features = {feature["feature_index"]: feature for feature in info["categorical_features"]}
    named = features[index].get("values", [])
    compared = [part[2] for part in _parts(statistics, "cat_feature_exact_value") if part[1] == index]
    hashes = {key * back % 2**32 for key in keys} | {value % 2**32 for value in (*named, *compared)}
    return sorted(hashes)


def _module(
    statistics: Sequence[Statistic], columns: Mapping[int, int], conditions: Mapping[Any, int]
) -> TargetStatistics | None:
    """All tables as one module; statistics of the same combination and keys share a search."""
    if not statistics:
        return None
    combinations: dict[Any, int] = {}
    combination, keys = [], []
    for statistic in statistics:
        key = (statistic.elements, statistic.keys.tobytes())
        if key not in combinations:
            combinations[key] = len(combinations)
            keys.append(statistic.keys)
        combination.append(combinations[key])
    places = max(len(elements) for elements, _ in combinations)
    facts = np.zeros((4, places, len(combinations)), np.int64)
    for number, (elements, _) in enumerate(combinations):
        for place, part in enumerate(elements):
            compares = part[0] == "cat_feature_exact_value"
            column = conditions[part] if part[0] == "float_feature" else columns[part[1]]
            factor = wrapped(_factor(len(elements), place))
            facts[:, place, number] = column, factor, signed(part[2]) if compares else 0, compares
    salt = np.array([wrapped(number * SALT) for number in range(len(keys))], np.int64)
    sizes = np.array([len(hashes) for hashes in keys])
    salted = np.concatenate([hashes + salt[number] for number, hashes in enumerate(keys)])
    order = np.argsort(salted)
    if (np.diff(salted[order]) == 0).any():
        raise UnsupportedEstimator(
            "the CatBoost model has two combinations of categories of the same hash; fit it with another random_seed"
        )
    rows = [np.append(statistic.values, np.float32(statistic.otherwise)).astype(np.float64) for statistic in statistics]
    lengths = np.array([len(table) for table in rows])
    tensors = {
        "rows": np.concatenate(rows)[:, None],
        **dict(zip(("column", "factor", "equal"), facts, strict=False)),
        "compares": facts[3] > 0,
        "salt": salt,
        "count": sizes,
        "keys": salted[order],
        "owner": np.repeat(np.arange(len(keys)), sizes)[order],
        "place": np.concatenate([np.arange(size) for size in sizes])[order],
        "combination": np.array(combination),
        "first": np.cumsum(lengths) - lengths,
    }
    return TargetStatistics(**{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()})


def _factor(places: int, place: int) -> int:
    """The factor of the value at a place of a combination: m^(1 + places - place) modulo 2^64."""
    return pow(MULTIPLIER, 1 + places - place, 2**64)
