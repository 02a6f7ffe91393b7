"""Tables with a row per category, and the sum of what several tables give."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from windtunnel.modules.base import Module, bounded
from windtunnel.modules.outputs.finite import Finite


class CategoryTable(Module):
    """The row of a category: what a per-column encoder makes of it.

    y = rows[id]
    """

    KINDS: ClassVar[dict[str, str]] = {"rows": "table"}
    rows: Tensor  # [V, w]; learned if ``trainable``, otherwise a fact
    trainable: bool = True  # false where the rows are codes and not an embedding

    def __post_init__(self) -> None:
        self.sparse = False  # whether gradients hold the rows of the batch only; training sets it
        rows = self.rows
        if self.trainable:
            del self.rows
            self.register_parameter("rows", nn.Parameter(rows))

    def forward(self, ids: Tensor) -> Tensor:
        """int64 [B, 1] in 0..V-1 -> [B, w]."""
        return functional.embedding(ids[:, 0], self.rows, sparse=self.sparse)

    @torch.jit.unused
    def times(self, columns: Sequence[int], center: Tensor, weight: Tensor) -> Tensor:
        """Weighted sums of some columns, each less its center, for every category: float64 ``[V, K]``."""
        return (self.rows.detach().double()[:, list(columns)] - center) @ weight.t()

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """The ids."""
        return [0]

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The wanted columns of the table."""
        return CategoryTable(self.rows[:, list(wanted)], self.trainable)

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Always, but for columns with codes that are not."""
        return [Finite() if finite else None for finite in torch.isfinite(self.rows).all(dim=0).tolist()]


class SumGroups(Module):
    """Add up equally wide groups of columns, such as the rows of several hashed categories.

    y_k = sum over groups g of x_{g w + k}
    """

    groups: int = bounded(1, 2**20)  # number of groups, at least 1

    def forward(self, x: Tensor) -> Tensor:
        """[B, groups * w] -> [B, w]."""
        return x.view(x.shape[0], self.groups, x.shape[1] // self.groups).sum(dim=1)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int]:
        """A column of each group."""
        return [first + column for first in range(0, width, width // self.groups) for column in wanted]

    def select_columns(self, wanted: Sequence[int], needed: Sequence[int], width: int) -> Module:
        """The same groups, of fewer columns."""
        return SumGroups(self.groups)


class Identity(Module):
    """Columns passed through.

    y = x
    """

    PER_COLUMN: ClassVar[tuple[str, ...]] = ()

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width], any dtype."""
        return x

    def has_bits_of_source(self) -> bool:
        """It computes in the order of the source."""
        return True

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """Each column with itself."""
        return [Finite((column,)) for column in range(width)]
