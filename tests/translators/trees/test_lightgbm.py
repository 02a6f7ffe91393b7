"""LightGBM models score and predict as LightGBM does, on awkward rows too; the source is the oracle."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.outputs.links import LINKS
from windtunnel.modules.trees.hard import HardTrees
from windtunnel.translators.not_fitted import NotFitted
from windtunnel.translators.trees.lightgbm import (
    booster as read_booster,
    classifier,
    regressor,
    tree_ensemble,
)

# The same sums in the same order.
TOLERANCE = {"rtol": 1e-14, "atol": 0}
LINKED = {"rtol": 1e-9, "atol": 1e-12}
# float32 rows get float32 scores.
SINGLE = {"rtol": 1.2e-7, "atol": 1e-12}

SMALL = {
    "n_estimators": 8,
    "num_leaves": 12,
    "min_child_samples": 1,
    "min_child_weight": 0.0,
    "min_data_in_bin": 1,
    "min_data_per_group": 1,
    "cat_smooth": 0.1,
    "cat_l2": 0.0,
    "n_jobs": 1,
    "verbosity": -1,
}
TRAIN = {key: value for key, value in SMALL.items() if key not in ("n_estimators", "n_jobs")} | {"num_threads": 1}
BAGGED = {"subsample": 0.6, "subsample_freq": 1}


def numbers(rows=150, seed=0, missing=0.15, zeros=0.15):
    """Column 2 holds small integers (a category in some tests), column 4 is constant; float32 values as float64."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 5))
    x[rng.random(x.shape) < zeros] = 0.0
    x[:, 2] = rng.integers(0, 40, rows)
    x[:, 4] = 1.0
    x[rng.random(x.shape) < missing] = np.nan
    return x.astype(np.float32).astype(np.float64)


def target(x, seed=0):
    rng = np.random.default_rng(seed)
    filled = np.nan_to_num(x, nan=0.7)
    return filled[:, 0] - filled[:, 1] ** 2 + np.sin(filled[:, 2]) + 0.3 * rng.normal(size=len(x))


def classes(x, count=2):
    return np.digitize(target(x), np.quantile(target(x), np.arange(1, count) / count))


def awkward(x, booster):
    """Rows of x and, one column at a time, the values at which a float32 walk could go another way."""
    thresholds = tree_ensemble(booster).threshold
    floors = np.unique(np.clip(thresholds, -3e38, 3e38).astype(np.float32))[:60]
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, -1e-35, 2e-35, -2e-35, 1e-36, -1e-40, 0.5, -0.5, -1.0]
    special += [3.9, 31.0, 32.0, 39.0, 40.0, 63.5, 64.0, 1e6, 2147483647.0, 2147483648.0, 1e12, -1e12, 3.4e38]
    edges = [np.nextafter(floors, np.float32(way)) for way in (-np.inf, np.inf)]
    values = np.concatenate([np.array(special, np.float32), floors, *edges])
    rows = [np.repeat(x[:1], len(values), axis=0) for _ in range(x.shape[1])]
    for column, block in enumerate(rows):
        block[:, column] = values
    rng = np.random.default_rng(0)
    mixed = rng.choice(values, size=(200, x.shape[1]))
    return np.concatenate([x, *rows, mixed]).astype(np.float32).astype(np.float64)


def fit(cls, x, y, categories="auto", **params):
    return cls(**SMALL | params).fit(x, y, categorical_feature=categories)


def scores(module, x, dtype=torch.float64):
    return module(torch.tensor(x, dtype=dtype)).numpy()


def raw(booster, x):
    values = booster.predict(x, raw_score=True)
    if "\naverage_output\n" in booster.model_to_string():
        values = values / booster.num_trees() * booster.num_model_per_iteration()
    return values.reshape(len(x), -1)


def linked(predictor, x):
    values = LINKS[predictor.link](predictor.scores(torch.tensor(x, dtype=torch.float64)), **predictor.link_options)
    return values[:, 0].numpy() if predictor.flat and values.shape[1] == 1 else values.numpy()


def assert_same_scores(booster, x):
    rows, module = awkward(x, booster), HardTrees.of(tree_ensemble(booster))
    np.testing.assert_allclose(scores(module, rows), raw(booster, rows), **TOLERANCE)
    np.testing.assert_allclose(scores(module, rows, torch.float32), raw(booster, rows), **SINGLE)
    # Values that float32 has to round, on both sides of the thresholds.
    thresholds = np.unique(np.clip(np.append(tree_ensemble(booster).threshold, 0.0), -1e300, 1e300))[:40]
    edges = [np.nextafter(thresholds, way) for way in (-np.inf, np.inf)]
    near = np.random.default_rng(1).choice(np.concatenate([thresholds, *edges]), size=(200, x.shape[1]))
    np.testing.assert_allclose(scores(module, near), raw(booster, near), **TOLERANCE)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"use_missing": False},
        {"zero_as_missing": True},
        {"categories": [2]},
        {"categories": [2], "zero_as_missing": True},
        {"categories": [2], "max_cat_to_onehot": 100},
        {"boosting_type": "dart"},
        {"boosting_type": "rf", **BAGGED},
        {"data_sample_strategy": "goss", "top_rate": 0.3},
        {"n_estimators": 1},
        {"num_leaves": 2},
        {"extra_trees": True, "max_bin": 7},
    ],
    ids=str,
)
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_raw_scores_and_predictions(params, missing):
    x = numbers(missing=missing)
    fitted = fit(lgb.LGBMRegressor, x, target(x), **params)
    assert_same_scores(fitted.booster_, x)
    predictor = regressor(fitted)
    assert (predictor.link, predictor.loss, predictor.flat) == ("identity", "squared", True)
    np.testing.assert_allclose(linked(predictor, x), fitted.predict(x), **LINKED)


@pytest.mark.parametrize(
    ("params", "count", "link", "loss"),
    [
        ({}, 2, "sigmoid", "logistic"),
        ({"sigmoid": 2.5}, 2, "sigmoid", "logistic"),
        ({"objective": "cross_entropy"}, 2, "sigmoid", "logistic"),
        ({"is_unbalance": True}, 2, "sigmoid", "logistic"),
        ({"boosting_type": "rf", **BAGGED}, 2, "sigmoid", "logistic"),
        ({}, 3, "softmax", "softmax"),
        ({"boosting_type": "rf", **BAGGED}, 3, "softmax", "softmax"),
        ({"boosting_type": "dart"}, 4, "softmax", "softmax"),
        ({"objective": "multiclassova", "sigmoid": 1.5}, 3, "sigmoids", "logistic"),
        ({"objective": "multiclass", "num_class": 2}, 2, "softmax", "softmax"),
        ({}, 1, "sigmoid", "logistic"),
    ],
    ids=str,
)
def test_classifiers(params, count, link, loss):
    x = numbers()
    fitted = lgb.LGBMClassifier(**SMALL | params).fit(x, np.array(list("dbca"))[classes(x, count)])
    predictor = classifier(fitted)
    scale = {"scale": params["sigmoid"]} if "sigmoid" in params else {}
    assert (predictor.link, predictor.loss) == (link, loss)
    assert predictor.link_options == predictor.loss_options == scale
    assert_same_scores(fitted.booster_, x)
    rows = awkward(x, fitted.booster_)
    np.testing.assert_allclose(linked(predictor, rows), fitted.predict_proba(rows), **LINKED)


def halves(y_true, y_pred):
    return y_pred - y_true, np.ones_like(y_true, dtype=float)


@pytest.mark.filterwarnings("ignore:Cannot compute class probabilities")
def test_custom_objective_of_a_classifier_is_read_from_its_booster():
    x = numbers()
    fitted = lgb.LGBMClassifier(**SMALL, objective=halves).fit(x, classes(x))
    with pytest.raises(UnsupportedEstimator, match="translate its booster_ instead"):
        classifier(fitted)
    np.testing.assert_allclose(linked(read_booster(fitted.booster_), x), fitted.predict_proba(x), **TOLERANCE)


@pytest.mark.parametrize(
    ("objective", "params", "link", "loss", "options"),
    [
        ("regression", {"reg_sqrt": True}, "signed_square", "squared", {}),
        ("regression_l1", {}, "identity", "absolute", {}),
        ("regression_l1", {"reg_sqrt": True}, "signed_square", "absolute", {}),
        ("huber", {"alpha": 0.6}, "identity", "huber", {"delta": 0.6}),
        ("huber", {"reg_sqrt": True}, "identity", "huber", {"delta": 0.9}),
        ("fair", {"fair_c": 2.0}, "identity", "fair", {"c": 2.0}),
        ("quantile", {"alpha": 0.3}, "identity", "quantile", {"alpha": 0.3}),
        ("mape", {}, "identity", "mape", {}),
        ("poisson", {}, "exp", "poisson", {}),
        ("gamma", {}, "exp", "gamma", {}),
        ("tweedie", {"tweedie_variance_power": 1.2}, "exp", "tweedie", {"power": 1.2}),
        ("cross_entropy", {}, "logistic", "logistic", {}),
        ("cross_entropy_lambda", {}, "log1p_exp", "logistic", {}),
        pytest.param(halves, {}, "identity", "unknown", {}, id="a function"),
    ],
    ids=str,
)
def test_regressors(objective, params, link, loss, options):
    x = numbers()
    y = np.exp(target(x) / 3)
    y = y / (1 + y) if "entropy" in str(objective) else y
    fitted = lgb.LGBMRegressor(**SMALL | params, objective=objective).fit(x, y)
    predictor = regressor(fitted)
    assert (predictor.link, predictor.loss, predictor.loss_options) == (link, loss, options)
    np.testing.assert_allclose(linked(predictor, x), fitted.predict(x), **LINKED)
    saved = lgb.Booster(model_str=fitted.booster_.model_to_string())
    again = read_booster(saved)
    assert (again.link, again.loss, again.loss_options) == (link, loss, options)
    np.testing.assert_allclose(linked(again, x), saved.predict(x), **LINKED)


@pytest.mark.parametrize(
    ("params", "link", "loss"),
    [
        ({"objective": "binary", "sigmoid": 3.0}, "logistic", "logistic"),
        ({"objective": "multiclass", "num_class": 3}, "softmax", "softmax"),
        ({"objective": "multiclassova", "num_class": 3}, "sigmoids", "logistic"),
        ({"objective": "lambdarank"}, "identity", "relevance"),
        ({"objective": "rank_xendcg"}, "identity", "relevance"),
        ({"objective": "binary", "boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "logistic", "logistic"),
    ],
    ids=str,
)
def test_boosters_predict_values(params, link, loss):
    x = numbers()
    data = lgb.Dataset(x, classes(x, params.get("num_class", 2)), group=[50, 100] if "rank" in str(params) else None)
    booster = lgb.train(TRAIN | params, data, num_boost_round=5)
    predictor = read_booster(booster)
    assert (predictor.link, predictor.loss, predictor.flat) == (link, loss, "num_class" not in params)
    np.testing.assert_allclose(linked(predictor, x), booster.predict(x), **LINKED)
    assert_same_scores(booster, x)


@pytest.mark.parametrize("keep", [False, True])
def test_early_stopping_uses_the_best_iteration(keep):
    x = numbers()
    data = lgb.Dataset(x[:100], target(x)[:100])
    params = TRAIN | {"objective": "regression", "learning_rate": 0.5, "early_stopping_round": 3}
    valid = data.create_valid(x[100:], target(x)[100:])
    booster = lgb.train(params, data, 60, valid_sets=[valid], keep_training_booster=keep)
    best = booster.best_iteration
    assert booster.num_trees() == best + 3 * keep
    assert tree_ensemble(booster).trees == best
    assert_same_scores(booster, x)


def test_constant_target_and_no_trees():
    x = numbers()
    constant = lgb.LGBMRegressor(**SMALL).fit(x, np.full(len(x), 2.5)).booster_
    assert len(tree_ensemble(constant).feature) == 0
    np.testing.assert_allclose(scores(HardTrees.of(tree_ensemble(constant)), x), raw(constant, x), **TOLERANCE)
    empty = lgb.Booster({"objective": "regression", "verbosity": -1}, lgb.Dataset(x, target(x)))
    assert tree_ensemble(empty).trees == 0
    np.testing.assert_array_equal(scores(HardTrees.of(tree_ensemble(empty)), x)[:, 0], empty.predict(x))


def test_long_chain():
    x = np.eye(45)
    params = SMALL | {"num_leaves": 45, "n_estimators": 2, "learning_rate": 1.0}
    booster = lgb.LGBMRegressor(**params).fit(x, np.arange(45.0)).booster_
    assert HardTrees.of(tree_ensemble(booster)).depth >= 30
    assert_same_scores(booster, x)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    x = numbers()
    predictor = classifier(lgb.LGBMClassifier(**SMALL).fit(x, classes(x, 3)))
    assert scores(predictor.scores, x[:rows]).shape == (rows, 3)
    np.testing.assert_array_equal(scores(predictor.scores, x[:rows]), scores(predictor.scores, x)[:rows])


def test_infinite_training_values():
    x = numbers()
    x[:20, 0], x[20:40, 1] = np.inf, -np.inf
    assert_same_scores(lgb.LGBMRegressor(**SMALL).fit(x, target(np.clip(x, -5, 5))).booster_, x)


def test_feature_range():
    x = numbers()
    booster = fit(lgb.LGBMRegressor, x, target(x), categories=[2]).booster_
    expected = np.stack([np.nanmin(x, axis=0), np.nanmax(x, axis=0)], axis=1)
    found = tree_ensemble(booster).feature_range
    np.testing.assert_allclose(found[:2], expected[:2])
    assert found[2, 0] >= expected[2, 0] and found[2, 1] <= expected[2, 1]
    booster = lgb.LGBMRegressor(**SMALL).fit(np.c_[x[:, :4], np.ones(len(x))], target(x)).booster_
    assert np.isnan(tree_ensemble(booster).feature_range[4]).all()


def frame():
    x = numbers(missing=0.0)
    code = x[:, 2].astype(int)
    data = pd.DataFrame({"number": x[:, 0].astype(np.float32)})
    data["colour"] = np.array(["red", "green", "blue", "grey"])[code % 4]
    data["size"] = code % 5
    data["other"] = x[:, 1].astype(np.float32)
    data.loc[::9, "colour"] = None
    return data.astype({"colour": "category", "size": "category"}), target(x)


def test_pandas_categories_by_their_codes():
    data, y = frame()
    booster = lgb.LGBMRegressor(**SMALL).fit(data, y).booster_
    categories = {1: ["blue", "green", "grey", "red"], 2: [0, 1, 2, 3, 4]}
    assert read_booster(booster).reads.codes == categories
    assert read_booster(lgb.Booster(model_str=booster.model_to_string())).reads.codes == categories
    rows = data.copy()
    for known in ("colour", "size"):
        rows[known] = rows[known].cat.codes.replace(-1, np.nan).astype(float)
    found = scores(HardTrees.of(tree_ensemble(booster)), rows.to_numpy(np.float32))[:, 0]
    np.testing.assert_allclose(found, booster.predict(data), **TOLERANCE)


def test_pandas_category_with_one_value_keeps_the_places():
    data, y = frame()
    data.insert(0, "only", pd.Categorical(["one"] * len(data)))
    assert read_booster(lgb.LGBMRegressor(**SMALL).fit(data, y).booster_).reads.codes[0] == ["one"]


def test_no_pandas_categories():
    x = numbers()
    assert read_booster(fit(lgb.LGBMRegressor, x, target(x), categories=[2]).booster_).reads.codes == {}


def test_ambiguous_pandas_categories_are_rejected():
    data, y = frame()
    data["size"] = data["size"].cat.as_ordered()
    booster = lgb.LGBMRegressor(**SMALL).fit(data, y).booster_
    with pytest.raises(UnsupportedEstimator, match="2 pandas category columns, but 1 of its features"):
        read_booster(booster)


@pytest.mark.parametrize("read", [classifier, regressor])
def test_not_fitted(read):
    estimator = lgb.LGBMClassifier() if read is classifier else lgb.LGBMRegressor()
    with pytest.raises(NotFitted, match="call fit first"):
        read(estimator)


@pytest.mark.parametrize(
    ("estimator", "count", "message"),
    [
        (lgb.LGBMClassifier(**SMALL, objective="regression"), 2, "objective='regression'"),
        (lgb.LGBMClassifier(**SMALL, objective="multiclass", num_class=3), 2, "num_class=3 on 2 classes"),
        (lgb.LGBMClassifier(**SMALL, pred_early_stop=True), 2, "pred_early_stop=False"),
    ],
    ids=["values", "classes", "early"],
)
def test_rejected_by_name(estimator, count, message):
    x = numbers(missing=0.0)
    estimator.fit(x, classes(x, count))
    with pytest.raises(UnsupportedEstimator, match=message):
        (classifier if isinstance(estimator, lgb.LGBMClassifier) else regressor)(estimator)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(5, 120),
    missing=st.sampled_from([0.0, 0.05, 0.5]),
    zeros=st.sampled_from([0.0, 0.3, 0.9]),
    boosting=st.sampled_from(["gbdt", "dart", "rf"]),
    categories=st.sampled_from([[], [2], [2, 3]]),
    params=st.fixed_dictionaries(
        {
            "zero_as_missing": st.booleans(),
            "use_missing": st.booleans(),
            "num_leaves": st.integers(2, 40),
            "max_bin": st.sampled_from([2, 15, 255]),
            "extra_trees": st.booleans(),
            "max_cat_to_onehot": st.sampled_from([1, 4, 64]),
        }
    ),
)
def test_any_booster(seed, rows, missing, zeros, boosting, categories, params):
    x = numbers(rows, seed, missing, zeros)
    x[:, 3] = np.floor(np.abs(x[:, 3]) * 10)
    extra = {"bagging_freq": 1, "bagging_fraction": 0.7} if boosting == "rf" else {}
    data = lgb.Dataset(x, target(x, seed), categorical_feature=categories)
    booster = lgb.train(TRAIN | params | extra | {"objective": "regression", "boosting": boosting}, data, 4)
    assert_same_scores(booster, x)
