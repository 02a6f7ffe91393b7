"""Losses of one's own over many rows, a block of them after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lightgbm import LGBMClassifier
from torch.nn.functional import softplus

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.objectives.losses import loss_for
from windtunnel.objectives.row_blocks import ROWS, average_over_blocks
from windtunnel.program.head import Head
from windtunnel.trainers.recipe import LARGEST_BATCH

HEAD = Head("binary", "sigmoid", "logistic", classes=np.array([0, 1]))


def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(count, 1, generator=generator, dtype=torch.float64, requires_grad=True)
    return (
        scores,
        (torch.rand(count, generator=generator) < 0.2).long(),
        torch.rand(count, generator=generator).double(),
    )


def pairwise(scores: Any, target: Any, weight: Any) -> Any:
    return softplus(scores[target == 0].T - scores[target == 1]).mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_means_over_rows_do_not_change(weighted: bool) -> None:
    scores, target, weight = drawn(3 * ROWS + 7)
    given = weight if weighted else None
    own, named = average_over_blocks(loss_for(lambda *rows: loss_for(None, HEAD)(*rows), HEAD)), loss_for(None, HEAD)
    gradients = [torch.autograd.grad(loss(scores, target, given), scores)[0] for loss in (own, named)]
    torch.testing.assert_close(*gradients)
    assert average_over_blocks(named) is named


def test_blocks_without_pairs_are_left_out() -> None:
    scores, target, _ = drawn(4 * ROWS)
    target = torch.zeros_like(target)
    target[5] = 1
    value = average_over_blocks(loss_for(pairwise, HEAD))(scores, target, None)
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite() and gradient.isfinite().all() and gradient[5] != 0
    assert average_over_blocks(loss_for(pairwise, HEAD))(scores, torch.zeros_like(target), None).isnan()


def test_a_residual_model_computes_it_in_blocks() -> None:
    most = 0

    def watched(scores: Any, target: Any, weight: Any) -> Any:
        nonlocal most
        most = max(most, len(scores))
        return pairwise(scores, target, weight)

    random = np.random.default_rng(0)
    X = random.integers(0, 3, size=(6 * LARGEST_BATCH, 3)).astype(float)
    odds = np.where((X[:, 0] + X[:, 1]) % 2 == 0, 2.0, -2.0) + X[:, 2]
    y = (random.random(len(X)) < 1 / (1 + np.exp(-odds))).astype(int)
    source = LGBMClassifier(n_estimators=20, num_leaves=2, verbosity=-1).fit(X[:1000], y[:1000])
    net = windtunnel.translate(source, level="L0", calibrate=X[:500]).soften()
    half = len(X) // 2
    net.fit((X[:half], y[:half]), (X[half:], y[half:]), loss=watched, metric="auroc", epochs=1, progress=False)
    assert net.program.steps[-1].name == "residual" and ROWS < most <= LARGEST_BATCH


def test_a_loss_over_whole_groups_raises_with_advice() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 3))
    y = (X[:, 0] + X[:, 1] ** 2 + random.normal(size=400) > 1).astype(int)
    net = windtunnel.translate(LGBMClassifier(n_estimators=3, verbosity=-1, n_jobs=1).fit(X, y), calibrate=X)

    def queries(scores: Any, target: Any, weight: Any) -> Any:
        return (scores.reshape(-1, 20).softmax(dim=1) * (1 - target.reshape(-1, 20))).sum(dim=1).mean()

    parts = [[(X[at : at + 100], y[at : at + 100]) for at in range(start, start + 200, 100)] for start in (0, 200)]
    with pytest.raises(BadInput, match=r"loss=queries failed on \d+ rows \(RuntimeError: .* needs residual=False"):
        net.fit(*parts, loss=queries, progress=False)
    net.fit(*parts, loss=queries, residual=False, epochs=1, progress=False)
