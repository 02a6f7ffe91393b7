"""The residual model as a module: its formula, gradients and the cells of interactions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from windtunnel.modules.linear.residual_model import ResidualModel, interaction_cells


def reference_scores(residual: ResidualModel, x: np.ndarray) -> np.ndarray:
    edges, size = residual.edges.numpy(), residual.size.numpy()
    start, count = np.cumsum(size) - size, residual.cell_count.numpy()
    weight, factors, cross = (one.detach().numpy() for one in (residual.weight, residual.factors, residual.cross))
    scores = []
    for row in x:
        codes = [0 if np.isnan(v) else 1 + int((v > e).sum()) for v, e in zip(row, edges, strict=False)]
        codes = np.minimum([*codes, *row[len(edges) :].astype(int)], size - 1)
        at = codes + start
        total = weight[at].sum(axis=0)
        for one, other in combinations(at, 2):
            total = total + (factors[one] * factors[other]).sum(axis=1)
        for which, columns in enumerate(residual.interactions.tolist()):
            number = 0
            for column in columns:
                number = number if column < 0 else number * int(size[column]) + int(codes[column])
            keys = residual.keys.tolist()
            key = count[:which].sum() + number % count[which]
            total = total + cross[keys.index(key) if key in keys else len(keys) + which]
        scores.append(total * residual.unit.numpy())
    return np.array(scores)


COMBINED = {(0, 1): 20, (1, 3): 17, (2,): 3, (0, 2, 3): 72}


def random_model(outputs: int = 2, rank: int = 3, combined: Any = COMBINED) -> ResidualModel:
    generator = torch.Generator().manual_seed(0)
    edges = torch.tensor([[0.0, 1.0, torch.inf], [-1.0, 0.5, 2.0]], dtype=torch.float64)
    unit = torch.arange(1.0, outputs + 1, dtype=torch.float64)
    residual = ResidualModel.zero(edges, [4, 5, 3, 6], unit, rank=rank, generator=generator).double()
    if combined:
        cells = [torch.arange(0, count, 2) for count in combined.values()]  # the others share a row
        tables = [torch.zeros(len(each), outputs, dtype=torch.float64) for each in cells]
        residual.set_interactions(list(combined), list(combined.values()), cells, tables)
    with torch.no_grad():
        for parameter in residual.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return residual.requires_grad_()


@pytest.mark.parametrize("combined", [{}, COMBINED])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_formula(rank: int, combined: Any) -> None:
    residual = random_model(rank=rank, combined=combined)
    x = torch.tensor(
        [[0.0, 0.5, 0, 5], [torch.nan, torch.inf, 2, 0], [1.0000001, -torch.inf, 1, 3], [9, 2, 0, 99]],
        dtype=torch.float64,
    )
    np.testing.assert_allclose(residual(x).detach().numpy(), reference_scores(residual, x.numpy()), rtol=1e-12)


def test_gradients() -> None:
    residual = random_model()
    x = torch.tensor([[0.3, 0.6, 1, 2], [2.0, -3.0, 0, 4]], dtype=torch.float64)
    names = [name for name, _ in residual.named_parameters()]
    given = [parameter.detach().clone().requires_grad_() for parameter in residual.parameters()]

    def score(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(residual, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(score, given)


def test_cells_are_distinct_where_there_are_enough_and_hashed_where_not() -> None:
    codes = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    for count, distinct in ((1600, 1600), (801, 801)):
        at = interaction_cells(codes, torch.tensor([40, 40]), torch.tensor([[0, 1]]), torch.tensor([count]))
        assert len(torch.unique(at)) == distinct and at.max() < count


def test_cells_without_a_row_have_no_score() -> None:
    residual = ResidualModel.zero(torch.zeros(0, 0), [6, 5], torch.ones(1), rank=0, generator=torch.Generator())
    cells = [torch.tensor([3, 7]), torch.tensor([0, 4])]
    residual.set_interactions(
        [(0, 1), (1,)], [30, 5], cells, [torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0], [8.0]])]
    )
    x = torch.tensor([[0.0, 3], [1, 2], [0, 0], [5, 4], [5, 3]])
    assert residual(x)[:, 0].tolist() == [1, 2, 4, 8, 0]


def test_wide_columns_do_not_overflow() -> None:
    wide = 2**31 - 1
    at = interaction_cells(
        torch.tensor([[wide - 1] * 4]), torch.tensor([wide] * 4), torch.arange(4)[None], torch.tensor([2**20 + 1])
    )
    number = 0
    for _ in range(4):
        number = number * wide + wide - 1
    assert int(at) == number % (2**20 + 1)
