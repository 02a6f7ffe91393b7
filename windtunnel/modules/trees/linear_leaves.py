"""Trees whose leaves hold a linear model each."""

from typing import ClassVar

import torch
from torch import Tensor

from windtunnel.errors import BadFile
from windtunnel.modules.base import bounded, derived, learned
from windtunnel.modules.slices import cache_slices
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.modules.trees.leaves import check_numbers


class LinearLeafTrees(TreeWalk, kw_only=True):
    """Sum over trees of the linear model of the leaf that a row falls into; the walk itself does not train.

    score[k] = sum over trees t with tree_score[t] = k of const[l] + coefficient[l] . x, with l the exit leaf of t;
    where a feature that leaf l uses is missing, plain[l] instead.

    The other tensors are those of an ensemble that ``with_numbers`` made, each leaf numbered by its place.

    Source
    ------
    LightGBM with ``linear_tree``: ``leaf_const``, ``leaf_coeff``, ``leaf_features``, ``leaf_value``.
    """

    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("const", "plain", "coefficient"), "leaf")
    COPIES: ClassVar[bool] = True
    scores: int = bounded(1, 2**16)  # K
    tree_score: Tensor  # int64 [T]
    const: Tensor = learned()  # [L]
    plain: Tensor = learned()  # [L]
    coefficient: Tensor = learned()  # [L, width]
    uses: Tensor  # bool [L, width]
    readings: list[int] = derived()
    used: Tensor = derived()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, len(self.const))
        uses, shape = self.uses, (len(self.const), self.width)
        if (uses.shape, self.coefficient.shape, self.plain.shape) != (shape, shape, shape[:1]):
            raise BadFile(f"linear leaves of other shapes than {list(shape)}")
        if (
            self.tree_score.shape != self.root.shape
            or not ((self.tree_score >= 0) & (self.tree_score < self.scores)).all()
        ):
            raise BadFile(f"trees of other scores than 0 to {self.scores - 1}")
        # The columns that each leaf uses; those that use fewer than others have a column of zeros, behind all others.
        most = int(uses.sum(dim=1).max()) if uses.numel() else 0
        order = (~uses).to(torch.int8).argsort(dim=1, stable=True)[:, :most]
        used = torch.where(uses.gather(1, order), order, self.width).t().contiguous()  # [most used, L]
        self.register_buffer("used", used, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """float32 or float64 [B, width] -> the same [B, scores]."""
        with torch.no_grad():
            leaf = self.scores_in_slices(x).to(torch.int64)  # [B, T]
        values = self.values(x, leaf)
        empty = torch.zeros((x.shape[0], self.scores), dtype=values.dtype, device=x.device)
        return empty.index_add(1, self.tree_score, values).to(x.dtype)

    def values(self, x: Tensor, leaf: Tensor) -> Tensor:
        """The sum that each tree adds, ``[B, T]``; rows in slices, as every tree reads the whole row."""
        coefficient = torch.cat([self.coefficient, torch.zeros_like(self.const).unsqueeze(1)], dim=1)
        coefficient = coefficient.t().gather(0, self.used)
        cost = leaf.shape[1] * max(1, self.used.shape[0])
        parts: list[Tensor] = []
        for block, at in zip(cache_slices(x, cost), cache_slices(leaf, cost)):  # noqa: B905  TorchScript's zip takes no strict
            parts.append(self.block(block, at, coefficient))
        return torch.cat(parts)

    def block(self, x: Tensor, leaf: Tensor, coefficient: Tensor) -> Tensor:
        """``[rows, width]``, ``[rows, T]`` and ``[most used, L]`` -> ``[rows, T]``."""
        x = torch.cat([x, torch.zeros_like(x[:, :1])], dim=1)
        gone = torch.isnan(x)
        x = torch.where(gone, torch.zeros_like(x), x)
        at = leaf.flatten()
        linear, missing = self.const[leaf], torch.zeros_like(leaf, dtype=torch.bool)
        for used, factor in zip(self.used, coefficient):  # noqa: B905  TorchScript's zip takes no strict
            column = used.index_select(0, at).view_as(leaf)
            linear = linear + factor.index_select(0, at).view_as(leaf) * x.gather(1, column)
            missing = missing | gone.gather(1, column)
        return torch.where(missing, self.plain[leaf], linear)
