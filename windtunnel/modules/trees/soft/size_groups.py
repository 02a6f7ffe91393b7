"""Groups of soft trees of similar size, so that small trees are not padded to the largest of the ensemble."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from windtunnel.modules.trees.soft.kernel.operands import SoftOperands

MOST = 4
"""Greatest number of groups; each prepares the rows again."""
WORTH = 0.8
"""Groups pay if they leave at most this fraction of the padded leaves (measured)."""


class SizeGroup(NamedTuple):
    """Trees of one group, ascending, and the leaves of the largest of them, 2 at least."""

    trees: list[int]
    leaves: int


@cache
def group_by_size(leaves: tuple[int, ...]) -> list[SizeGroup]:
    """Group trees by their numbers of leaves with the least padding; one group if that does not save enough."""
    sizes = [max(2, count) for count in leaves]
    ends = _largest(sizes)
    groups = [
        SizeGroup([tree for tree, size in enumerate(sizes) if low < size <= high], high)
        for low, high in zip([0, *ends[:-1]], ends, strict=True)
    ]
    padded = sum(len(group.trees) * group.leaves for group in groups)
    return groups if padded <= WORTH * len(sizes) * ends[-1] else [SizeGroup([*range(len(sizes))], ends[-1])]


def _largest(sizes: list[int]) -> list[int]:
    """The largest size of each of at most ``MOST`` groups, ascending, so that padded leaves are fewest."""
    steps = sorted(set(sizes)) or [2]
    many = [sum(size == step for size in sizes) for step in steps]
    # best[j]: padded leaves of the first j sizes in so many groups as there were turns, and where these groups end
    best: list[tuple[int, list[int]]] = [
        (0, []),
        *((sum(many[:j]) * steps[j - 1], [j]) for j in range(1, len(steps) + 1)),
    ]
    for _ in range(1, min(MOST, len(steps))):
        best = [
            min([fewer, *((best[i][0] + sum(many[i:j]) * steps[j - 1], [*best[i][1], j]) for i in range(1, j))])
            for j, fewer in enumerate(best)
        ]
    return [steps[end - 1] for end in best[-1][1]]


def select_group(operands: SoftOperands, group: SizeGroup) -> SoftOperands:
    """The operands of a group, cut to its largest tree; gradients find their way back to those of all trees."""
    tree = torch.tensor(group.trees, device=operands.path.device)
    nodes, leaves, nodes_before = group.leaves - 1, group.leaves, operands.path.shape[1]

    def cut(each: Tensor, units: int) -> Tensor:
        return each.index_select(0, tree)[..., :units]

    # Nodes with categories are counted through the trees of the group.
    place = torch.full((operands.path.shape[0],), -1, device=tree.device)
    place[tree] = torch.arange(len(tree), device=tree.device)
    its = place[operands.category_node // nodes_before]
    in_group = (its >= 0).nonzero().flatten()
    return operands._replace(
        weight=cut(operands.weight, nodes) if operands.weight.numel() else operands.weight,
        threshold=cut(operands.threshold, nodes),
        slope=cut(operands.slope, nodes),
        path=cut(operands.path[:, :nodes], leaves),
        path_bias=cut(operands.path_bias, leaves),
        leaf_slope=cut(operands.leaf_slope, leaves),
        leaf_value=operands.leaf_value.index_select(0, tree)[:, :leaves],
        feature=cut(operands.feature, nodes),
        missing=cut(operands.missing, nodes),
        direction=cut(operands.direction, nodes),
        category_node=its[in_group] * nodes + operands.category_node[in_group] % nodes_before,
        category_table=operands.category_table.index_select(0, in_group),
    )
