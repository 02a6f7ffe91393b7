from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.trainers.data import loader
from windtunnel.trainers.data.hold_out import can_hold_out, hold_out_mask
from windtunnel.trainers.loop.data_module import DataModule


def test_a_large_fraction_leaves_a_row_of_each_class() -> None:
    target = torch.tensor([0] * 98 + [1] * 2)
    held_out = hold_out_mask(target, None, 0.8, seed=0)
    assert [int((target[rows] == 1).sum()) for rows in (held_out, ~held_out)] == [1, 1]
    assert can_hold_out(held_out, target, None)


@pytest.mark.parametrize("options", [{}, {"recipe": "joint"}], ids=str)
def test_rows_that_make_no_batch_once_some_are_held_out(options: dict[str, str]) -> None:
    X = np.random.default_rng(0).normal(size=(1000, 4))
    net = windtunnel.translate(LogisticRegression().fit(X, X[:, 0] > 0))
    train = windtunnel.loader(net, X, X[:, 0] > 0, batch_size=1000, drop_last=True)
    with pytest.raises(BadInput, match="held out, yields nothing: 900 rows make no full batch of 1000"):
        net.fit(train, progress=False, **options)


def test_a_part_of_rows_that_are_encoded_batch_by_batch_comes_from_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "DENSE_BYTES_OF_FIT", 2**20)
    X, y = sparse.random(2000, 20_000, 0.001, "csr", random_state=0), np.repeat([0, 1], 1000)
    net = windtunnel.translate(LogisticRegression(max_iter=500).fit(X[::2], y[::2]))
    valid = DataModule(net, (X[::2], y[::2]), (X[1::2], y[1::2])).valid
    rows, target = valid.collect(100)
    assert len(rows.numbers) == 100 and target.bincount().tolist() == [50, 50]
    every, targets = valid.collect(5000)
    assert torch.equal(every.numbers, net.encode(X[1::2]).numbers) and targets.tolist() == y[1::2].tolist()


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("options", [{"epochs": 2}, {"recipe": "joint", "max_steps": 20}], ids=str)
def test_training_rows_of_weight_0_are_left_out(options: dict[str, Any], held_out: bool) -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 8, size=(2000, 3)).astype(float)
    y, weight = (X[:, 0] + X[:, 1]) % 2 == 0, (random.random(2000) < 0.8).astype(float)
    source, counted, valid = LogisticRegression().fit(X, y), weight > 0, None if held_out else (X[:600], y[:600])
    nets = [windtunnel.translate(source) for _ in range(2)]
    nets[0].fit((X, y, weight), valid, progress=False, **options)
    nets[1].fit((X[counted], y[counted], weight[counted]), valid, progress=False, **options)
    assert nets[0].history is not None and nets[0].history.changed
    np.testing.assert_array_equal(nets[0].predict_proba(X), nets[1].predict_proba(X))
