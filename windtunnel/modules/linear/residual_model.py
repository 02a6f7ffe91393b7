"""Residual model: a weight per value of a column and of an interaction, and a factorization machine."""

# No postponed annotations here: torch.jit.script reads the class-level ones and takes no strings.

from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from windtunnel.modules.base import Module, derived, learned

EDGE_SHIFT = 2.0**-20
"""More than float32 rounds, in units of the number."""


def edge_shift(edges: Tensor, largest: Tensor) -> Tensor:
    """How far edges of bins that are values of training rows are moved up; ``largest`` is the largest size of one."""
    return EDGE_SHIFT * (edges.abs() + EDGE_SHIFT * largest)


class ResidualModel(Module):
    r"""Scores to add to those of a pipeline.

    Every column becomes a code: a category its id, a number its bin, 0 where it is missing. With c_j the code of column
    j, the score of output k is

        s_k = unit_k (sum_j weight[c_j, k] + sum_{i < j} <factors[c_i, k], factors[c_j, k]>
              + sum_p cross[cell_p(c), k])

    where p runs over the interactions. The cell of an interaction is the number that has the codes of its columns as
    digits, modulo its count of cells: a cell per combination of values where the count suffices, else a hash. ``cross``
    has a row for each cell in ``keys``, and behind these a row per interaction for all its other cells.

    Source
    ------
    Generalised additive models with pairs of columns (Lou et al., KDD 2013); interactions of categories grown greedily
    (CatBoost, NeurIPS 2018); factorization machines (Rendle, ICDM 2010). Adding them to a translated pipeline is ours.
    """

    KINDS: ClassVar[dict[str, str]] = dict.fromkeys(("weight", "factors", "cross"), "residual")
    COPIES: ClassVar[bool] = False
    edges: Tensor
    """[numbers, E], ascending edges between the bins of each number, padded with infinity. A number that equals an edge
    is in the bin below it."""
    size: Tensor  # int64 [numbers + categories], number of codes of each column
    interactions: Tensor  # int64 [P, order], columns of each interaction, padded with -1
    cell_count: Tensor  # int64 [P], cells of each interaction, below 2^31 in total
    keys: Tensor  # int32 [R], ascending: cells with a row in ``cross``, each plus the cells of the interactions before
    unit: Tensor  # [K], raw score per unit: 1 for log-odds, the standard deviation of the residuals for values
    weight: Tensor = learned()  # [sum(size), K]
    factors: Tensor = learned()  # [sum(size), K, rank]; rank 0 leaves the factorization machine out
    cross: Tensor = learned()  # [R + P, K]
    first_code: Tensor = derived()

    def __post_init__(self) -> None:
        self.register_buffer("first_code", torch.cumsum(self.size, 0) - self.size, persistent=False)

    @classmethod
    def zero(cls, edges: Tensor, size: Sequence[int], unit: Tensor, *, rank: int, generator: torch.Generator) -> Self:
        """Build a model without interactions: weights of 0, and factors of 1e-2, which break the symmetry."""
        codes, outputs = sum(size), len(unit)
        factors = torch.randn(codes, outputs, rank, generator=generator) * 0.01
        return cls(
            edges=edges,
            size=torch.tensor(size, dtype=torch.int64),
            interactions=torch.zeros(0, 0, dtype=torch.int64),
            cell_count=torch.zeros(0, dtype=torch.int64),
            keys=torch.zeros(0, dtype=torch.int32),
            unit=unit,
            weight=torch.zeros(codes, outputs),
            factors=factors.to(unit.dtype),
            cross=torch.zeros(0, outputs),
        )

    def set_interactions(
        self,
        interactions: Sequence[tuple[int, ...]],
        cell_count: Sequence[int],
        cells: Sequence[Tensor],
        tables: Sequence[Tensor],
    ) -> None:
        """Set the interactions, whose tables are not trained.

        ``interactions`` are the columns of each, ``cells`` its cells that have a value, ascending (all others have 0),
        and ``tables`` their values, ``[cells, K]``.
        """
        self.interactions = padded_columns(interactions)
        self.cell_count = torch.tensor(cell_count)
        self.keys = cell_keys(self.cell_count, cells)
        cross = torch.cat([*tables, self.unit.new_zeros(len(tables), len(self.unit))])
        # Means of noisy rows need no more than float32, in which files store what it holds.
        self.cross = nn.Parameter(cross.float().to(cross.dtype), requires_grad=False)

    def interactions_alone(self) -> Self:
        """The same interactions, with weights of 0 and without the factorization machine."""
        alone = deepcopy(self)
        alone.weight = nn.Parameter(torch.zeros_like(self.weight))
        alone.factors = nn.Parameter(self.factors.detach()[:, :, :0].clone())
        return alone

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
        return self.cross[self.interaction_rows(codes)].sum(dim=1) * self.unit

    def interaction_rows(self, codes: Tensor) -> Tensor:
        """The row of ``cross`` for each interaction, int64 ``[B, P]``."""
        cells = interaction_cells(codes, self.size, self.interactions, self.cell_count)
        return cell_rows(cells, self.cell_count, self.keys)


def column_codes(x: Tensor, edges: Tensor, size: Tensor) -> Tensor:
    """The code of each column ``[B, numbers + categories]``, int64: the bin of a number, the id of a category.

    ``edges`` ``[numbers, E]`` and ``size`` ``[numbers + categories]`` are those of ``ResidualModel``.
    """
    count = edges.shape[0]
    numbers, ids = x[:, :count], x[:, count:].long()
    bins = torch.searchsorted(edges, numbers.t().contiguous()).t() + 1
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


def cell_rows(cells: Tensor, count: Tensor, keys: Tensor) -> Tensor:
    """Row of each cell ``[B, P]``, int64: the place of its key, or R + p where interaction p has no such key.

    ``count`` ``[P]`` are the numbers of cells, ``keys`` ``[R]`` those of ``cell_keys``.
    """
    wanted = (cells + (torch.cumsum(count, 0) - count)).to(torch.int32)
    place = torch.searchsorted(keys, wanted.contiguous()).clamp_max(max(keys.shape[0] - 1, 0))
    others = torch.arange(count.shape[0], device=cells.device) + keys.shape[0]
    return torch.where(keys[place] == wanted, place, others)


def cell_keys(count: Tensor, cells: Sequence[Tensor]) -> Tensor:
    """Keys, int32 ``[R]``, of the ascending cells of each interaction: a cell plus the cells of those before."""
    first = torch.cumsum(count, 0) - count
    return torch.cat([each + offset for each, offset in zip(cells, first, strict=True)]).to(torch.int32)


def padded_columns(interactions: Sequence[tuple[int, ...]]) -> Tensor:
    """The columns of each interaction, int64 ``[P, order]``, padded with -1."""
    order = max(len(columns) for columns in interactions)
    return torch.tensor([[*columns, *[-1] * (order - len(columns))] for columns in interactions])


class ResidualSum(Module):
    """Sum of the scores of a pipeline, times a weight, and of a residual model.

    y = weight x_pipeline + x_residual
    """

    weight: float = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """[B, 2 K] -> [B, K]."""
        half = x.shape[1] // 2
        return self.weight * x[:, :half] + x[:, half:]
