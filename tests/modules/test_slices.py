"""Rows that are taken in slices have the outputs that they have all together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from windtunnel.compiler.scripted import script
from windtunnel.modules.base import Module
from windtunnel.modules.columns.polynomial import Polynomial
from windtunnel.modules.linear.multilayer import MultilayerPerceptron
from windtunnel.modules.slices import cache_slices
from windtunnel.modules.tables.tfidf import Tfidf

ROWS, WIDTH = 2001, 40


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


SLICED: dict[str, Callable[[], Module]] = {
    "layers": lambda: MultilayerPerceptron(numbers(WIDTH * 300 + 300), numbers(301), [WIDTH, 300, 1], "tanh"),
    "products": lambda: Polynomial(torch.combinations(torch.arange(WIDTH + 1), 2, with_replacement=True)),
    "weighted terms": lambda: Tfidf(numbers(WIDTH).abs(), "l2"),
    "some weighted terms": lambda: Tfidf(numbers(WIDTH).abs(), "l1", torch.arange(0, WIDTH, 7)),
}


@pytest.mark.parametrize("name", SLICED)
def test_slices_have_the_outputs_of_the_whole(name: str) -> None:
    module, x = SLICED[name](), numbers(ROWS, WIDTH)
    whole = module(x)
    assert whole.requires_grad or not list(module.parameters())
    with torch.inference_mode():
        for one in (module, script(module)):
            torch.testing.assert_close(one(x), whole.detach(), rtol=1e-12, atol=1e-12)
            assert one(x[:0]).shape == (0, whole.shape[1])


def test_slices_are_for_rows_without_gradients_alone() -> None:
    x = numbers(ROWS, WIDTH)
    assert len(cache_slices(x, 100)) == 1
    with torch.no_grad():
        parts = cache_slices(x, 100)
    assert [len(part) for part in parts] == [655, 655, 655, 36]
    assert torch.equal(torch.cat(parts), x)
