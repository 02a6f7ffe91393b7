"""The network of a boosted residual, and the bins that it reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from windtunnel.objectives.losses import LOSSES
from windtunnel.trainers.data.labelled_rows import Targets
from windtunnel.trainers.residual.boosted.binned_features import BINS, bin_borders
from windtunnel.trainers.residual.boosted.fit_targets import FitTargets
from windtunnel.trainers.residual.boosted.network import scaled, train_network
from windtunnel.trainers.significance.validation_halves import RowSubset, ValidationHalves


def test_a_trained_network_gives_the_scores_of_its_best_epoch() -> None:
    random = np.random.default_rng(0)
    features = random.integers(0, 200, (4000, 3)).astype(np.float32)
    features[:, 2] = 7.0  # a constant
    signal = np.abs(features[:, 0] - 100) / 25 - 2
    target = torch.from_numpy((random.random(4000) < 1 / (1 + np.exp(-signal))).astype(np.float32))
    parts, base_score = (slice(0, 3000), slice(3000, 4000)), torch.zeros(1)
    train, valid = (Targets(target[part]) for part in parts)
    split = ValidationHalves([*torch.arange(1000).tensor_split(2)], torch.arange(1000))
    targets = FitTargets(base_score, train, valid, split, LOSSES["logistic"], torch.ones(1), seed=0)
    trained = train_network(targets, features[parts[0]], features[parts[1]])
    scores = trained.layers(torch.from_numpy(features[parts[1]]).double()).detach()
    torch.testing.assert_close(scores.float(), trained.scores_of(RowSubset.ALL), atol=1e-4, rtol=1e-4)
    loss = float(LOSSES["logistic"](trained.scores_of(RowSubset.ALL), valid.target, None))
    assert loss == pytest.approx(trained.losses[:, 0].min(), rel=1e-5) and loss < 0.62
    np.testing.assert_allclose(
        scaled(trained.layers, 0.25)(torch.from_numpy(features).double())[3000:].detach(), scores / 4
    )


def test_a_feature_has_a_bin_per_value_or_quantile_bins() -> None:
    assert bin_borders(np.array([3.0, 1.0, 3.0, 2.0], np.float32)).tolist() == [1.5, 2.5]
    column = np.random.default_rng(0).exponential(size=20_000).astype(np.float32)
    borders = bin_borders(column)
    rows = np.bincount(np.searchsorted(borders, column))
    assert len(rows) <= BINS and rows.max() < 2 * len(column) / BINS and not np.isin(borders, column).any()
