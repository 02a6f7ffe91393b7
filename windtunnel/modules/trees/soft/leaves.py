"""Soft leaves: how far a row reaches each leaf of a tree ensemble, which gradients flow through."""

import torch
from torch import Tensor

from windtunnel.modules.trees.soft.kernel.operation import soft_ensemble
from windtunnel.modules.trees.soft.kernel.recompute import soft_leaves
from windtunnel.modules.trees.soft.trees import SoftSplits


class SoftLeaves(SoftSplits, kw_only=True):
    """One column per leaf of every tree: near 1 where the row falls into the leaf, near 0 elsewhere.

    y = (1 + h) / 2, with h the leaf of ``SoftSplits``

    There is no leaf value, so up to L1 nothing is trainable; from L2 on it is what ``SoftSplits`` says.

    Shape
    -----
    float32 ``[B, width]`` -> float32 ``[B, L]``, L the leaves of all trees, tree after tree.

    Parameters
    ----------
    column : Tensor
        int64 ``[L]``, where the real leaves stand among the T * l of padded trees.
    **tensors and facts
        As ``SoftSplits``.

    Source
    ------
    WindTunnel (VLDB 2022), section 5.2.2.
    """

    column: Tensor

    def __post_init__(self) -> None:
        super().__post_init__()
        self.padded = self.column.shape[0] < self.leaf_mask.numel()

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, L]."""
        leaves = self.plain_leaves(x) if torch.jit.is_scripting() else self._leaves(x)  # type: ignore[attr-defined]
        return leaves.index_select(1, self.column) if self.padded else leaves

    def plain_leaves(self, x: Tensor) -> Tensor:
        """Leaves of the padded trees in straight torch, which scripts and exports; no dropout."""
        given, value = self.overridden_nodes(x)
        return soft_leaves(self.scaled(x), self.first_layer(), self.threshold, self.slope,
                           self.path * self.path_mask(), self.path_bias, self.leaf_slope, given, value)  # fmt: skip

    @torch.jit.unused
    def _leaves(self, x: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            return self.plain_leaves(x)
        # What is dropped of a leaf is all of it, so that one without a row and one that is dropped are both 0.
        return soft_ensemble(self.operands(x, x.new_zeros(0)), self.dropout if self.training else 0.0, whole=True)
