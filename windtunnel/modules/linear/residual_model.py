"""A residual model beside a pipeline: a scalar per value of a column and per combination, and a factorization machine."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class ResidualModel(Module):
    r"""Scores added to those of a pipeline, zero at the start.

    Every column becomes a code: a category its id, a number the bin that it falls into, code 0 where it is missing.
    With c_j the code of column j, s_k per raw score k

        s_k = unit_k (sum_j weight[c_j, k] + sum_{i < j} <factors[c_i, k], factors[c_j, k]>
              + sum_p cross[cell_p(c), k])

    where p runs over combinations of columns, each with cells of its own, and cell is the number of their codes modulo
    that of the cells: one cell per combination of values where there are enough, else a hash.

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
    combinations : Tensor
        int64 ``[P, order]``, the columns of each combination, padded with -1.
    cell_count : Tensor
        int64 ``[P]``, how many rows of ``cross`` each combination has.
    unit : Tensor
        ``[K]``, what a residual model of one is worth in raw scores: 1 for log-odds, the spread of the residuals for values.
    weight : Tensor
        ``[sum(size), K]``.
    factors : Tensor
        ``[sum(size), K, rank]``, rank 0 for no factorization machine.
    cross : Tensor
        ``[sum(cell_count), K]``.

    Source
    ------
    Generalised additive models with pairs of columns (Lou et al., KDD 2013); combinations of categories grown greedily
    (CatBoost, NeurIPS 2018); factorization machines (Rendle, ICDM 2010). Its place beside a translated pipeline is
    ours.
    """

    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("weight", "factors", "cross"), "residual")
    edges: Tensor
    size: Tensor
    combinations: Tensor
    cell_count: Tensor
    unit: Tensor
    start: Tensor
    first_cell: Tensor

    def __init__(
        self,
        edges: Tensor,
        size: Tensor,
        combinations: Tensor,
        cell_count: Tensor,
        unit: Tensor,
        weight: Tensor,
        factors: Tensor,
        cross: Tensor,
    ) -> None:
        super().__init__()
        for name, fact in (
            ("edges", edges),
            ("size", size),
            ("combinations", combinations),
            ("cell_count", cell_count),
            ("unit", unit),
        ):
            self.register_buffer(name, fact)
        self.register_buffer("start", torch.cumsum(size, 0) - size, persistent=False)
        self.register_buffer("first_cell", torch.cumsum(cell_count, 0) - cell_count, persistent=False)
        self.weight = nn.Parameter(weight)
        self.factors = nn.Parameter(factors)
        self.cross = nn.Parameter(cross)

    @classmethod
    def zero(cls, edges: Tensor, size: Sequence[int], unit: Tensor, *, rank: int, generator: torch.Generator) -> Self:
        """A residual model without combinations that adds next to nothing: factors too small to matter break the symmetry."""
        codes, outputs = sum(size), len(unit)
        factors = torch.randn(codes, outputs, rank, generator=generator) * 0.01
        return cls(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            combinations=torch.zeros(0, 0, dtype=torch.int64),
            cell_count=torch.zeros(0, dtype=torch.int64),
            unit=unit,
            weight=torch.zeros(codes, outputs),
            factors=factors.to(unit.dtype),
            cross=torch.zeros(0, outputs),
        )

    def combine(self, combinations: Sequence[tuple[int, ...]], tables: Sequence[Tensor]) -> None:
        """Take combinations of columns with what each cell of theirs adds, ``[cells, K]``; they do not train along."""
        order = max(len(columns) for columns in combinations)
        self.combinations = torch.tensor([[*columns, *[-1] * (order - len(columns))] for columns in combinations])
        self.cell_count = torch.tensor([len(table) for table in tables])
        self.first_cell = torch.cumsum(self.cell_count, 0) - self.cell_count
        self.cross = nn.Parameter(torch.cat(list(tables)), requires_grad=False)

    def codes(self, x: Tensor) -> Tensor:
        """The code of each column, int64 ``[B, numbers + categories]``."""
        count = self.edges.shape[0]
        numbers, ids = x[:, :count], x[:, count:].long()
        bins = (numbers.unsqueeze(2) > self.edges).sum(dim=2) + 1
        codes = torch.cat([torch.where(torch.isnan(numbers), torch.zeros_like(bins), bins), ids], dim=1)
        return torch.minimum(codes, self.size - 1)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the residual model."""
        codes = self.codes(x)
        return self.by_columns(codes) + self.by_combinations(codes)

    def by_columns(self, codes: Tensor) -> Tensor:
        """What single columns and the factorization machine add, ``[B, K]``."""
        at = codes + self.start
        scores = self.weight[at].sum(dim=1)
        if self.factors.shape[2] > 0:
            factors = self.factors[at]  # [B, columns, K, rank]
            scores = scores + 0.5 * (factors.sum(dim=1).square() - factors.square().sum(dim=1)).sum(dim=2)
        return scores * self.unit

    def by_combinations(self, codes: Tensor) -> Tensor:
        """What combinations of columns add, ``[B, K]``."""
        at = cells(codes, self.size, self.combinations, self.cell_count) + self.first_cell
        return self.cross[at].sum(dim=1) * self.unit


def cells(codes: Tensor, size: Tensor, combinations: Tensor, count: Tensor) -> Tensor:
    """The cell of each combination of columns ``[P, order]`` among its ``count`` ``[P]``, int64 ``[B, P]``.

    It is the number that has the codes as its digits, in the bases ``size`` ``[columns]``, modulo the count.
    """
    number = torch.zeros(codes.shape[0], combinations.shape[0], dtype=torch.int64, device=codes.device)
    for place in range(combinations.shape[1]):
        column = combinations[:, place]
        padding = column < 0
        column = column.clamp_min(0)
        digit = codes[:, column].masked_fill(padding, 0)
        number = (number * size[column].masked_fill(padding, 1) + digit) % count
    return number


class Added(Module):
    """The scores of a pipeline and those of a residual model, added.

    Shape
    -----
    ``[B, 2 K]`` -> ``[B, K]``
    """

    def forward(self, x: Tensor) -> Tensor:
        """First half plus second half."""
        half = x.shape[1] // 2
        return x[:, :half] + x[:, half:]
