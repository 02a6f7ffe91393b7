"""Residual model: a weight per value of a column and of an interaction, and a factorization machine."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module


class ResidualModel(Module):
    r"""Scores to add to those of a pipeline.

    Every column becomes a code: a category its id, a number its bin; code 0 is missing. With c_j the code of column j,
    the score of output k is

        s_k = unit_k (sum_j weight[c_j, k] + sum_{i < j} <factors[c_i, k], factors[c_j, k]>
              + sum_p cross[cell_p(c), k])

    where p runs over the interactions. The cell of an interaction is the number that has the codes of its columns as
    digits, modulo its count of cells: a cell per combination of values where the count suffices, else a hash.

    Parameters
    ----------
    edges : Tensor
        ``[numbers, E]``, ascending edges between the bins of each number, padded with infinity. A number that equals an
        edge is in the bin below it.
    size : Tensor
        int64 ``[numbers + categories]``, number of codes of each column.
    interactions : Tensor
        int64 ``[P, order]``, columns of each interaction, padded with -1.
    cell_count : Tensor
        int64 ``[P]``, rows of ``cross`` for each interaction.
    unit : Tensor
        ``[K]``, raw score per unit of the model: 1 for log-odds, the standard deviation of the residuals for values.
    weight : Tensor
        ``[sum(size), K]``.
    factors : Tensor
        ``[sum(size), K, rank]``; rank 0 leaves the factorization machine out.
    cross : Tensor
        ``[sum(cell_count), K]``.

    Source
    ------
    Generalised additive models with pairs of columns (Lou et al., KDD 2013); interactions of categories grown greedily
    (CatBoost, NeurIPS 2018); factorization machines (Rendle, ICDM 2010). Adding them to a translated pipeline is ours.
    """

    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("weight", "factors", "cross"), "residual")
    edges: Tensor
    size: Tensor
    interactions: Tensor
    cell_count: Tensor
    unit: Tensor
    first_code: Tensor
    first_cell: Tensor

    def __init__(
        self,
        edges: Tensor,
        size: Tensor,
        interactions: Tensor,
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
            ("interactions", interactions),
            ("cell_count", cell_count),
            ("unit", unit),
        ):
            self.register_buffer(name, fact)
        self.register_buffer("first_code", torch.cumsum(size, 0) - size, persistent=False)
        self.register_buffer("first_cell", torch.cumsum(cell_count, 0) - cell_count, persistent=False)
        self.weight = nn.Parameter(weight)
        self.factors = nn.Parameter(factors)
        self.cross = nn.Parameter(cross)

    @classmethod
    def zero(cls, edges: Tensor, size: Sequence[int], unit: Tensor, *, rank: int, generator: torch.Generator) -> Self:
        """Build a model of score 0 without interactions; factors of 1e-2 break the symmetry."""
        codes, outputs = sum(size), len(unit)
        factors = torch.randn(codes, outputs, rank, generator=generator) * 0.01
        return cls(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            interactions=torch.zeros(0, 0, dtype=torch.int64),
            cell_count=torch.zeros(0, dtype=torch.int64),
            unit=unit,
            weight=torch.zeros(codes, outputs),
            factors=factors.to(unit.dtype),
            cross=torch.zeros(0, outputs),
        )

    def set_interactions(self, interactions: Sequence[tuple[int, ...]], tables: Sequence[Tensor]) -> None:
        """Set the columns of each interaction, and its table ``[cells, K]``, which is not trained."""
        order = max(len(columns) for columns in interactions)
        self.interactions = torch.tensor([[*columns, *[-1] * (order - len(columns))] for columns in interactions])
        self.cell_count = torch.tensor([len(table) for table in tables])
        self.first_cell = torch.cumsum(self.cell_count, 0) - self.cell_count
        self.cross = nn.Parameter(torch.cat(list(tables)), requires_grad=False)

    def codes(self, x: Tensor) -> Tensor:
        """The code of each column, int64 ``[B, numbers + categories]``."""
        return column_codes(x, self.edges, self.size)

    def forward(self, x: Tensor) -> Tensor:
        """[B, numbers + categories] -> [B, K], in the unit of the raw scores."""
        codes = self.codes(x)
        return self.column_scores(codes) + self.interaction_scores(codes)

    def column_scores(self, codes: Tensor) -> Tensor:
        """Scores of single columns and of the factorization machine, ``[B, K]``."""
        at = codes + self.first_code
        scores = self.weight[at].sum(dim=1)
        if self.factors.shape[2] > 0:
            factors = self.factors[at]  # [B, columns, K, rank]
            scores = scores + 0.5 * (factors.sum(dim=1).square() - factors.square().sum(dim=1)).sum(dim=2)
        return scores * self.unit

    def interaction_scores(self, codes: Tensor) -> Tensor:
        """Scores of the interactions, ``[B, K]``."""
        at = interaction_cells(codes, self.size, self.interactions, self.cell_count) + self.first_cell
        return self.cross[at].sum(dim=1) * self.unit


def column_codes(x: Tensor, edges: Tensor, size: Tensor) -> Tensor:
    """The code of each column ``[B, numbers + categories]``, int64: the bin of a number, the id of a category.

    ``edges`` ``[numbers, E]`` and ``size`` ``[numbers + categories]`` are those of ``ResidualModel``.
    """
    count = edges.shape[0]
    numbers, ids = x[:, :count], x[:, count:].long()
    bins = (numbers.unsqueeze(2) > edges).sum(dim=2) + 1
    codes = torch.cat([torch.where(torch.isnan(numbers), torch.zeros_like(bins), bins), ids], dim=1)
    return torch.minimum(codes, size - 1)


def interaction_cells(codes: Tensor, size: Tensor, interactions: Tensor, count: Tensor) -> Tensor:
    """Cell of each interaction, int64 ``[B, P]``: its codes as digits of one number, modulo ``count`` ``[P]``.

    ``interactions`` ``[P, order]`` are the columns; ``size`` ``[columns]`` are the bases of the digits.
    """
    number = torch.zeros(codes.shape[0], interactions.shape[0], dtype=torch.int64, device=codes.device)
    for place in range(interactions.shape[1]):
        column = interactions[:, place]
        padding = column < 0
        column = column.clamp_min(0)
        digit = codes[:, column].masked_fill(padding, 0)
        number = (number * size[column].masked_fill(padding, 1) + digit) % count
    return number


class ResidualSum(Module):
    """Sum of the scores of a pipeline, times a weight, and of a residual model.

    y = weight x_pipeline + x_residual
    """

    weight: float = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """[B, 2 K] -> [B, K]."""
        half = x.shape[1] // 2
        return self.weight * x[:, :half] + x[:, half:]
