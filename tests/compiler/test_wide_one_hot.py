"""One-hot columns of many categories: no table of their square, and what is learned behind them."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.tables.category_table import CategoryTable, SumGroups
from windtunnel.modules.tables.one_hot import OneHot
from windtunnel.translators.categories import probe

USERS = 60


@pytest.fixture(autouse=True)
def tables_of_few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few dozen categories are many."""
    monkeypatch.setattr(probe, "CELLS", 1_000)


def frame(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    data = pd.DataFrame({"user": random.integers(0, USERS, rows).astype(str), "size": random.normal(size=rows)})
    data["shop"] = random.integers(0, USERS, rows) * 10
    data.loc[random.random(rows) < 0.1, "user"] = np.nan
    return data


def columns(**options: Any) -> Any:
    return make_column_transformer((OneHotEncoder(**options), ["user", "shop"]), (StandardScaler(), ["size"]))


ENCODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unknown ones ignored": {"handle_unknown": "ignore"},
    "first dropped": {"drop": "first"},
    "rare ones together": {"min_frequency": 5, "handle_unknown": "infrequent_if_exist"},
}


@cache
def fitted(encoder: str, kind: str) -> Any:
    rows = frame()
    label = rows["user"].isin([str(user) for user in range(20)]) * 1 + (rows["size"] > 1)
    model = LogisticRegression() if kind == "linear" else LGBMClassifier(n_estimators=3, min_child_samples=2, n_jobs=1)
    return make_pipeline(columns(**ENCODERS[encoder]), model).fit(rows, label)


def modules(net: windtunnel.Translation) -> list[Any]:
    return [step.module for step in net.program.steps]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("kind", ["linear", "trees"])
def test_outputs_are_those_of_the_source(encoder: str, kind: str) -> None:
    source, rows = fitted(encoder, kind), frame(seed=0)
    if "handle_unknown" in ENCODERS[encoder]:
        rows.loc[:9, "user"] = "never seen"
    expected = source.predict_proba(rows)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(rows), expected, 1e-9, 1e-9)
    if kind == "linear":
        np.testing.assert_allclose(windtunnel.translate(source).predict_proba(rows), expected, 1e-5, 1e-6)


def test_a_linear_model_behind_them_learns_a_row_per_category(tmp_path: Path) -> None:
    rows, net = frame(), windtunnel.translate(fitted("plain", "linear"))
    users, shops, size, total = modules(net)[-4:]
    assert [type(one) for one in (users, shops, size, total)] == [CategoryTable, CategoryTable, Linear, SumGroups]
    # Unknown and missing ones have rows too.
    assert users.rows.shape == (1 + 1 + USERS, 3) and users.rows.requires_grad and size.weight.shape == (3, 1)
    before, label = users.rows.detach().clone(), rows["size"].gt(0) * 1
    net.fit((rows, label), (rows, label), epochs=1, recipe="joint", residual=False, progress=False)
    met = (users.rows != before).any(dim=1)
    assert met[1:].all()
    net.save(tmp_path / "net")
    np.testing.assert_array_equal(windtunnel.load(tmp_path / "net").predict_proba(rows), net.predict_proba(rows))


def test_what_is_rejected_stays_rejected() -> None:
    source, rows = fitted("plain", "linear"), frame(3)
    rows["user"] = "never seen"
    with pytest.raises(ValueError, match="unknown categories"):
        source.predict(rows)
    for net in (windtunnel.compile(source), windtunnel.translate(source)):
        with pytest.raises(windtunnel.errors.BadInput, match="'user'"):
            net.predict(rows)


@pytest.mark.parametrize("backend", ["torchscript", "exported", "onnx"])
def test_columns_that_nothing_multiplies_are_ones_in_every_format(backend: str) -> None:
    encoder, rows = columns(handle_unknown="ignore").fit(frame()), frame(50, seed=1)
    net = windtunnel.compile(encoder, backend=backend)
    assert sum(isinstance(one, OneHot) for one in modules(net)) == 2
    got, expected = net.transform(rows), encoder.transform(rows)
    np.testing.assert_allclose(got, expected.toarray(), 1e-9, 1e-12)
    assert windtunnel.compile(encoder, dtype=torch.float32).transform(rows).dtype == encoder.transform(rows).dtype


def test_columns_without_weight_at_the_end_are_left_out() -> None:
    rows = frame().fillna({"user": "0"})
    value = rows["user"].isin([str(user) for user in range(20, 30)]) + 0.1 * rows["size"]
    source = make_pipeline(columns(handle_unknown="ignore"), Lasso(0.005)).fit(rows, value)
    weight = source[-1].coef_[: source[0].named_transformers_["onehotencoder"].categories_[0].size]
    assert weight.any() and not weight[-5:].any(), weight
    np.testing.assert_allclose(windtunnel.compile(source).predict(rows), source.predict(rows), 1e-9, 1e-9)


def test_rows_near_each_other_among_sparse_ones_are_rejected_by_name() -> None:
    rows = frame()
    source = make_pipeline(OneHotEncoder(), KNeighborsClassifier()).fit(rows[["user"]], rows["user"] == "1")
    with pytest.raises(windtunnel.errors.UnsupportedEstimator, match="sparse_output=False"):
        windtunnel.compile(source)
    within = make_pipeline(OneHotEncoder(), RadiusNeighborsRegressor(1.0)).fit(rows[["user"]], rows["size"])
    output = windtunnel.compile(within).predict(rows[["user"]])
    np.testing.assert_allclose(output, within.predict(rows[["user"]]), 1e-9, 1e-9)
