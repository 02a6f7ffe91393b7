"""Soft trees: near to the source when they start, exact gradients, inert padding, levels that mean what they say."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
import torch
import xgboost as xgb
from torch.autograd import gradcheck

import windtunnel
from windtunnel.modules.trees import SoftTrees
from windtunnel.modules.trees.soft.harden import harden
from windtunnel.modules.trees.soft.soften import soften
from windtunnel.program.records.fidelity import r2_score
from windtunnel.translators.trees.lightgbm import tree_ensemble

TRAINABLE = {
    "L0": set(),
    "L1": {"leaf_value", "base"},
    "L2": {"leaf_value", "base", "threshold", "category_table"},
    "L3": {"leaf_value", "base", "threshold", "category_table", "node_weight"},
    "L4": {"leaf_value", "base", "threshold", "category_table", "node_weight", "path", "path_bias"},
}


def make_rows(rows: int = 400, *, missing: bool = True) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.normal(size=rows),
            rng.lognormal(10, 2, size=rows),
            rng.integers(0, 2, size=rows),
            rng.integers(0, 9, size=rows),
            rng.normal(1e6, 1, size=rows),
        ]
    )
    if missing:
        X[::11, 0] = np.nan
    return X.astype(np.float32).astype(np.float64)


def make_booster(X: np.ndarray, **params: object) -> lgb.Booster:
    # Trees of unequal size, so that there is padding.
    y = (np.nan_to_num(X[:, 0]) * (X[:, 2] - 0.4) > 0).astype(float) + (X[:, 3] == 4)
    options = {"objective": "regression", "verbosity": -1, "num_leaves": 9, "max_depth": 3, "min_data_in_leaf": 5}
    categorical = [3] if params.pop("categorical", False) else "auto"
    return lgb.train({**options, **params}, lgb.Dataset(X, y > 0.5, categorical_feature=categorical), num_boost_round=7)


def scores(trees: SoftTrees, X: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return trees.eval()(torch.from_numpy(X).float())


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"categorical": True},
        {"zero_as_missing": True},
        {"num_leaves": 2},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7},
    ],
    ids=str,
)
def test_starts_near_the_source(params, calibrated):
    X = make_rows()
    booster = make_booster(X, **params)
    trees = soften(tree_ensemble(booster), sample=X if calibrated else None)
    soft, exact = scores(trees, X), torch.from_numpy(booster.predict(X)).unsqueeze(1)
    # Without rows only the distances between thresholds say how sharp a node has to be.
    assert r2_score(soft, exact) > (0.9995 if calibrated else 0.98)


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_they_are_the_same_whatever_torch_takes_by_default(start):
    X = make_rows()
    ensemble = tree_ensemble(make_booster(X, categorical=True))
    wanted = scores(soften(ensemble, start=start), X)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(scores(soften(ensemble, start=start), X), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_starts_near_without_rows_where_zeros_lie_on_thresholds():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(0.5, 600), np.where(rng.random(600) < 0.9, 0, rng.lognormal(8, 1, 600))])
    X = np.column_stack([X, -X[:, 1], rng.integers(0, 2, 600)]).astype(float)
    y = (X[:, 0] > 0) + (X[:, 1] > 0) * 2.0 + X[:, 3] * (X[:, 2] == 0)
    booster = lgb.train({"verbosity": -1, "num_leaves": 8, "min_data_in_leaf": 5}, lgb.Dataset(X, y), 10)
    soft = scores(soften(tree_ensemble(booster)), X)
    assert r2_score(soft, torch.from_numpy(booster.predict(X)).unsqueeze(1)) > 0.999


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_large_mean_of_the_target_does_not_leak(calibrated):
    X = make_rows(missing=False)
    target = 300 + X[:, 0] + X[:, 3] / 9
    booster = lgb.train({"verbosity": -1, "num_leaves": 9}, lgb.Dataset(X, target), num_boost_round=20)
    soft = scores(soften(tree_ensemble(booster), sample=X if calibrated else None), X)
    assert r2_score(soft, torch.from_numpy(booster.predict(X)).unsqueeze(1)) > 0.999


def test_infinite_values_give_finite_scores_at_the_far_end():
    X = make_rows(missing=False)
    booster = make_booster(X)
    far = X[:50].copy()
    far[:25, 0], far[25:, 1] = np.inf, -np.inf
    soft = scores(soften(tree_ensemble(booster), sample=X), far)
    np.testing.assert_allclose(soft[:, 0].numpy(), booster.predict(far), atol=0.02)


def booster_of_missing_values() -> lgb.Booster:
    """Trees with splits that separate missing values alone, whose threshold is beyond float32, and one at 10,000."""
    X = make_rows()
    X[:, 1] = np.where(X[:, 1] > 1e4, 10_001.0, 9_999.0)
    y = np.isnan(X[:, 0]) + (X[:, 1] > 1e4) * 0.5
    return lgb.train({"verbosity": -1, "num_leaves": 5, "min_data_in_leaf": 5}, lgb.Dataset(X, y), num_boost_round=3)


@pytest.mark.parametrize("level", ["L2", "L4"])
def test_splits_of_missing_values_survive_training_at_a_given_temperature(level):
    ensemble = tree_ensemble(booster_of_missing_values())
    assert (np.abs(ensemble.threshold) > np.finfo(np.float32).max).any()
    trees, rows = soften(ensemble, level=level, temperature=1.0).train(), torch.from_numpy(make_rows()).float()
    optimizer = torch.optim.Adam([p for p in trees.parameters() if p.requires_grad], lr=0.01, weight_decay=1e-6)
    for _ in range(3):
        optimizer.zero_grad()
        trees(rows).square().mean().backward()
        optimizer.step()
    assert all(bool(torch.isfinite(one).all()) for one in trees.parameters())
    assert bool(torch.isfinite(trees(rows)).all())


@pytest.mark.parametrize("temperature", [None, 1.0])
def test_hardened_splits_of_missing_values_take_every_number_to_one_side(temperature):
    ensemble = tree_ensemble(booster_of_missing_values())
    assert (ensemble.threshold.astype(np.float32) == 1e4).any()
    hard = harden(soften(ensemble, level="L1", temperature=temperature))
    beyond = np.abs(ensemble.threshold) > np.finfo(np.float32).max
    assert (hard.threshold[beyond] == np.inf).all()
    np.testing.assert_allclose(hard.threshold[~beyond], ensemble.threshold[~beyond], rtol=0.2)


@pytest.mark.parametrize("options", [{"temperature": 1.0}, {"calibrated": True}, {"calibrated": False}], ids=str)
def test_no_number_is_taken_for_a_missing_value(options):
    ensemble = tree_ensemble(booster_of_missing_values())
    sample = make_rows() if options.pop("calibrated", False) else None
    trees, rows = soften(ensemble, sample=sample, **options), make_rows(1)
    rows[0, 0] = 0.5
    usual = scores(trees, rows)
    for value in (1e5, 1e9, 1e31, -1e31, np.inf, -np.inf):
        rows[0, 0] = value
        torch.testing.assert_close(scores(trees, rows), usual)
    rows[0, 0] = np.nan
    assert abs(scores(trees, rows) - usual) > 0.05


@pytest.mark.parametrize("temperature", [None, 1.0])
def test_a_cold_start_leaves_splits_of_missing_values(temperature):
    ensemble = tree_ensemble(booster_of_missing_values())
    warm, cold = (
        soften(ensemble, level="L2", temperature=temperature, start=start, sample=make_rows())
        for start in ("warm", "cold")
    )
    far = warm.beyond_bounds()
    assert far.any() and torch.equal(cold.threshold[far], warm.threshold[far])
    assert not torch.equal(cold.threshold[~far], warm.threshold[~far])
    assert cold.threshold[~far].abs().max() <= 5 * warm.threshold[~far].abs().max()


def test_a_column_of_mostly_zeros_with_an_outlier_keeps_its_scale():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    X[:, 0] = np.where(rng.random(3000) < 0.04, np.round(rng.random(3000) * 5, 2), 0)
    X[7, 0] = 1e7
    booster = lgb.train({"verbosity": -1}, lgb.Dataset(X, (X[:, 0] > 0) + X[:, 1] * 0.3), num_boost_round=30)
    soft = scores(soften(tree_ensemble(booster), sample=X), X)
    assert r2_score(soft, torch.from_numpy(booster.predict(X)).unsqueeze(1)) > 0.999


def test_a_column_beyond_float32_gives_finite_scores():
    X = make_rows(missing=False)
    X[:, 0] *= 1e300
    trees = soften(tree_ensemble(make_booster(X)), level="L2")
    with np.errstate(over="ignore"):
        assert bool(torch.isfinite(scores(trees, X)).all())


@pytest.mark.parametrize("method", ["hist", "approx", "exact"])
def test_whole_numbers_on_thresholds_of_xgboost_need_no_rows(method):
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(0, 2, 1500), rng.integers(0, 10, 1500)].astype(float)
    source = xgb.XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1, tree_method=method).fit(X, X[:, 0] + X[:, 1] / 5)
    soft = windtunnel.translate(source).soften().predict(X)
    assert r2_score(torch.from_numpy(soft).double(), torch.from_numpy(source.predict(X)).double()) > 0.999


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("params", [{}, {"categorical": True}], ids=str)
def test_gradients_are_exact(level, missing, params):
    X = make_rows(60, missing=missing)
    # Finite differences want columns of size 1.
    X[:, 1], X[:, 4] = np.log(X[:, 1]) - 10, X[:, 4] - 1e6
    trees = soften(tree_ensemble(make_booster(X, **params)), level=level, temperature=1.0).double().eval()
    # The derivative with respect to a value that is missing, or that is looked up, is not there: take the others.
    rows = torch.from_numpy(X[:4])
    learned = [parameter for parameter in trees.parameters() if parameter.requires_grad]

    def forward(moving: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return trees(torch.cat([rows[:, :1], moving, rows[:, 2:]], dim=1))

    moving = rows[:, 1:2].clone().requires_grad_()
    assert gradcheck(forward, (moving, *learned), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("level", TRAINABLE)
def test_a_level_says_what_training_moves(level):
    X = make_rows()
    trees = soften(tree_ensemble(make_booster(X, categorical=True)), level=level, sample=X)
    assert {name for name, parameter in trees.named_parameters() if parameter.requires_grad} == TRAINABLE[level]


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
def test_padding_stays_inert_through_training(level):
    X = make_rows()
    trees = soften(tree_ensemble(make_booster(X)), level=level, sample=X).train()
    padding = trees.leaf_mask == 0
    assert padding.any() and (trees.node_mask == 0).any()
    rows, target = torch.from_numpy(X).float(), torch.from_numpy(X[:, 3:4]).float()
    optimizer = torch.optim.Adam([p for p in trees.parameters() if p.requires_grad], lr=0.05, weight_decay=1e-3)
    trees.dropout = 0.1
    for _ in range(5):
        optimizer.zero_grad()
        (trees(rows) - target).square().mean().backward()
        optimizer.step()
    before = scores(trees, X)
    assert (before - target).square().mean() < target.square().mean()
    with torch.no_grad():
        trees.leaf_value[padding] = 1e3
        trees.path[trees.path_mask() == 0] = 1e3
        trees.path_bias[padding] = -1e3
        trees.threshold[trees.node_mask == 0] = 1e3
    assert torch.equal(scores(trees, X), before)


def test_dropout_is_seeded_and_off_in_eval():
    X = make_rows(missing=False)
    trees = soften(tree_ensemble(make_booster(X)), sample=X)
    rows = torch.from_numpy(X).float()
    trees.dropout = 0.3
    trees.train()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        first = trees(rows)
        torch.manual_seed(1)
        again = trees(rows)
        other = trees(rows)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert not torch.allclose(first, scores(trees, X))


def test_cold_start_keeps_the_architecture_and_forgets_the_values():
    X = make_rows()
    ensemble = tree_ensemble(make_booster(X))
    warm, cold = soften(ensemble, sample=X), soften(ensemble, start="cold", sample=X)
    assert {n: p.shape for n, p in warm.named_parameters()} == {n: p.shape for n, p in cold.named_parameters()}
    assert torch.equal(warm.leaf_mask, cold.leaf_mask)
    assert not torch.allclose(scores(warm, X), scores(cold, X), atol=0.05)


def test_rebuilt_and_scripted_modules_score_the_same():
    X = make_rows()
    trees = soften(tree_ensemble(make_booster(X, categorical=True)), sample=X).eval()
    rebuilt = SoftTrees.rebuild(trees.state_dict(), trees.facts()).eval()
    assert torch.equal(scores(rebuilt, X), scores(trees, X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(trees)
    for rows in (X, X[:1], X[:0]):
        torch.testing.assert_close(scripted(torch.from_numpy(rows).float()), scores(trees, rows))
