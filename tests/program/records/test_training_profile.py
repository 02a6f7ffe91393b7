"""The profile of the training rows: counts, drift, background rows, and its way through a file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.program.records.training_profile import ColumnProfile


def table(rows: int = 2000, seed: int = 0, shift: float = 0.0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": generator.lognormal(size=rows) + shift, "k": generator.poisson(2.0, rows).astype(float)})
    frame["city"] = generator.choice(["Bonn", "Oslo", "Rome"], rows, p=[0.6, 0.3, 0.1])
    frame.loc[generator.random(rows) < 0.1, "x"] = np.nan
    return frame


@pytest.fixture(scope="module")
def net() -> windtunnel.Translation:
    X = table()
    parts = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    model = LGBMClassifier(n_estimators=5, verbosity=-1, n_jobs=1)
    return windtunnel.translate(make_pipeline(parts, model).fit(X, X.k > 1), calibrate=X)


def test_counts_are_those_of_the_calibration_rows(net: windtunnel.Translation) -> None:
    X, profile = table(), net.profile
    assert profile is not None and profile.rows == len(X)
    x, k, city = profile.columns
    assert x.counts[0] == X.x.isna().sum() and x.counts.sum() == len(X)
    inside = x.counts[1:-1].numpy()
    np.testing.assert_allclose(inside, (len(X) - int(x.counts[0])) / 20, atol=1)
    assert k.means[1:].tolist() == [*map(float, k.edges), pytest.approx(X.k[X.k > float(k.edges[-1])].mean())]
    assert city.counts.tolist() == [0, 0, *X.city.value_counts()[["Bonn", "Oslo", "Rome"]]]


def test_drift_is_the_population_stability_index(net: windtunnel.Translation) -> None:
    assert net.profile is not None
    same = net.profile.drift(net.encoder, net.hosts, net.encode(table(seed=1)))
    assert not any(column.drifts for column in same)
    moved = table(seed=2)
    moved["city"] = np.where(moved.city == "Rome", "Oslo", moved.city)
    moved.loc[:400, "city"] = "Lima"
    drift = net.profile.drift(net.encoder, net.hosts, net.encode(moved))
    assert [column.column for column in drift if column.drifts] == ["city"]
    values = ["Bonn", "Oslo", "Rome", "Lima"]
    old, new = (np.array([(X.city == city).sum() for city in values]) for X in (table(), moved))
    p, q = ((counts + 0.5) / (counts.sum() + 2) for counts in (old, new))
    assert drift[0].index == pytest.approx(((q - p) * np.log(q / p)).sum())


def calendar(dates: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({f"{name} (month)": date.dt.month for name, date in dates.items()}).astype(float)


def test_columns_of_a_step_on_the_host_have_drift_and_names() -> None:
    X = table()
    X["paid"] = pd.date_range("2024-01-01", periods=len(X), freq="4h")
    parts = make_column_transformer((FunctionTransformer(calendar), ["paid"]), (StandardScaler(), ["k"]))
    y = X.paid.dt.month + X.k > 8
    net = windtunnel.translate(make_pipeline(parts, LogisticRegression()).fit(X, y), calibrate=X)
    assert net.profile is not None
    drift = net.profile.drift(net.encoder, net.hosts, net.encode(X[X.paid.dt.month == 3]))
    assert [column.column for column in drift if column.drifts] == ["paid (month)"]
    explanation = net.explain(X[:5])
    assert explanation.names == ["k", "paid (month)"]
    assert explanation.data["paid (month)"].tolist() == [1.0] * 5
    np.testing.assert_allclose(explanation.values.sum(axis=1) + explanation.base, net.scores(X[:5]), atol=1e-6)


def test_chance_is_the_mean_index_without_drift() -> None:
    generator = np.random.default_rng(0)
    profile = ColumnProfile.of_numbers(0, generator.normal(size=1000))
    drifts = [profile.drift("x", generator.normal(size=200)) for _ in range(300)]
    assert np.mean([drift.index for drift in drifts]) == pytest.approx(drifts[0].chance, rel=0.15)


def test_rare_categories_drift_as_one() -> None:
    generator = np.random.default_rng(0)
    profile = ColumnProfile.of_ids(0, 2 + generator.integers(0, 1000, 5000), 1002)
    assert not profile.drift("user", 2 + generator.integers(0, 1000, 500)).drifts
    assert profile.drift("user", np.zeros(500, dtype=np.int64)).drifts


def test_background_rows_have_the_frequencies_and_means_of_the_profile(net: windtunnel.Translation) -> None:
    assert net.profile is not None
    X, rows = net.encode(table()), net.profile.background(net.encoder)
    assert rows is not None
    np.testing.assert_allclose(rows.numbers.nanmean(dim=0), X.numbers.nanmean(dim=0), rtol=0.02)
    missing, expected = (batch.numbers.isnan().double().mean(dim=0) for batch in (rows, X))
    np.testing.assert_allclose(missing, expected, atol=1e-3)
    for value in range(5):
        drawn, expected = ((batch.ids == value).double().mean() for batch in (rows, X))
        np.testing.assert_allclose(drawn, expected, atol=1e-3)


def test_a_file_keeps_the_profile_and_no_row(net: windtunnel.Translation, tmp_path) -> None:
    net.save(tmp_path / "model.windtunnel")
    loaded = windtunnel.load(tmp_path / "model.windtunnel")
    assert loaded.profile is not None and net.profile is not None
    for old, new in zip(net.profile.columns, loaded.profile.columns, strict=True):
        assert old.column == new.column
        for name in ("counts", "edges", "means"):
            assert (getattr(old, name) == getattr(new, name)).all()
    assert all(len(column.counts) <= 23 for column in loaded.profile.columns)


def test_fit_replaces_the_profile_of_the_calibration_rows() -> None:
    X = table()[["k", "city"]]
    parts = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["k"]))
    net = windtunnel.translate(make_pipeline(parts, LogisticRegression()).fit(X, X.k > 1), calibrate=X[:100])
    net.fit((X[:1500], X.k[:1500] > 1), (X[1500:], X.k[1500:] > 1), epochs=1, progress=False)
    assert net.profile is not None and net.profile.rows == 1500


def test_a_column_that_is_encoded_twice_is_drawn_once() -> None:
    X = table()[["k", "city"]]
    parts = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["k"]),
        (OneHotEncoder(min_frequency=300, handle_unknown="infrequent_if_exist"), ["city"]),
        (OneHotEncoder(), ["city"]),
        ("passthrough", ["k"]),
    )
    net = windtunnel.translate(make_pipeline(parts, LogisticRegression()).fit(X, X.k > 1), calibrate=X)
    assert net.profile is not None
    drawn = net.profile.background(net.encoder)
    assert drawn is not None
    seen = {(*numbers, *ids) for numbers, ids in zip(*(block.tolist() for block in net.encode(X)), strict=True)}
    kinds = {(*numbers, *ids) for numbers, ids in zip(*(block.tolist() for block in drawn), strict=True)}
    by_column = [{row[:2] for row in seen}, {row[:2] for row in kinds}]
    assert by_column[1] <= by_column[0] and len(drawn.numbers.unique()) > 4
    explanation = net.explain(X[:1])
    np.testing.assert_allclose(explanation.base, net.scores(X).mean(), atol=0.02)
