"""From soft trees to ``CondensedTrees``: folding, and dropping leaves and nodes that do not matter on given rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from windtunnel.modules.trees.soft.condensed import CondensedTrees
from windtunnel.modules.trees.soft.trees import SoftTrees

UNITS = 256
"""Units worked on at once; more leave the cache, fewer make small matrix products (measured)."""
ALWAYS = 40.0
"""What the sigmoid of the unit that is always 1 reads: in float32 it is 1."""
NEGLIGIBLE = 0.01
"""A node whose weight times the standard deviation of its unit is below this for every leaf moves none of them."""


@dataclass(frozen=True)
class Folded:
    """Soft trees with slopes, masks and shifts folded in, still padded: T trees, n nodes, l leaves.

    Attributes
    ----------
    soft : SoftTrees
        What was folded.
    first : Tensor
        [T, n, width + 1], the last column the shifts.
    second : Tensor
        [T, l, n + 1], the last column the biases.
    value : Tensor
        [T, l, K], each leaf's whole value.
    base : Tensor
        [K], added to the sum of these.
    nodes, leaves : Tensor
        bool [T, n] and [T, l], which are there.
    dropped : float
        By how much the score of any row may have changed at the most, as a sum over what was dropped.
    """

    soft: SoftTrees
    first: Tensor
    second: Tensor
    value: Tensor
    base: Tensor
    nodes: Tensor
    leaves: Tensor
    dropped: float = 0.0


class Moments(NamedTuple):
    """Mean and standard deviation over rows of each unit ``[T, n]`` and of each leaf's reach ``[T, l]``."""

    unit_mean: Tensor
    unit_std: Tensor
    reach_mean: Tensor
    reach_std: Tensor


def fold(soft: SoftTrees) -> Folded:
    """Put all that is constant into the two layers.

    With y = s (z . w - threshold) a node is 2 sigmoid(2 y) - 1; so ``first`` is 2 s (w, -threshold), and ``second``
    4 s path with the bias 2 s (path_bias - sum of path); a leaf ``value / 2 (1 + h)`` is value sigmoid(...).
    """
    with torch.no_grad():
        slope = soft.slope.unsqueeze(2) * 2
        if soft.node_weight.numel():
            weight = soft.node_weight.transpose(1, 2)
        else:
            weight = soft.center.new_zeros(*soft.feature.shape, len(soft.center))
            weight.scatter_(2, soft.feature.unsqueeze(2), 1.0)
        first = torch.cat([weight, -soft.threshold.unsqueeze(2)], dim=2) * slope
        path, steep = (soft.path * soft.path_mask()).transpose(1, 2), soft.leaf_slope.unsqueeze(2) * 2
        bias = soft.path_bias - path.sum(dim=2)
        second = torch.cat([path * 2, bias.unsqueeze(2)], dim=2) * steep
        return Folded(
            soft, first, second, soft.masked_values() * 2, soft.base.clone(), soft.node_mask > 0, soft.leaf_mask > 0
        )


def dropped(folded: Folded, over: Moments, budget: float) -> Folded:
    """Without the leaves that move the scores of the rows least, and the nodes that then move no leaf.

    What a leaf gives, value times reach, varies over the rows; the leaves that vary least go, as long as the root of
    the sum of their variances is within ``budget``, in the unit of the score. Their means go to the base, the means of
    dropped units to the biases. Reach and units are between 0 and 1, which gives the bound for any row.
    """
    unit_mean, unit_std, reach_mean, reach_std = over
    size = folded.value.square().mean(dim=2).sqrt()
    spread = torch.where(folded.leaves, reach_std * size, torch.inf).flatten()
    order = spread.argsort()
    gone = order[spread[order].square().cumsum(0) <= budget**2]
    keep = folded.leaves.flatten().clone()
    keep[gone[: int(keep.sum()) - 1]] = False  # one stays, so that there is a tree
    leaves = keep.view_as(folded.leaves)
    out = folded.leaves & ~leaves
    base = folded.base + (folded.value * (reach_mean * out).unsqueeze(2)).sum(dim=(0, 1))
    far = torch.maximum(reach_mean, 1 - reach_mean) * out
    bound = (folded.value.abs() * far.unsqueeze(2)).sum(dim=(0, 1))
    weight = folded.second[:, :, :-1].abs() * leaves.unsqueeze(2)
    nodes = folded.nodes & (weight.amax(dim=1) * unit_std > NEGLIGIBLE)
    lost = (folded.nodes & ~nodes).to(weight.dtype)
    second = folded.second.clone()
    second[:, :, -1] += torch.einsum("tln,tn->tl", folded.second[:, :, :-1], unit_mean * lost)
    second[:, :, :-1] *= nodes.unsqueeze(1)
    # The slope of the sigmoid is at most 1/4.
    moved = torch.einsum("tln,tn->tl", weight, torch.maximum(unit_mean, 1 - unit_mean) * lost) / 4
    bound = bound + (folded.value.abs() * moved.clamp_max(1).unsqueeze(2)).sum(dim=(0, 1))
    return replace(
        folded,
        second=second,
        value=folded.value * leaves.unsqueeze(2),
        base=base,
        nodes=nodes,
        leaves=leaves,
        dropped=folded.dropped + float(bound.max()),
    )


def gather_bound(folded: Folded, x: Tensor) -> float:
    """By how much a score of the rows ``x`` may change where a node reads nothing but its own column."""
    soft = folded.soft
    largest = soft.scaled(x).abs().amax(dim=0)
    own = folded.soft.feature.unsqueeze(2)
    other = folded.first[:, :, :-1].abs().scatter(2, own, 0.0) @ largest / 4
    moved = torch.einsum("tln,tn->tl", folded.second[:, :, :-1].abs(), other.clamp_max(1) * folded.nodes) / 4
    return float((folded.value.abs() * moved.clamp_max(1).unsqueeze(2)).sum(dim=(0, 1)).max())


def rounding_bound(folded: Folded) -> float:
    """By how much the score of any row may change where the second layer is bfloat16, with 8 bits of a number."""
    second = folded.second
    weights = (second - second.bfloat16().float()).abs().sum(dim=2)
    units = second[:, :, :-1].abs().sum(dim=2) * 2**-9
    # Of a sum y the last bit is y 2^-9, and y times the slope of the sigmoid is nowhere above 0.224.
    moved = (weights + units) / 4 + 0.224 * 2**-8
    return float((folded.value.abs() * moved.clamp_max(1).unsqueeze(2)).sum(dim=(0, 1)).max())


def packed(folded: Folded, *, gathers: bool, dtype: torch.dtype) -> CondensedTrees:
    """Trees of like size side by side, each group padded to its own largest tree."""
    soft, size = folded.soft, folded.nodes.shape[1]
    parts: dict[str, list[Tensor]] = {name: [] for name in ("first", "column", "second", "value", "missing", "right")}
    counts: dict[str, list[int]] = {name: [] for name in ("trees", "units", "leaves", "categories")}
    category_units, category_rows = [], []
    place_of = {int(position): row for row, position in enumerate(soft.category_node.tolist())}
    start = 0
    for group in _groups(folded):
        nodes, leaves = (int(kept[group].sum(dim=1).max()) for kept in (folded.nodes, folded.leaves))
        for tree in group:
            unit = _padded(folded.nodes[tree], nodes)
            leaf = _padded(folded.leaves[tree], leaves)
            first = pad(folded.first[tree], (0, 0, 0, 1))[unit]
            first = torch.cat([first, _one(first, ALWAYS)])
            second = pad(folded.second[tree], (0, 0, 0, 1))[leaf]
            # The bias, and before it zeros for the units that are padding.
            second = torch.cat([pad(second[:, :-1], (0, 1)), second[:, -1:]], dim=1)
            parts["first"].append(first)
            parts["second"].append(second[:, [*unit, -1]].flatten())
            parts["value"].append(pad(folded.value[tree], (0, 0, 0, 1))[leaf])
            for name, fact, padding in (
                ("column", soft.feature, 0), ("missing", soft.missing, 0), ("right", soft.direction, 1),
            ):  # fmt: skip
                parts[name].append(pad(fact[tree], (0, 1), value=padding)[[*unit, -1]])
            for place, node in enumerate(unit):
                row = place_of.get(tree * size + node) if node < size else None
                if row is not None:
                    category_units.append(start + place)
                    category_rows.append(row)
            start += nodes + 1
        counts["trees"].append(len(group))
        counts["units"].append(nodes + 1)
        counts["leaves"].append(leaves)
        counts["categories"].append(len(category_rows) - sum(counts["categories"]))
    joined = {name: torch.cat(part) for name, part in parts.items()}
    first, column = joined["first"], joined["column"]
    at = soft.category_node[category_rows]
    slope = soft.slope.flatten()[at].unsqueeze(1) * 2
    second = joined["second"]
    return CondensedTrees(
        center=soft.center.clone(),
        scale=soft.scale.clone(),
        bound=soft.bound.clone(),
        first=first[:0] if gathers else first,
        column=column,
        gain=first.gather(1, column.unsqueeze(1)),
        shift=first[:, -1:].clone(),
        second=second.to(dtype),
        value=joined["value"],
        base=folded.base,
        missing=joined["missing"].unsqueeze(1),
        right=joined["right"].unsqueeze(1) * torch.inf,
        category_unit=torch.tensor(category_units, dtype=torch.int64),
        category_column=soft.feature.flatten()[at],
        category_table=soft.category_table.detach()[category_rows] * slope,
        **counts,
    ).eval()


def _one(like: Tensor, shift: float) -> Tensor:
    """The row of the first layer whose unit is always 1."""
    row = like.new_zeros(1, like.shape[1])
    row[0, -1] = shift
    return row


def _padded(kept: Tensor, count: int) -> list[int]:
    """The places that are kept, then the place after the last for what is padding."""
    places: list[int] = kept.nonzero().flatten().tolist()
    return places + [len(kept)] * (count - len(places))


def _groups(folded: Folded) -> Iterator[list[int]]:
    """Trees in the order of their size, about ``UNITS`` units at a time; without those that have no leaf left."""
    nodes, leaves = (kept.sum(dim=1) for kept in (folded.nodes, folded.leaves))
    size = torch.maximum(nodes + 1, leaves)
    order: Sequence[int] = [tree for tree in size.argsort(descending=True).tolist() if leaves[tree] > 0]
    while order:
        count = max(1, UNITS // int(size[order[0]]))
        yield list(order[:count])
        order = order[count:]


def moments(folded: Folded, x: Tensor) -> Moments:
    """What units and leaves do on the rows ``x``."""
    soft = folded.soft
    given, settled = soft.settled_nodes(x)
    rows = torch.cat([soft.scaled(x), x.new_ones(len(x), 1)], dim=1)
    found: list[list[Tensor]] = [[], [], [], []]
    for tree in range(len(folded.first)):
        unit = torch.sigmoid(rows @ folded.first[tree].t())  # [R, n]
        if given.numel():
            unit = torch.where(given[tree], (1 + settled[tree]) / 2, unit)
        reach = torch.sigmoid(torch.cat([unit, rows[:, -1:]], dim=1) @ folded.second[tree].t())
        for place, one in enumerate((unit.mean(0), unit.std(0, False), reach.mean(0), reach.std(0, False))):
            found[place].append(one)
    return Moments(*(torch.stack(one) for one in found))
