"""Soft trees: a tree ensemble as small tanh networks that gradients flow through."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.modules.base import Module, derived, learned
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO, NEAR_ZERO
from windtunnel.modules.trees.soft.kernel.operands import SoftOperands
from windtunnel.modules.trees.soft.kernel.operation import soft_ensemble
from windtunnel.modules.trees.soft.kernel.overrides import category_codes
from windtunnel.modules.trees.soft.size_groups import group_by_size, select_group

LEVELS = ("L0", "L1", "L2", "L3", "L4")


class SoftSplits(Module, kw_only=True):
    r"""T trees of at most n nodes and l leaves each, down to their leaves, as two layers of a tanh network.

    With z the input, scaled column by column, and s the slope (one over the temperature):

    - node: ``a = tanh(s_node (z . w - threshold))``, +1 towards the right child (a categorical node: ``a =
      tanh(s_node table[category])``; a missing value: the default direction, -1 or +1);
    - leaf: ``h = tanh(s_leaf (sum of signed ancestors - C + 1))`` for a path of C ancestors.

    What is trainable: up to L1 nothing, L2 ``threshold`` and ``table``, L3 also ``w``, L4 also the second layer, the
    weights of nodes that are no ancestors (0 at the start) included. Up to L2 a node reads its one feature. Nodes and
    leaves that pad smaller trees to n and l are masked.

    Source
        WindTunnel (VLDB 2022): node and leaf formulas, levels L1-L4. Temperatures per node and the direction of missing
        values are ours.
    """

    COPIES: ClassVar[bool] = False
    CHOICES = {"level": LEVELS}
    KINDS = dict.fromkeys(("threshold", "category_table", "node_weight", "path", "path_bias"), "tree")
    NAN, ZERO, NEAR_ZERO = MISSING_NAN, MISSING_ZERO, NEAR_ZERO
    GROUP = 4
    """Trees worked on at once in straight torch: few enough for caches, enough for the matrix products."""
    __constants__: ClassVar[list[str]] = ["NAN", "ZERO", "NEAR_ZERO", "GROUP"]
    LEARNED_FROM: ClassVar[dict[str, int]] = {
        "threshold": 2, "category_table": 2, "node_weight": 3, "path": 4, "path_bias": 4,
    }  # fmt: skip
    """The level from which on a parameter is trainable."""

    center: Tensor  # [width], in the unit of the input
    scale: Tensor  # [width]; z = (x - center) / scale
    bound: Tensor  # [2, width]; z is clipped to these, far outside of anything that a threshold separates
    feature: Tensor  # int64 [T, n]
    slope: Tensor  # [T, n], one over the temperature
    missing: Tensor  # int8 [T, n], see TreeEnsemble
    direction: Tensor  # [T, n], -1 where a missing value goes left, else +1
    leaf_slope: Tensor  # [T, l]
    node_mask: Tensor  # [T, n], 1 for a node, 0 for padding
    leaf_mask: Tensor  # [T, l]
    category_node: Tensor  # int64 [c], positions in T * n
    threshold: Tensor = learned()  # [T, n], in the unit of z; beyond the bounds if all numbers go to one side
    category_table: Tensor = learned()  # [c, V + 2]
    node_weight: Tensor = learned()  # [T, width, n]; empty up to L2
    path: Tensor = learned()  # [T, n, l], -1 / 0 / +1 at the start
    path_bias: Tensor = learned()  # [T, l], 1 - C at the start
    level: str = "L4"
    dropout: float = 0.0
    depth: int = derived()

    def __post_init__(self) -> None:
        self.depth = LEVELS.index(self.level)
        for name, first in self.LEARNED_FROM.items():
            getattr(self, name).requires_grad_(self.depth >= first)
        self.any_zero_missing = bool((self.missing == MISSING_ZERO).any())
        self.any_missing = bool((self.missing != MISSING_NONE).any())
        self.any_category = self.category_node.numel() > 0

    def scaled(self, x: Tensor) -> Tensor:
        """The input as z ``[B, width]``; a missing value counts as x = 0."""
        z = (torch.where(torch.isnan(x), torch.zeros_like(x), x) - self.center) / self.scale
        return torch.minimum(torch.maximum(z, self.bound[0]), self.bound[1])

    def beyond_bounds(self) -> Tensor:
        """Nodes whose threshold no number reaches, ``[T, n]``: they separate missing values alone."""
        return (self.threshold < self.bound[0, self.feature]) | (self.threshold > self.bound[1, self.feature])

    def path_mask(self) -> Tensor:
        """1 between a real node and a real leaf, ``[T, n, l]``."""
        return self.node_mask.unsqueeze(2) * self.leaf_mask.unsqueeze(1)

    @torch.jit.unused
    def operands(self, x: Tensor, leaf_value: Tensor) -> SoftOperands:
        """The input of the operation on the whole ensemble."""
        has_overrides = self.any_zero_missing or self.any_missing or self.any_category
        return SoftOperands(
            z=self.scaled(x),
            weight=self.node_weight if self.depth >= 3 else x.new_zeros(0),
            threshold=self.threshold,
            slope=self.slope,
            path=self.path * self.path_mask(),
            path_bias=self.path_bias,
            leaf_slope=self.leaf_slope,
            leaf_value=leaf_value,
            x=x.detach() if has_overrides else x.new_zeros(0),
            feature=self.feature,
            missing=self.missing,
            direction=self.direction,
            category_node=self.category_node,
            category_table=self.category_table,
        )

    def leaf_activations(self, z: Tensor, path: Tensor, overridden: Tensor, value: Tensor, first: int) -> Tensor:
        """The leaves h of ``GROUP`` trees from ``first`` on, ``[G, B, l]``, in straight torch; no dropout.

        ``overridden`` and ``value`` are what ``overridden_nodes`` gives, ``path`` is masked.
        """
        last = first + self.GROUP
        active = torch.tanh(self.node_inputs(z, first, last))
        if overridden.numel():
            active = torch.where(overridden[first:last], value[first:last], active)
        slope = self.leaf_slope[first:last].unsqueeze(1)
        bias = self.path_bias[first:last].unsqueeze(1) * slope
        return torch.tanh(torch.baddbmm(bias, active, path[first:last] * slope))

    def node_inputs(self, z: Tensor, first: int, last: int) -> Tensor:
        """``slope (z . w - threshold)`` of the nodes of some trees, ``[G, B, n]``."""
        threshold, slope = self.threshold[first:last].unsqueeze(1), self.slope[first:last].unsqueeze(1)
        if self.depth >= 3:
            rows = z.unsqueeze(0).expand(threshold.shape[0], z.shape[0], z.shape[1])
            return torch.baddbmm(-(threshold * slope), rows, self.node_weight[first:last] * slope)
        feature = self.feature[first:last]
        picked = z[:, feature.flatten()].view(z.shape[0], feature.shape[0], feature.shape[1]).transpose(0, 1)
        return (picked - threshold) * slope

    def overridden_nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A mask of the nodes that do not compare, ``[T, B, n]``, and their activations; empty where all compare."""
        empty = torch.zeros(0, device=x.device)
        missing = torch.isnan(x)
        # An exported program cannot branch on the rows.
        some = bool(missing.any()) if torch.jit.is_scripting() else True  # type: ignore[attr-defined]
        relevant = self.any_zero_missing or (self.any_missing and some)
        if not (relevant or self.any_category):
            return empty.to(torch.bool), empty
        trees, nodes = self.feature.shape[0], self.feature.shape[1]
        flat = self.feature.flatten()
        kind = self.missing.flatten()
        gone = missing[:, flat]
        overridden = gone & (kind == self.NAN)
        if self.any_zero_missing:
            near_zero = (x.abs() <= self.NEAR_ZERO)[:, flat] | gone
            overridden = overridden | (near_zero & (kind == self.ZERO))
        value = self.direction.flatten().expand(x.shape[0], trees * nodes)
        if self.any_category:
            at = self.category_node
            code = category_codes(x[:, flat[at]], self.category_table.shape[1] - 2)
            entry = self.category_table.gather(1, code.t()).t() * self.slope.flatten()[at]
            value = value.clone().index_copy(1, at, torch.tanh(entry))
            overridden = overridden.index_fill(1, at, True)
        shape = (x.shape[0], trees, nodes)
        return overridden.view(shape).transpose(0, 1), value.reshape(shape).transpose(0, 1)


class SoftTrees(SoftSplits, kw_only=True):
    r"""Trees as tanh networks with two hidden layers, those of ``SoftSplits``, and a value at each leaf.

    score k: ``base_k + sum over the trees of k and their leaves of value / 2 (1 + h)``; what all leaves of a tree have
    in common is in the base. What pads smaller trees adds 0 whatever training does.

    From L1 on ``value`` and ``base`` are trainable. Trees of like shape are computed together, see ``size_groups``.

    Shape
        ``[B, width]`` -> the same ``[B, K]``, computed in the type of the weights, float32: raw scores in the unit of
        the source (log-odds for a classifier).

    Source
        WindTunnel (VLDB 2022): tree formula.
    """

    KINDS = {**SoftSplits.KINDS, "leaf_value": "leaf", "base": "leaf"}
    LEARNED_FROM = {**SoftSplits.LEARNED_FROM, "leaf_value": 1, "base": 1}
    leaf_value: Tensor = learned()  # [T, l] or [T, l, K]
    base: Tensor = learned()  # [K]
    output: Tensor  # int64 [T], not read where leaf_value is [T, l, K]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.groups = group_by_size(tuple(self.leaf_mask.sum(dim=1).int().tolist()))

    def forward(self, x: Tensor) -> Tensor:
        """Raw scores ``[B, K]``."""
        rows = x.to(self.base.dtype)
        scores = self.plain_scores(rows) if torch.jit.is_scripting() else self._scores(rows)  # type: ignore[attr-defined]
        return (scores + self.base).to(x.dtype)

    def plain_scores(self, x: Tensor) -> Tensor:
        """Scores without the base in straight torch, which scripts and exports; no dropout."""
        z, path, leaf_value = self.scaled(x), self.path * self.path_mask(), self.masked_values()
        overridden, value = self.overridden_nodes(x)
        # (1 + h) . v = sum of v + h . v
        scores = leaf_value.sum(dim=[0, 1]).unsqueeze(0).expand(x.shape[0], leaf_value.shape[2])
        for first in range(0, self.threshold.shape[0], self.GROUP):
            leaves = self.leaf_activations(z, path, overridden, value, first)
            scores = scores + torch.bmm(leaves, leaf_value[first : first + self.GROUP]).sum(dim=0)
        return scores

    @torch.jit.unused
    def _scores(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return self.plain_scores(x)
        operands, rate = self.operands(x, self.masked_values()), self.dropout if self.training else 0.0
        if len(self.groups) == 1:
            return soft_ensemble(operands, rate)
        scores = soft_ensemble(select_group(operands, self.groups[0]), rate)
        for group in self.groups[1:]:
            scores = scores + soft_ensemble(select_group(operands, group), rate)
        return scores

    def masked_values(self) -> Tensor:
        """Half of each real leaf's value in the column of its tree's score, ``[T, l, K]``."""
        if self.leaf_value.dim() == 3:
            return self.leaf_value * (self.leaf_mask * 0.5).unsqueeze(2)
        column = torch.nn.functional.one_hot(self.output, self.base.shape[0]).to(self.leaf_value.dtype)
        return (self.leaf_value * self.leaf_mask * 0.5).unsqueeze(2) * column.unsqueeze(1)


class SoftLeaves(SoftSplits, kw_only=True):
    """One column per leaf of every tree: near 1 where the row falls into the leaf, near 0 elsewhere.

    y = (1 + h) / 2, with h the leaf of ``SoftSplits``

    There is no leaf value, so up to L1 nothing is trainable; from L2 on it is what ``SoftSplits`` says.

    Source
    ------
    WindTunnel (VLDB 2022), section 5.2.2.
    """

    column: Tensor  # int64 [L], where the real leaves stand among the T * l of padded trees

    def __post_init__(self) -> None:
        super().__post_init__()
        self.padded = self.column.shape[0] < self.leaf_mask.numel()

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> the same [B, L], L the leaves of all trees, tree after tree."""
        rows = x.to(self.threshold.dtype)
        leaves = self.plain_leaves(rows) if torch.jit.is_scripting() else self._leaves(rows)  # type: ignore[attr-defined]
        return (leaves.index_select(1, self.column) if self.padded else leaves).to(x.dtype)

    def plain_leaves(self, x: Tensor) -> Tensor:
        """Leaves of the padded trees in straight torch, which scripts and exports; no dropout."""
        z, path = self.scaled(x), self.path * self.path_mask()
        overridden, value = self.overridden_nodes(x)
        parts: list[Tensor] = []
        for first in range(0, self.threshold.shape[0], self.GROUP):
            leaves = self.leaf_activations(z, path, overridden, value, first)
            parts.append((1 + leaves).transpose(0, 1).flatten(1) / 2)
        return torch.cat(parts, dim=1)

    @torch.jit.unused
    def _leaves(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return self.plain_leaves(x)
        # What is dropped of a leaf is all of it, so that one without a row and one that is dropped are both 0.
        return soft_ensemble(self.operands(x, x.new_zeros(0)), self.dropout if self.training else 0.0, whole=True)
