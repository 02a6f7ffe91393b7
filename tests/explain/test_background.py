"""Explanations without ``background=``: rows drawn from the profile of the training rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.errors import BadInput


def table() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.lognormal(size=1500), "b": rng.normal(size=1500), "city": rng.choice(list("xyz"), 1500)})
    X["b"] += X["a"]  # columns depend on each other
    return X, (X["a"] - X["b"] + (X["city"] == "x") + 0.1 * rng.normal(size=1500)).to_numpy()


def test_the_base_of_a_linear_model_is_its_mean_over_the_training_rows(tmp_path) -> None:
    X, y = table()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts = make_column_transformer((OneHotEncoder(), ["city"]), (numbers, ["a", "b"]))
    source = make_pipeline(parts, Ridge()).fit(X, y)
    windtunnel.translate(source, calibrate=X).save(tmp_path / "model.windtunnel")
    net = windtunnel.load(tmp_path / "model.windtunnel")
    explanation = net.explain(X[:1])
    assert "drawn column by column" in explanation.method
    np.testing.assert_allclose(explanation.base, source.predict(X).mean(), atol=0.01)
    against_rows = net.explain(X[:1], X)
    np.testing.assert_allclose(explanation.values, against_rows.values, atol=0.01)
    np.testing.assert_allclose(explanation.base + explanation.values.sum(axis=1), net.scores(X[:1]), atol=1e-5)


def test_a_single_row_of_a_sampled_model() -> None:
    X, y = table()
    net = windtunnel.translate(make_pipeline(PCA(2), LGBMRegressor(n_estimators=5, verbosity=-1)).fit(
        X[["a", "b"]].to_numpy(), y), calibrate=X[["a", "b"]].to_numpy())  # fmt: skip
    explanation = net.explain(X[["a", "b"]][:1].to_numpy())
    assert explanation.standard_error is not None and "drawn column by column" in explanation.method


def test_given_background_rows_come_first() -> None:
    X, y = table()
    net = windtunnel.translate(make_pipeline(StandardScaler(), Ridge()).fit(X[["a", "b"]], y), calibrate=X[["a", "b"]])
    assert "against the mean of 7 background rows" in net.explain(X[["a", "b"]][:3], X[["a", "b"]][:7]).method


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_forest_of_values_under_a_residual_model_is_exact() -> None:
    X, y = table()
    parts = make_column_transformer((OneHotEncoder(sparse_output=False), ["city"]), remainder="passthrough")
    source = make_pipeline(parts, RandomForestRegressor(5, max_depth=2, random_state=0)).fit(X[:700], y[:700])
    net = windtunnel.translate(source, calibrate=X)
    net.refresh((X[700:], y[700:]))
    assert net.history is not None and net.history.kept is not None and net.history.kept.name != "translation"
    explanation = net.explain(X[:20])
    assert explanation.standard_error is None
    np.testing.assert_allclose(explanation.base + explanation.values.sum(axis=1), net.scores(X[:20]), atol=1e-5)


def test_a_background_that_no_part_needs_is_checked() -> None:
    X, y = table()
    net = windtunnel.translate(LGBMRegressor(n_estimators=3, verbosity=-1).fit(X[["a", "b"]], y))
    with pytest.raises(BadInput, match="background has 1 rows"):
        net.explain(X[["a", "b"]][:3], X[["a", "b"]][:1])
    with pytest.raises(BadInput, match="'b'"):
        net.explain(X[["a", "b"]][:3], X[["a"]])


def test_rows_that_predict_rejects_are_not_explained() -> None:
    X, y = (table()[0][["a", "b"]], table()[1])
    net = windtunnel.translate(make_pipeline(StandardScaler(), PCA(2), LGBMRegressor(verbosity=-1)).fit(X, y))
    for rows, background in ((X[:2] * np.nan, None), (X[:2], X[:9] * np.nan)):
        with pytest.raises(BadInput, match="'a'"):
            net.explain(rows, background)
