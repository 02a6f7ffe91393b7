"""Where the gradients of soft trees are added up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from windtunnel.modules.trees.soft.kernel.operands import Dropout, SoftOperands


@dataclass(frozen=True)
class GradientSums:
    """Gradients added up over slices of rows, with respect to the folded weights; None where none is wanted."""

    z: Tensor | None  # [width, B]
    first: Tensor | None  # [T, n + 1, width]
    shift: Tensor | None  # [T, n + 1]
    second: Tensor | None  # [T, n + 1, l]
    leaf_value: Tensor | None  # [T, l, K]
    category_table: Tensor | None  # [c, V + 2]

    @classmethod
    def zeros(cls, operands: SoftOperands, wants: set[str]) -> GradientSums:
        """Nothing added yet."""
        trees, nodes, leaves = operands.path.shape

        def zeros(*names: str, shape: tuple[int, ...]) -> Tensor | None:
            return operands.z.new_zeros(shape) if wants & set(names) else None

        return cls(
            z=zeros("z", shape=tuple(reversed(operands.z.shape))),
            first=zeros("weight", shape=(trees, nodes + 1, operands.z.shape[1])),
            shift=zeros("threshold", shape=(trees, nodes + 1)),
            second=zeros("path", "path_bias", shape=(trees, nodes + 1, leaves)),
            leaf_value=zeros("leaf_value", shape=operands.leaf_value.shape),
            category_table=zeros("category_table", shape=operands.category_table.shape),
        )

    def on(self, part: slice, z: Tensor | None) -> GradientSums:
        """Views for the trees ``part``, units and leaves in one dimension; ``z`` in the place of its own."""

        def flat(sums: Tensor | None) -> Tensor | None:
            return None if sums is None else sums[part].flatten(0, 1)

        second = None if self.second is None else self.second[part]
        return GradientSums(z, flat(self.first), flat(self.shift), second, flat(self.leaf_value), self.category_table)

    def gradients(self, operands: SoftOperands, dropout: Dropout) -> dict[str, Tensor]:
        """The gradients with respect to the operands, with the folding of ``TreeGroup`` undone."""
        gradients = {}
        if self.z is not None:
            gradients["z"] = self.z.t().contiguous()
        if self.first is not None:
            weight = torch.empty_like(operands.weight, memory_format=torch.contiguous_format)
            gradients["weight"] = torch.mul(
                self.first[:, :-1].transpose(1, 2), (operands.slope * 2).unsqueeze(1), out=weight
            )
        if self.shift is not None:
            gradients["threshold"] = self.shift[:, :-1] * operands.slope * -2
        if self.second is not None:
            bias = self.second[:, -1]
            path = self.second[:, :-1] if dropout.rate else self.second[:, :-1] * 2 - bias.unsqueeze(1)
            gradients["path"] = path * (operands.leaf_slope * 2).unsqueeze(1)
            gradients["path_bias"] = bias * operands.leaf_slope * 2
        if self.leaf_value is not None:
            gradients["leaf_value"] = self.leaf_value
        if self.category_table is not None:
            gradients["category_table"] = self.category_table
        return gradients
