"""Trees whose leaves hold a linear model each."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.distances import blocks
from windtunnel.modules.trees.hard import TreeWalk


class LinearLeafTrees(TreeWalk):
    """Sum over trees of the linear model of the leaf that a row falls into; the walk itself does not train.

    score[k] = sum over trees t with tree_score[t] = k of const[l] + coefficient[l] . x, with l the exit leaf of t;
    where a feature that leaf l uses is missing, plain[l] instead.

    Shape
    -----
    float32 or float64 ``[B, width]`` -> the same ``[B, scores]``.

    Parameters
    ----------
    **tensors and facts
        As ``TreeWalk``, of an ensemble that ``with_numbers`` made, each leaf numbered by its place.
    scores : int
        K.
    tree_score : Tensor
        int64 ``[T]``.
    const, plain : Tensor
        ``[L]``; learned.
    coefficient : Tensor
        ``[L, width]``; learned.
    uses : Tensor
        bool ``[L, width]``.

    Source
    ------
    LightGBM with ``linear_tree``: ``leaf_const``, ``leaf_coeff``, ``leaf_features``, ``leaf_value``.
    """

    FACTS: ClassVar[tuple[str, ...]] = (*TreeWalk.FACTS, "scores")
    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("const", "plain", "coefficient"), "leaf")
    scores: int
    readings: list[int]
    uses: Tensor
    tree_score: Tensor

    def __init__(
        self,
        width: int,
        node_start: Tensor,
        leaf_start: Tensor,
        feature: Tensor,
        threshold: Tensor,
        default_left: Tensor,
        missing: Tensor,
        left: Tensor,
        right: Tensor,
        leaf_value: Tensor,
        output: Tensor,
        base: Tensor,
        category_node: Tensor,
        category_start: Tensor,
        category: Tensor,
        feature_range: Tensor,
        tree_score: Tensor,
        const: Tensor,
        plain: Tensor,
        coefficient: Tensor,
        uses: Tensor,
        divisor: float = 1.0,
        reads: str = "float64",
        scores: int = 1,
    ) -> None:
        super().__init__(width, node_start, leaf_start, feature, threshold, default_left, missing, left, right,
                         leaf_value, output, base, category_node, category_start, category, feature_range,
                         divisor, reads)  # fmt: skip
        self.scores = scores
        self.register_buffer("tree_score", tree_score.detach().clone())
        self.register_buffer("uses", uses.detach().clone())
        self.const = nn.Parameter(const.detach().clone())
        self.plain = nn.Parameter(plain.detach().clone())
        self.coefficient = nn.Parameter(coefficient.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, scores]."""
        with torch.no_grad():
            leaf = self.over_slices(x).to(torch.int64)  # [B, T]
        values = self.values(x, leaf)
        empty = torch.zeros((x.shape[0], self.scores), dtype=values.dtype, device=x.device)
        return empty.index_add(1, self.tree_score, values).to(x.dtype)

    def values(self, x: Tensor, leaf: Tensor) -> Tensor:
        """What each tree adds, ``[B, T]``; rows in slices, as every tree reads the whole row."""
        cost = leaf.shape[1] * self.width
        parts: list[Tensor] = []
        for some, at in zip(blocks(x, cost), blocks(leaf, cost)):  # noqa: B905  TorchScript's zip takes no strict
            parts.append(self.block(some, at))
        return torch.cat(parts)

    def block(self, x: Tensor, leaf: Tensor) -> Tensor:
        """``[rows, width]`` and ``[rows, T]`` -> ``[rows, T]``."""
        gone = torch.isnan(x)
        used = self.uses[leaf]
        # A feature that the leaf does not use may be infinite, and 0 times infinity is no number.
        products = self.coefficient[leaf] * torch.where(gone, torch.zeros_like(x), x).unsqueeze(1)
        linear = torch.where(used, products, torch.zeros_like(products)).sum(dim=2) + self.const[leaf]
        missing = (used & gone.unsqueeze(1)).any(dim=2)
        return torch.where(missing, self.plain[leaf], linear)
