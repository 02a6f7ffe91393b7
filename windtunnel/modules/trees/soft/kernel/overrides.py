"""Nodes that do not compare: missing values go the default way, categories are looked up in a table."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_ZERO, NEAR_ZERO


class NodeOverrides(NamedTuple):
    """The nodes of a group of trees that may not compare; node j of tree t is row ``t (n + 1) + j``."""

    feature: Tensor  # int64 [G * n]
    missing: Tensor  # int8 [G * n, 1]
    far: Tensor  # [G * n, 1], infinitely far to the left or right of the threshold
    entries: Tensor  # int64 [c], which rows of the category table belong to the group
    units: Tensor  # int64 [c], their units of the group
    column: Tensor  # int64 [c], the columns that they read
    slope: Tensor  # [c, 1], of the sigmoid


def missing_flags(x: Tensor) -> Tensor | None:
    """int8 flags as in ``TreeEnsemble.missing``: which numbers count as missing for which nodes; None if none does."""
    missing = torch.isnan(x)
    near_zero = (x.abs() <= NEAR_ZERO) | missing
    if not near_zero.any():
        return None
    return missing.to(torch.int8) * MISSING_NAN + near_zero.to(torch.int8) * MISSING_ZERO


def node_overrides(
    feature: Tensor, missing: Tensor, direction: Tensor, slope: Tensor, category_node: Tensor, part: slice
) -> NodeOverrides:
    """The part of trees ``part``; operands as in ``SoftOperands``, slope ``[T, n]`` that of the sigmoid."""
    nodes = feature.shape[1]
    in_group = (category_node >= part.start * nodes) & (category_node < part.stop * nodes)
    entries = in_group.nonzero().flatten()
    at = category_node[entries]
    local = at - part.start * nodes
    return NodeOverrides(
        feature=feature[part].flatten(),
        missing=missing[part].flatten().unsqueeze(1),
        far=(direction[part].flatten() * torch.inf).unsqueeze(1),
        entries=entries,
        units=local + local // nodes,
        column=feature.flatten()[at],
        slope=slope.flatten()[at].unsqueeze(1),
    )


def apply_overrides(pre: Tensor, x: Tensor, gone: Tensor | None, overrides: NodeOverrides, table: Tensor) -> None:
    """Write missing values, as infinity, and categories into ``pre``, ``[G, n + 1, R]`` before the sigmoid."""
    if gone is not None:
        hit = (gone.index_select(0, overrides.feature) & overrides.missing) != 0
        nodes = pre[:, :-1]
        torch.where(hit.view(nodes.shape), overrides.far.view(*nodes.shape[:2], 1), nodes, out=nodes)
    if overrides.entries.numel():
        values = table.flatten()[_places(x, overrides, table)]
        pre.flatten(0, 1).index_copy_(0, overrides.units, values * overrides.slope)


def move_category_gradients(
    grad: Tensor, x: Tensor, overrides: NodeOverrides, table: Tensor, into: Tensor | None
) -> None:
    """Move the gradient of category nodes, ``[G, n + 1, R]`` before the sigmoid, from ``grad`` to that of the table."""
    if not overrides.entries.numel():
        return
    flat = grad.flatten(0, 1)
    if into is not None:
        moved = flat.index_select(0, overrides.units) * overrides.slope
        into.view(-1).index_add_(0, _places(x, overrides, table).flatten(), moved.flatten())
    flat.index_fill_(0, overrides.units, 0.0)


def category_codes(column: Tensor, known: int) -> Tensor:
    """The columns of a table of categories that belong to numbers, int64.

    After those of the ``known`` categories the table has two more: for unknown categories, and for missing values.
    """
    code = torch.where((column < 0) | (column >= known), torch.full_like(column, known), column)
    return torch.where(torch.isnan(column), torch.full_like(column, known + 1), code).long()


def _places(x: Tensor, overrides: NodeOverrides, table: Tensor) -> Tensor:
    """Where the table has the categories of the rows, int64 ``[c, R]``, counted through its rows."""
    code = category_codes(x.index_select(0, overrides.column), table.shape[1] - 2)
    return code + (overrides.entries * table.shape[1]).unsqueeze(1)
