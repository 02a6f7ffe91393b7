"""Soft trees: a tree ensemble as small tanh networks that gradients flow through."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module
from windtunnel.modules.trees.ensemble import MISSING_NAN, MISSING_NONE, MISSING_ZERO
from windtunnel.modules.trees.soft.kernel.operands import SoftOperands
from windtunnel.modules.trees.soft.kernel.operation import soft_ensemble
from windtunnel.modules.trees.soft.kernel.recompute import soft_trees
from windtunnel.modules.trees.soft.kernel.settled import category_codes
from windtunnel.modules.trees.soft.like_shape import alike, of_group

LEVELS = ("L0", "L1", "L2", "L3", "L4")


class SoftSplits(Module):
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

    FACTS = ("level", "dropout")
    KINDS = dict.fromkeys(("threshold", "category_table", "node_weight", "path", "path_bias"), "tree")
    NAN: Final = MISSING_NAN
    ZERO: Final = MISSING_ZERO
    # For classes that derive from this one: TorchScript reads Final off the class itself only.
    __constants__: ClassVar[list[str]] = ["NAN", "ZERO"]
    dropout: float
    center: Tensor
    scale: Tensor
    bound: Tensor
    feature: Tensor
    slope: Tensor
    missing: Tensor
    direction: Tensor
    node_mask: Tensor
    leaf_mask: Tensor
    leaf_slope: Tensor
    category_node: Tensor

    def __init__(
        self,
        *,
        center: Tensor,
        scale: Tensor,
        bound: Tensor,
        feature: Tensor,
        threshold: Tensor,
        slope: Tensor,
        missing: Tensor,
        direction: Tensor,
        node_weight: Tensor,
        path: Tensor,
        path_bias: Tensor,
        leaf_slope: Tensor,
        node_mask: Tensor,
        leaf_mask: Tensor,
        category_node: Tensor,
        category_table: Tensor,
        level: str = "L4",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.level, self.dropout = level, dropout
        depth = LEVELS.index(level)
        self.depth = depth
        for name, fact in (
            ("center", center),  # [width], in the unit of the input
            ("scale", scale),  # [width]; z = (x - center) / scale
            ("bound", bound),  # [2, width]; z is kept between these, far outside of anything a threshold tells apart
            ("feature", feature),  # int64 [T, n]
            ("slope", slope),  # [T, n], one over the temperature
            ("missing", missing),  # int8 [T, n], see TreeEnsemble
            ("direction", direction),  # [T, n], -1 where a missing value goes left, else +1
            ("leaf_slope", leaf_slope),  # [T, l]
            ("node_mask", node_mask),  # [T, n], 1 for a node, 0 for padding
            ("leaf_mask", leaf_mask),  # [T, l]
            ("category_node", category_node),  # int64 [c], positions in T * n
        ):
            self.register_buffer(name, fact)
        self.threshold = nn.Parameter(threshold, requires_grad=depth >= 2)  # [T, n], in the unit of z
        self.category_table = nn.Parameter(category_table, requires_grad=depth >= 2)  # [c, V + 2]
        self.node_weight = nn.Parameter(node_weight, requires_grad=depth >= 3)  # [T, width, n]; empty up to L2
        self.path = nn.Parameter(path, requires_grad=depth >= 4)  # [T, n, l], -1 / 0 / +1 at the start
        self.path_bias = nn.Parameter(path_bias, requires_grad=depth >= 4)  # [T, l], 1 - C at the start
        self.any_zero_missing = bool((missing == MISSING_ZERO).any())
        self.any_missing = bool((missing != MISSING_NONE).any())
        self.any_category = category_node.numel() > 0

    def scaled(self, x: Tensor) -> Tensor:
        """The input as z ``[B, width]``, at 0 where a value is missing."""
        z = (torch.where(torch.isnan(x), torch.zeros_like(x), x) - self.center) / self.scale
        return torch.minimum(torch.maximum(z, self.bound[0]), self.bound[1])

    def first_layer(self) -> Tensor:
        """Weights ``[T, width, n]``, or int64 ``[T, n]`` where each node reads one feature."""
        return self.node_weight if self.depth >= 3 else self.feature

    def path_mask(self) -> Tensor:
        """1 between a real node and a real leaf, ``[T, n, l]``."""
        return self.node_mask.unsqueeze(2) * self.leaf_mask.unsqueeze(1)

    @torch.jit.unused
    def operands(self, x: Tensor, leaf_value: Tensor) -> SoftOperands:
        """What the operation on the whole ensemble reads."""
        settles = self.any_zero_missing or self.any_missing or self.any_category
        return SoftOperands(
            z=self.scaled(x),
            weight=self.node_weight if self.depth >= 3 else x.new_zeros(0),
            threshold=self.threshold,
            slope=self.slope,
            path=self.path * self.path_mask(),
            path_bias=self.path_bias,
            leaf_slope=self.leaf_slope,
            leaf_value=leaf_value,
            x=x.detach() if settles else x.new_zeros(0),
            feature=self.feature,
            missing=self.missing,
            direction=self.direction,
            category_node=self.category_node,
            category_table=self.category_table,
        )

    def settled_nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Which nodes do not compare (bool ``[T, B, n]``) and their activations; empty where every node compares."""
        empty = torch.zeros(0, device=x.device)
        unknown = torch.isnan(x)
        # A program that is exported has to do without a look at the rows.
        some = bool(unknown.any()) if torch.jit.is_scripting() else True  # type: ignore[attr-defined]
        relevant = self.any_zero_missing or (self.any_missing and some)
        if not (relevant or self.any_category):
            return empty.to(torch.bool), empty
        trees, nodes = self.feature.shape[0], self.feature.shape[1]
        flat = self.feature.flatten()
        kind = self.missing.flatten()
        gone = unknown[:, flat]
        given = gone & (kind == self.NAN)
        if self.any_zero_missing:
            near_zero = (x.abs() <= 1e-35)[:, flat] | gone
            given = given | (near_zero & (kind == self.ZERO))
        value = self.direction.flatten().expand(x.shape[0], trees * nodes)
        if self.any_category:
            at = self.category_node
            code = category_codes(x[:, flat[at]], self.category_table.shape[1] - 2)
            entry = self.category_table.gather(1, code.t()).t() * self.slope.flatten()[at]
            value = value.clone().index_copy(1, at, torch.tanh(entry))
            given = given.index_fill(1, at, True)
        shape = (x.shape[0], trees, nodes)
        return given.view(shape).transpose(0, 1), value.reshape(shape).transpose(0, 1)


class SoftTrees(SoftSplits):
    r"""Trees as tanh networks with two hidden layers, those of ``SoftSplits``, and a value at each leaf.

    score k: ``base_k + sum over the trees of k and their leaves of value / 2 (1 + h)``; what all leaves of a tree have
    in common is in the base. What pads smaller trees adds 0 whatever training does.

    From L1 on ``value`` and ``base`` are trainable. Trees of like shape are computed together, see ``like_shape``.

    Shape
        float32 ``[B, width]`` -> float32 ``[B, K]``, raw scores in the unit of the source (log-odds for a classifier).

    Source
        WindTunnel (VLDB 2022): tree formula.
    """

    KINDS = {**SoftSplits.KINDS, "leaf_value": "leaf", "base": "leaf"}
    output: Tensor

    def __init__(
        self,
        *,
        center: Tensor,
        scale: Tensor,
        bound: Tensor,
        feature: Tensor,
        threshold: Tensor,
        slope: Tensor,
        missing: Tensor,
        direction: Tensor,
        node_weight: Tensor,
        path: Tensor,
        path_bias: Tensor,
        leaf_slope: Tensor,
        node_mask: Tensor,
        leaf_mask: Tensor,
        category_node: Tensor,
        category_table: Tensor,
        leaf_value: Tensor,
        base: Tensor,
        output: Tensor,
        level: str = "L4",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            center=center, scale=scale, bound=bound, feature=feature, threshold=threshold, slope=slope,
            missing=missing, direction=direction, node_weight=node_weight, path=path, path_bias=path_bias,
            leaf_slope=leaf_slope, node_mask=node_mask, leaf_mask=leaf_mask, category_node=category_node,
            category_table=category_table, level=level, dropout=dropout,
        )  # fmt: skip
        self.register_buffer("output", output)  # int64 [T], not read where leaf_value is [T, l, K]
        self.leaf_value = nn.Parameter(leaf_value, requires_grad=self.depth >= 1)  # [T, l] or [T, l, K]
        self.base = nn.Parameter(base, requires_grad=self.depth >= 1)  # [K]
        self.groups = alike(tuple(leaf_mask.sum(dim=1).int().tolist()))

    def forward(self, x: Tensor) -> Tensor:
        """Raw scores ``[B, K]``."""
        scores = self.plain_scores(x) if torch.jit.is_scripting() else self._scores(x)  # type: ignore[attr-defined]
        return scores + self.base

    def plain_scores(self, x: Tensor) -> Tensor:
        """Scores without the base in straight torch, which scripts and exports; no dropout."""
        given, value = self.settled_nodes(x)
        return soft_trees(self.scaled(x), self.first_layer(), self.threshold, self.slope, self.path * self.path_mask(),
                          self.path_bias, self.leaf_slope, self.masked_values(), given, value)  # fmt: skip

    @torch.jit.unused
    def _scores(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return self.plain_scores(x)
        of, rate = self.operands(x, self.masked_values()), self.dropout if self.training else 0.0
        if len(self.groups) == 1:
            return soft_ensemble(of, rate)
        scores = soft_ensemble(of_group(of, self.groups[0]), rate)
        for group in self.groups[1:]:
            scores = scores + soft_ensemble(of_group(of, group), rate)
        return scores

    def masked_values(self) -> Tensor:
        """Half of each real leaf's value in the column of its tree's score, ``[T, l, K]``."""
        if self.leaf_value.dim() == 3:
            return self.leaf_value * (self.leaf_mask * 0.5).unsqueeze(2)
        column = torch.nn.functional.one_hot(self.output, self.base.shape[0]).to(self.leaf_value.dtype)
        return (self.leaf_value * self.leaf_mask * 0.5).unsqueeze(2) * column.unsqueeze(1)
