"""Exact Shapley values of hard trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.modules.threads import run_parallel
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.modules.trees.leaf_steps import leaf_steps

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
    base = torch.from_numpy(ensemble.base / ensemble.divisor).clone()
    for group in groups:
        reached = leaf_value[group.leaf] * group.fraction.prod(dim=1, keepdim=True)
        if ensemble.vector:
            base += reached.sum(dim=0)
        else:
            base.index_add_(0, output[group.leaf], reached[:, 0])

    def values_of(rows: Tensor) -> Tensor:
        """Those of some rows, ``[b, width x K]``."""
        values = torch.zeros(len(rows), ensemble.width * ensemble.outputs, dtype=torch.float64)
        goes_right = trees.goes_right(rows)
        for group in groups:
            if group.feature.shape[1] == 0:
                continue
            per_leaf = _contributions(group, goes_right)  # [b, L, U]
            for score in range(ensemble.outputs) if ensemble.vector else [0]:
                place = group.feature * ensemble.outputs
                place = place + (score if ensemble.vector else output[group.leaf].unsqueeze(1))
                weighted = per_leaf * leaf_value[group.leaf, score].unsqueeze(1)
                values.index_add_(1, place.flatten(), weighted.flatten(1))
        return values

    largest = max((group.feature.numel() for group in groups), default=1)
    with torch.inference_mode():
        blocks = torch.split(x, max(1, CELLS // max(1, largest)))
        values = torch.cat(run_parallel(values_of, blocks, single_thread=True))
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
    assert ensemble.leaf_cover is not None
    leaf, node, child, right = leaf_steps(ensemble)
    below = np.bincount(node, ensemble.leaf_cover[leaf], minlength=len(ensemble.feature))
    total, part = below[node], np.concatenate([below, ensemble.leaf_cover])[child]
    fraction_of_step = np.divide(part, total, out=np.full(len(leaf), 0.5), where=total > 0)
    # A player is a feature on the path of a leaf; players are sorted by leaf, then by feature.
    players, player = np.unique(leaf * ensemble.width + ensemble.feature[node], return_inverse=True)
    fraction = np.ones(len(players))
    np.multiply.at(fraction, player, fraction_of_step)
    leaf_of_player, feature = np.divmod(players, max(1, ensemble.width))
    counts = np.bincount(leaf_of_player, minlength=len(ensemble.leaf_value))
    groups = []
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        of_players, of_steps = counts[leaf_of_player] == count, counts[leaf] == count
        shape, cell = (len(members), int(count)), np.cumsum(of_players) - 1
        groups.append(
            LeafGroup(
                leaf=torch.from_numpy(members),
                feature=torch.from_numpy(feature[of_players].reshape(shape)),
                fraction=torch.from_numpy(fraction[of_players].reshape(shape)).clamp_min(LEAST_FRACTION),
                node=torch.from_numpy(node[of_steps]),
                right=torch.from_numpy(right[of_steps]),
                cell=torch.from_numpy(cell[player[of_steps]]),
            )
        )
    return groups
