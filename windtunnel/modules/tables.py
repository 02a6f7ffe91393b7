"""Tables with a row per category, and the sum of what several tables give."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from windtunnel.modules.base import Module


class CategoryTable(Module):
    """The row of a category: what a per-column encoder makes of it.

    y = rows[id]

    Shape
    -----
    int64 ``[B, 1]`` in 0..V-1 -> ``[B, w]``.

    Parameters
    ----------
    rows : Tensor
        ``[V, w]``; learned if ``trainable``, otherwise a fact.
    trainable : bool
        False where the rows are codes and not an embedding.

    Examples
    --------
    >>> import torch
    >>> CategoryTable(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))(torch.tensor([[1], [0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    FACTS: ClassVar[tuple[str, ...]] = ("trainable",)
    KINDS: ClassVar[dict[str, str]] = {"rows": "table"}
    rows: Tensor

    def __init__(self, rows: Tensor, trainable: bool = True) -> None:
        super().__init__()
        self.trainable = bool(trainable)
        self.sparse = False  # whether gradients hold the rows of the batch only; training sets it
        if self.trainable:
            self.rows = nn.Parameter(rows.detach().clone())
        else:
            self.register_buffer("rows", rows.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        """[B, 1] -> [B, w]."""
        return functional.embedding(ids[:, 0], self.rows, sparse=self.sparse)


class SumGroups(Module):
    """Add up equally wide groups of columns, such as the rows of several hashed categories.

    y_k = sum over groups g of x_{g w + k}

    Shape
    -----
    ``[B, groups * w]`` -> ``[B, w]``.

    Parameters
    ----------
    groups : int
        Number of groups, at least 1.
    """

    FACTS: ClassVar[tuple[str, ...]] = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        if groups < 1:
            raise ValueError(f"groups must be at least 1, however: groups={groups}")
        self.groups = int(groups)

    def forward(self, x: Tensor) -> Tensor:
        """[B, groups * w] -> [B, w]."""
        return x.view(x.shape[0], self.groups, x.shape[1] // self.groups).sum(dim=1)


class Identity(Module):
    """Columns passed through.

    y = x

    Shape
    -----
    ``[B, width]`` -> ``[B, width]``, any dtype.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, width] -> [B, width]."""
        return x


class OneColumn(Module):
    """The only column, as a sequence.

    y = x_0

    Shape
    -----
    ``[B, 1]`` -> ``[B]``, any dtype.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1] -> [B]."""
        return x[:, 0]
