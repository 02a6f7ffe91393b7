"""Trees whose leaves hold a linear model each."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

import torch
from torch import Tensor, nn

from windtunnel.modules.cache_slices import in_cache
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
    used: Tensor
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
        # The columns that each leaf uses; those that use fewer than others have a column of zeros, behind all others.
        most = int(uses.sum(dim=1).max()) if uses.numel() else 0
        order = (~uses).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
        used = torch.where(uses.gather(1, order), order, self.width).t().contiguous()  # [most used, L]
        self.register_buffer("used", used, persistent=False)
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
        coefficient = torch.cat([self.coefficient, torch.zeros_like(self.const).unsqueeze(1)], dim=1)
        coefficient = coefficient.t().gather(0, self.used)
        cost = leaf.shape[1] * max(1, self.used.shape[0])
        parts: list[Tensor] = []
        for some, at in zip(in_cache(x, cost), in_cache(leaf, cost)):  # noqa: B905  TorchScript's zip takes no strict
            parts.append(self.block(some, at, coefficient))
        return torch.cat(parts)

    def block(self, x: Tensor, leaf: Tensor, coefficient: Tensor) -> Tensor:
        """``[rows, width]``, ``[rows, T]`` and ``[most used, L]`` -> ``[rows, T]``."""
        x = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
        gone = torch.isnan(x)
        x = torch.where(gone, torch.zeros_like(x), x)
        at = leaf.flatten()
        linear, missing = self.const[leaf], torch.zeros_like(leaf, dtype=torch.bool)
        for own, factor in zip(self.used, coefficient):  # noqa: B905  TorchScript's zip takes no strict
            column = own.index_select(0, at).view_as(leaf)
            linear = linear + factor.index_select(0, at).view_as(leaf) * x.gather(1, column)
            missing = missing | gone.gather(1, column)
        return torch.where(missing, self.plain[leaf], linear)
