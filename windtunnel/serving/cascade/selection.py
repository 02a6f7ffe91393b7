"""Selection of the groups that the small model reads (Willump, algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.serving.cascade.statistics import FeatureGroup


def efficient_groups(groups: Sequence[FeatureGroup], gamma: float) -> list[FeatureGroup]:
    """The groups with the most importance per cost, at most half of the total cost.

    They are taken by falling importance / cost, until the next one has less than ``gamma`` times that of all groups
    taken so far. A group that would exceed half of the total cost is passed over.

    Source
    ------
    Kraft et al., Willump, MLSys 2020, algorithm 1.
    """
    total = sum(group.cost for group in groups)
    chosen: list[FeatureGroup] = []
    cost = importance = 0.0
    for group in sorted(groups, key=_worth, reverse=True):
        if chosen and _worth(group) < gamma * importance / max(cost, 1e-12):
            break
        if cost + group.cost > total / 2:
            continue
        chosen.append(group)
        cost, importance = cost + group.cost, importance + group.importance
    return chosen


def _worth(group: FeatureGroup) -> float:
    return group.importance / max(group.cost, 1e-12)
