"""Operators that we write out for ONNX agree with those of torch."""

import numpy as np
import pytest
import torch

from windtunnel.compiler.decompositions import bucketize, cdist, searchsorted


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_places_by_halving_are_those_of_torch(count: int, right: bool) -> None:
    drawn = torch.Generator().manual_seed(count)
    bounds = torch.randint(0, 9, (2, count), generator=drawn).double().sort().values
    values = torch.cat([torch.arange(-1, 10, 0.5), torch.tensor([np.nan, np.inf, -np.inf, -0.0])]).double().repeat(2, 1)
    assert torch.equal(searchsorted(bounds, values, right=right), torch.searchsorted(bounds, values, right=right))
    assert torch.equal(
        searchsorted(bounds[0], values, side="right"), torch.searchsorted(bounds[0], values, side="right")
    )
    assert torch.equal(bucketize(values, bounds[0], right=right), torch.bucketize(values, bounds[0], right=right))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, np.inf])
def test_distances_by_columns_are_those_of_torch(p: float) -> None:
    rows, others = torch.randn(2, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(cdist(rows, others, p), torch.cdist(rows, others, p), rtol=1e-12, atol=1e-12)
