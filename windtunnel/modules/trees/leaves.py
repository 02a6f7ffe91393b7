"""The leaf that a row falls into, in every tree: by its number, or one-hot."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.errors import BadFile
from windtunnel.modules.base import bounded, derived
from windtunnel.modules.outputs.finite import Finite
from windtunnel.modules.trees.ensemble import TreeEnsemble
from windtunnel.modules.trees.hard import TreeWalk


def with_numbers(ensemble: TreeEnsemble, numbers: NDArray[np.int64]) -> TreeEnsemble:
    """The same trees, each with its own score: the number of the exit leaf, from ``numbers`` ``[L]``."""
    trees = ensemble.trees
    return replace(
        ensemble,
        leaf_value=np.asarray(numbers, np.float64),
        output=np.arange(trees),
        base=np.zeros(trees),
        divisor=1.0,
        leaf_cover=None,
    )


def check_numbers(trees: TreeWalk, count: int) -> None:
    """Raise ``BadFile`` unless each tree has a score of its own, the number of a leaf below ``count``."""
    alone = not trees.vector and trees.outputs == len(trees.root) and trees.divisor == 1 and not trees.base.any()
    numbers = trees.leaf_value
    if not alone or not ((numbers >= 0) & (numbers < count)).all():
        raise BadFile(f"leaves whose numbers are not 0 to {count - 1}")


class TreeLeaves(TreeWalk, kw_only=True):
    """The number of the leaf that a row falls into, as ``apply`` of the source gives it.

    The other tensors are those of an ensemble that ``with_numbers`` made.
    """

    shape: list[int]  # of a row's output: ``[]`` for a single tree, ``[T]``, or ``[T, 1]``, for several
    readings: list[int] = derived()

    @classmethod
    def numbered(cls, ensemble: TreeEnsemble, numbers: NDArray[np.int64], shape: list[int]) -> "TreeLeaves":
        """Build the module from an ensemble, the numbers of its leaves and the shape of an output row."""
        walk = TreeWalk.of(with_numbers(ensemble, numbers))
        return cls(**walk.state_dict(), **walk.facts(), shape=shape)

    def forward(self, x: Tensor) -> Tensor:
        """float32 or float64 [B, width] -> the same [B, *shape], whole numbers."""
        return self.scores_in_slices(x).reshape([x.shape[0]] + self.shape)


class LeafOneHot(TreeWalk, kw_only=True):
    """One column per leaf of every tree, 1 where the row falls into the leaf and 0 elsewhere.

    The other tensors are those of an ensemble that ``with_numbers`` made, with the column of each leaf as its number.
    """

    columns: int = bounded(0, 2**22)
    readings: list[int] = derived()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, self.columns)

    @classmethod
    def numbered(cls, ensemble: TreeEnsemble, columns: NDArray[np.int64]) -> "LeafOneHot":
        """Build the module from an ensemble and the column of each of its leaves."""
        walk = TreeWalk.of(with_numbers(ensemble, columns))
        return cls(**walk.state_dict(), **walk.facts(), columns=int(columns.max(initial=-1)) + 1)

    def forward(self, x: Tensor) -> Tensor:
        """float32 or float64 [B, width] -> the same [B, columns]."""
        leaf = self.scores_in_slices(x).to(torch.int64)
        empty = torch.zeros((x.shape[0], self.columns), dtype=x.dtype, device=x.device)
        return empty.scatter(1, leaf, 1.0)

    def required_columns(self, wanted: Sequence[int], width: int) -> list[int] | None:
        """The features that are read, for all of the leaves."""
        return self.features() if len(wanted) == self.columns else None

    def finite_inputs(self, width: int) -> list[Finite | None]:
        """None: the output is finite whatever the input."""
        return [Finite()] * self.columns
