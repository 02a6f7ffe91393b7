"""A branch beside a pipeline: a scalar per value of a column and per pair of values, and a factorization machine."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class Branch(Module):
    r"""Scores added to those of a pipeline, zero at the start.

    Every column becomes a code: a category its id, a number the bin that it falls into, code 0 where it is missing.
    With c_j the code of column j, s_k per raw score k

        s_k = unit_k (sum_j weight[c_j, k] + sum_{(i, j) in pairs} cross[cell(c_i, c_j), k]
              + sum_{i < j} <factors[c_i, k], factors[c_j, k]>)

    where cell is a hash into the rows of ``cross``, whose collisions are shared.

    Shape
    -----
    ``[B, numbers + categories]`` -> ``[B, K]``, in the unit of the raw scores.

    Parameters
    ----------
    edges : Tensor
        ``[numbers, E]``, the edges between the bins of each number, ascending, padded with infinity; a number that
        equals an edge is in the bin below it.
    size : Tensor
        int64 ``[numbers + categories]``, the number of codes of each column.
    pairs : Tensor
        int64 ``[P, 2]``, the columns of each pair.
    unit : Tensor
        ``[K]``, what a branch of one is worth in raw scores: 1 for log-odds, the spread of the residuals for values.
    weight : Tensor
        ``[sum(size), K]``.
    factors : Tensor
        ``[sum(size), K, rank]``, rank 0 for no factorization machine.
    cross : Tensor
        ``[cells, K]``.

    Source
    ------
    Generalised additive models with pairs of columns (Lou et al., KDD 2013); factorization machines (Rendle, ICDM
    2010). Its place beside a translated pipeline is ours.
    """

    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("weight", "factors", "cross"), "branch")
    edges: Tensor
    size: Tensor
    pairs: Tensor
    unit: Tensor
    start: Tensor

    def __init__(
        self,
        edges: Tensor,
        size: Tensor,
        pairs: Tensor,
        unit: Tensor,
        weight: Tensor,
        factors: Tensor,
        cross: Tensor,
    ) -> None:
        super().__init__()
        self.register_buffer("edges", edges)
        self.register_buffer("size", size)
        self.register_buffer("pairs", pairs)
        self.register_buffer("unit", unit)
        self.register_buffer("start", torch.cumsum(size, 0) - size, persistent=False)
        self.weight = nn.Parameter(weight)
        self.factors = nn.Parameter(factors)
        self.cross = nn.Parameter(cross)

    @classmethod
    def zero(
        cls,
        edges: Tensor,
        size: Sequence[int],
        pairs: Sequence[tuple[int, int]],
        unit: Tensor,
        *,
        rank: int,
        cells: int,
        generator: torch.Generator,
    ) -> Self:
        """A branch that adds next to nothing: zeros, and factors too small to matter that break the symmetry."""
        codes, outputs = sum(size), len(unit)
        factors = torch.randn(codes, outputs, rank, generator=generator) * 0.01
        return cls(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            pairs=torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
            unit=unit,
            weight=torch.zeros(codes, outputs),
            factors=factors.to(unit.dtype),
            cross=torch.zeros(cells if pairs else 0, outputs),
        )

    def codes(self, x: Tensor) -> Tensor:
        """The code of each column, int64 ``[B, numbers + categories]``."""
        count = self.edges.shape[0]
        numbers, ids = x[:, :count], x[:, count:].long()
        bins = (numbers.unsqueeze(2) > self.edges).sum(dim=2) + 1
        codes = torch.cat([torch.where(torch.isnan(numbers), torch.zeros_like(bins), bins), ids], dim=1)
        return torch.minimum(codes, self.size - 1)

    def cells(self, codes: Tensor) -> Tensor:
        """The row of ``cross`` for each pair, int64 ``[B, P]``."""
        return cells(codes, self.pairs, self.cross.shape[0])

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the branch."""
        codes = self.codes(x)
        at = codes + self.start
        scores = self.weight[at].sum(dim=1)
        if self.pairs.shape[0] > 0:
            scores = scores + self.cross[self.cells(codes)].sum(dim=1)
        if self.factors.shape[2] > 0:
            factors = self.factors[at]  # [B, columns, K, rank]
            scores = scores + 0.5 * (factors.sum(dim=1).square() - factors.square().sum(dim=1)).sum(dim=2)
        return scores * self.unit


def cells(codes: Tensor, pairs: Tensor, count: int) -> Tensor:
    """Spread the pairs of codes over ``count`` cells, int64 ``[B, P]``: another linear hash modulo a prime per pair.

    Codes stay below 2^31, so that no product passes 2^63.
    """
    prime = 2147483647  # 2^31 - 1
    number = torch.arange(pairs.shape[0], device=codes.device)
    first = (number * 40503 + 7919) * 25931 % prime
    second = (number * 30011 + 104729) * 16807 % prime
    spread = codes[:, pairs[:, 0]] * first % prime + codes[:, pairs[:, 1]] * second % prime + number * 7368787 % prime
    return spread % prime % count


class Added(Module):
    """The scores of a pipeline and those of a branch, added.

    Shape
    -----
    ``[B, 2 K]`` -> ``[B, K]``
    """

    def forward(self, x: Tensor) -> Tensor:
        """First half plus second half."""
        half = x.shape[1] // 2
        return x[:, :half] + x[:, half:]
