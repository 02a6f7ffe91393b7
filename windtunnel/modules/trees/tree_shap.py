"""Exact Shapley values of hard trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees

CELLS = 2**21
"""Rows x leaves x features at once."""
LEAST_FRACTION = 1e-150
"""Stands for the fraction 0 of a leaf without training rows, so that nothing is divided by 0."""


@dataclass(frozen=True)
class LeafGroup:
    """L leaves whose paths split on U features each."""

    leaf: Tensor  # int64 [L]
    feature: Tensor  # int64 [L, U]
    fraction: Tensor
    """float64 [L, U]; the part of the training rows that goes the way of the leaf at the nodes of each feature."""
    # node, right, cell: int64 [S], bool [S], int64 [S]; the S nodes on all these paths, whether the path goes right
    # there, and the feature that the node splits on, as a cell of [L, U]
    node: Tensor
    right: Tensor
    cell: Tensor


def tree_shap(trees: HardTrees, x: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    r"""Path-dependent Shapley values of the features, and the score that they start from.

    The players are the features. A coalition S scores a row by walking down each tree: at a node whose feature is in S
    the row goes its way, at any other node both ways, weighted by the training rows of the children. With the
    features U of the path to leaf l, the fraction z_j of the training rows that goes the way of l at the nodes of
    feature j, and o_j = 1 if the row does, else 0, feature i gets

        sum_l value_l (o_i - z_i) \int_0^1 prod_{j in U, j != i} (t o_j + (1 - t) z_j) dt

    The integrand is a polynomial of degree |U| - 1, which Gauss-Legendre quadrature with ceil(|U| / 2) points
    integrates exactly.

    Parameters
    ----------
    trees : HardTrees
        With ``leaf_cover``.
    x : Tensor
        ``[B, width]``, the input of the trees.

    Returns
    -------
    values : float64 [B, width, K]
    base : float64 [K]
        The mean score of the training rows that built the trees; with the values it adds up to the raw score.

    Source
    ------
    TreeSHAP (Lundberg et al., Nature Machine Intelligence 2020), whose values ``shap.TreeExplainer`` (``feature_
    perturbation="tree_path_dependent"``) and ``pred_contrib`` of LightGBM give too.
    """
    ensemble = trees.ensemble()
    groups = leaf_groups(ensemble)
    leaf_value = torch.from_numpy(ensemble.leaf_value).reshape(len(ensemble.leaf_value), -1) / ensemble.divisor
    output = torch.from_numpy(np.repeat(ensemble.output, np.diff(ensemble.leaf_start)))
    values = torch.zeros(len(x), ensemble.width * ensemble.outputs, dtype=torch.float64)
    base = torch.from_numpy(ensemble.base / ensemble.divisor).clone()
    for group in groups:
        reached = leaf_value[group.leaf] * group.fraction.prod(dim=1, keepdim=True)
        if ensemble.vector:
            base += reached.sum(dim=0)
        else:
            base.index_add_(0, output[group.leaf], reached[:, 0])
    largest = max((group.feature.numel() for group in groups), default=1)
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(x)), max(1, CELLS // max(1, largest))):
            goes_right = trees.goes_right(x[rows])
            for group in groups:
                if group.feature.shape[1] == 0:
                    continue
                per_leaf = _contributions(group, goes_right)  # [b, L, U]
                for score in range(ensemble.outputs) if ensemble.vector else [0]:
                    place = group.feature * ensemble.outputs
                    place = place + (score if ensemble.vector else output[group.leaf].unsqueeze(1))
                    weighted = per_leaf * leaf_value[group.leaf, score].unsqueeze(1)
                    values[rows] = values[rows].index_add_(1, place.flatten(), weighted.flatten(1))
    return values.view(len(x), ensemble.width, ensemble.outputs).numpy(), base.numpy()


def _contributions(group: LeafGroup, goes_right: Tensor) -> Tensor:
    """(o_i - z_i) times the integral, ``[b, L, U]``."""
    rows, (leaves, features) = len(goes_right), group.feature.shape
    leaves_path = (goes_right[:, group.node] != group.right).to(torch.float64)
    missed = torch.zeros(rows, leaves * features, dtype=torch.float64).index_add_(1, group.cell, leaves_path)
    follows = (missed == 0).view(rows, leaves, features)
    fraction = group.fraction
    integral = torch.zeros(rows, leaves, features, dtype=torch.float64)
    points, weights = np.polynomial.legendre.leggauss((features + 1) // 2)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        factor = torch.where(follows, point + (1 - point) * fraction, (1 - point) * fraction)
        integral += weight * factor.prod(dim=2, keepdim=True) / factor
    return (follows.to(torch.float64) - fraction) * integral


def leaf_groups(ensemble: TreeEnsemble) -> list[LeafGroup]:
    """The leaves of an ensemble by the number of features on their path."""
    paths = _paths(ensemble)
    by_count: dict[int, list[_Path]] = {}
    for path in paths:
        by_count.setdefault(len(path.fractions), []).append(path)
    return [_group(count, members) for count, members in sorted(by_count.items())]


@dataclass(frozen=True)
class _Path:
    """The way to a leaf: its nodes with their sides, and the fraction of each feature."""

    leaf: int
    steps: list[tuple[int, int, bool]]
    fractions: dict[int, float]


def _paths(ensemble: TreeEnsemble) -> list[_Path]:
    assert ensemble.leaf_cover is not None
    feature, left, right = (array.tolist() for array in (ensemble.feature, ensemble.left, ensemble.right))
    cover = ensemble.leaf_cover.tolist()
    starts = zip(ensemble.node_start[:-1].tolist(), ensemble.leaf_start[:-1].tolist(), strict=True)
    counts = np.diff(ensemble.node_start).tolist()
    paths: list[_Path] = []
    for (first_node, first_leaf), nodes in zip(starts, counts, strict=True):
        below = _covers(left, right, cover, first_node, first_leaf, nodes)
        stack: list[tuple[int, list[tuple[int, int, bool]], dict[int, float]]] = [(0 if nodes else -1, [], {})]
        while stack:
            child, steps, fractions = stack.pop()
            if child < 0:
                paths.append(_Path(first_leaf - 1 - child, steps, fractions))
                continue
            node = first_node + child
            column, total = feature[node], below[child]
            for next_child, goes_right in ((left[node], False), (right[node], True)):
                part = below[next_child] if next_child >= 0 else cover[first_leaf - 1 - next_child]
                fraction = part / total if total > 0 else 0.5
                narrowed = fractions | {column: fractions.get(column, 1.0) * fraction}
                stack.append((next_child, [*steps, (node, column, goes_right)], narrowed))
    return paths


def _covers(
    left: list[int], right: list[int], cover: list[float], first_node: int, first_leaf: int, nodes: int
) -> list[float]:
    """The weight of the training rows of each node of a tree, from those of its leaves."""
    order, stack = [], [0] if nodes else []
    while stack:
        order.append(node := stack.pop())
        stack += [child for child in (left[first_node + node], right[first_node + node]) if child >= 0]
    below = [0.0] * nodes
    for node in reversed(order):
        children = (left[first_node + node], right[first_node + node])
        below[node] = sum(below[child] if child >= 0 else cover[first_leaf - 1 - child] for child in children)
    return below


def _group(count: int, paths: list[_Path]) -> LeafGroup:
    node, right, cell = [], [], []
    for position, path in enumerate(paths):
        place = {feature: count * position + at for at, feature in enumerate(path.fractions)}
        for at, feature, goes_right in path.steps:
            node.append(at)
            right.append(goes_right)
            cell.append(place[feature])
    shape = (len(paths), count)
    features = np.array([list(path.fractions) for path in paths], np.int64).reshape(shape)
    fractions = np.array([list(path.fractions.values()) for path in paths], np.float64).reshape(shape)
    return LeafGroup(
        leaf=torch.tensor([path.leaf for path in paths], dtype=torch.int64),
        feature=torch.from_numpy(features),
        fraction=torch.from_numpy(fractions).clamp_min(LEAST_FRACTION),
        node=torch.tensor(node, dtype=torch.int64),
        right=torch.tensor(right, dtype=torch.bool),
        cell=torch.tensor(cell, dtype=torch.int64),
    )
