"""The network of a boosted residual, and the bins that it reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from windtunnel.objectives.losses import LOSSES
from windtunnel.trainers.residual.boosted.binned_features import BINS, bin_borders
from windtunnel.trainers.residual.boosted.boosting import BoostingRows
from windtunnel.trainers.residual.boosted.code_functions import MAX_CODES, CodeFunctions
from windtunnel.trainers.residual.boosted.feature_layout import FeatureLayout
from windtunnel.trainers.residual.boosted.network import train_network


def test_a_trained_network_gives_the_scores_of_its_best_epoch() -> None:
    random = np.random.default_rng(0)
    sizes = [200, 8, 60, 5, MAX_CODES + 1]
    features = np.column_stack([random.integers(0, size, 4000) for size in sizes]).astype(np.float32)
    # A statistic, two numbers and two categories, the second of which has too many codes for a table.
    layout = FeatureLayout(sizes[:1], sizes[1:], 2)
    signal = np.abs(features[:, 0] - 100) / 25 - 2 + np.sin(features[:, 3] * 3)
    target = torch.from_numpy((random.random(4000) < 1 / (1 + np.exp(-signal))).astype(np.float32))
    parts, start = (slice(0, 3000), slice(3000, 4000)), torch.zeros(1)
    train, valid = (BoostingRows(target[part]) for part in parts)
    halves = torch.arange(1000).tensor_split(2)
    of_rows = features[parts[0]], features[parts[1]], layout, start, train, valid, halves
    trained = train_network(*of_rows, LOSSES["logistic"], torch.ones(1), 0)
    assert trained.best.codes == [1, 2, 3] and trained.best.numeric == 3
    scores = trained.best.scores(torch.from_numpy(features[parts[1]]).double()).detach()
    torch.testing.assert_close(scores.float(), trained.scores_of(0), atol=1e-4, rtol=1e-4)
    loss = float(LOSSES["logistic"](trained.scores_of(0), valid.target, None))
    assert loss == pytest.approx(trained.losses[:, 0].min(), rel=1e-5) and loss < 0.62
    quarter = trained.best.times(0.25).scores(torch.from_numpy(features).double())
    np.testing.assert_allclose(quarter[3000:].detach(), scores / 4)


def test_functions_of_codes_add_up_to_tables() -> None:
    random = np.random.default_rng(0)
    sizes, rows = [30, 12, 600], 5000
    codes = np.column_stack([random.integers(0, size, rows) for size in sizes])
    codes[:10, 1], codes[10:, 1] = 11, codes[10:, 1] % 11  # a category with too few rows for a function
    features = torch.from_numpy(codes).float()
    functions = CodeFunctions.of(features, FeatureLayout([], sizes, 1))
    values = functions(features)
    assert functions.positions == [0, 1] and values.shape == (rows, 8 + 11)
    numbers, categories = values[:, :8], values[:, 8:]
    assert numbers.min() == -1 and numbers.max() == 1 and not categories[:10].any()
    assert torch.all(numbers[features[:, 0].argsort()].diff(dim=0) >= 0)
    weight = torch.randn(3, 19, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows, start = functions.tables(weight)
    of_tables = rows[features[:, :2].long() + start].sum(dim=1)
    torch.testing.assert_close(of_tables, values.double() @ weight.t(), atol=1e-5, rtol=1e-5)


def test_without_a_small_category_or_a_number_of_several_values_the_table_is_zero() -> None:
    codes = np.random.default_rng(0).integers(0, [3, 600], (900, 2))
    codes[:, 0] += codes[:, 0] == 0  # 1 and 2, as no number is missing
    functions = CodeFunctions.of(torch.from_numpy(codes).float(), FeatureLayout([], [3, 600], 1))
    rows, start = functions.tables(torch.zeros(4, functions.width))
    assert functions.width == 0 and start.tolist() == [0] and rows.shape == (3, 4) and not rows.any()


def test_a_feature_has_a_bin_per_value_or_quantile_bins() -> None:
    assert bin_borders(np.array([3.0, 1.0, 3.0, 2.0], np.float32)).tolist() == [1.5, 2.5]
    column = np.random.default_rng(0).exponential(size=20_000).astype(np.float32)
    borders = bin_borders(column)
    rows = np.bincount(np.searchsorted(borders, column))
    assert len(rows) <= BINS and rows.max() < 2 * len(column) / BINS and not np.isin(borders, column).any()
