"""Bins of numbers in a residual model."""

from __future__ import annotations

import pytest
import torch

from windtunnel.modules.linear.residual_model import column_codes
from windtunnel.trainers.residual.column_coder import bin_edges, code_counts

MISSING = 0


def rows_per_code(column: torch.Tensor) -> list[int]:
    edges = bin_edges(column[:, None])
    counts = code_counts(edges)
    codes = column_codes(column[:, None], edges, torch.tensor(counts))
    return torch.bincount(codes[:, 0], minlength=counts[0]).tolist()


@pytest.mark.parametrize(("rows", "bins"), [(1000, 16), (10_000, 50), (50_000, 64)])
def test_more_rows_have_finer_bins(rows: int, bins: int) -> None:
    column = torch.randn(rows, generator=torch.Generator().manual_seed(0))
    counts = rows_per_code(column)
    assert counts.pop(MISSING) == 0
    assert len(counts) == bins
    assert max(counts) - min(counts) <= 2


def test_missing_values_have_a_code_and_no_bin() -> None:
    column = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    column[::2] = torch.nan
    counts = rows_per_code(column)
    assert counts.pop(MISSING) == 5000
    assert len(counts) == 25


def test_a_frequent_value_has_a_bin_of_its_own() -> None:
    column = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    column[:4000] = 0.5
    counts = rows_per_code(column)
    assert 4000 in counts
    assert sorted(counts)[-2] < 200


@pytest.mark.parametrize("count", [10, 32])
def test_few_distinct_values_have_a_bin_each(count: int) -> None:
    assert rows_per_code(torch.arange(float(count)).repeat(3)) == [0, *[3] * count, 0]


def test_rounding_of_the_values_changes_no_bin() -> None:
    column = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    edges = bin_edges(column)
    size = torch.tensor(code_counts(edges))
    codes = column_codes(column, edges, size)
    for other in (column.float().double(), column * (1 + 1e-15), column * (1 - 1e-15)):
        assert torch.equal(column_codes(other, edges, size), codes)
