"""Rows that the source rejects, and texts and numbers that look missing, in files of every format."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from export_cases import (
    FORMATS,
    assert_close,
    assert_the_same_errors,
    frame,
    logistic,
    opened,
    small,
    windtunnel_columns,
)
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
)
from sklearn.tree import DecisionTreeClassifier

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.export import serving


@cache
def rejecting_categories() -> windtunnel.Translation:
    rows = frame().fillna({"city": "none"})
    pipeline = make_pipeline(windtunnel_columns(OneHotEncoder(), ["city", "code"]), LogisticRegression())
    return windtunnel.compile(pipeline.fit(rows, rows["size"] > 0))


@pytest.fixture(scope="module")
def rejecting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rejecting")


@cache
def rejecting_file(format: str, folder: Path) -> serving.Model:
    return opened(rejecting_categories(), folder, format)


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_errors_in_every_format(format: str, folder: Path) -> None:
    assert_the_same_errors(small(format, folder))


@pytest.mark.parametrize("format", FORMATS)
def test_rejected_categories(format: str, rejecting_folder: Path) -> None:
    rows = frame().fillna({"city": "none"})
    model = rejecting_file(format, rejecting_folder)
    assert model.predict(rows).shape == (200,)
    for name, value in (("city", "Paris"), ("city", None), ("code", 3.25), ("code", None)):
        with pytest.raises(serving.BadRows, match="encoder rejects"):
            model.predict(rows.astype(object).assign(**{name: value}).to_dict("list"))


REJECTING: dict[str, Any] = {
    "forest": lambda: RandomForestClassifier(3, max_depth=3, random_state=0),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=3, random_state=0),
    "ada boost": lambda: AdaBoostClassifier(n_estimators=3, random_state=0),
    "a tree of squares": lambda: make_pipeline(PolynomialFeatures(2), DecisionTreeClassifier(max_depth=3)),
    "splines": lambda: make_pipeline(SplineTransformer(n_knots=3, extrapolation="constant"), LogisticRegression()),
    "bins": lambda: make_pipeline(KBinsDiscretizer(3, strategy="uniform"), LogisticRegression()),
    "quantiles": lambda: make_pipeline(QuantileTransformer(n_quantiles=4), LogisticRegression()),
}
"""Models whose scores are finite whatever reaches them."""


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", REJECTING)
def test_rejected_numbers(name: str, format: str, tmp_path: Path) -> None:
    rows = frame()[["size", "code"]]
    source = REJECTING[name]().fit(rows, rows["size"] > 0)
    net, rejected = windtunnel.compile(source), 0
    model = opened(net, tmp_path, format)
    for value in (0.5, 1e15, 1e30, np.nan, np.inf, -np.inf, 1e300, -1e300):
        given = rows[:3].copy()
        given.iloc[1, 0] = value
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = source.predict_proba(given)
        except ValueError:
            rejected += 1
            with pytest.raises(BadInput, match="1 of 3 rows have no finite score"):
                net.predict_proba(given)
            for method in ("scores", "predict_proba", "predict"):
                with pytest.raises(serving.BadRows, match="1 of 3 rows (scored at once )?have no finite score"):
                    getattr(model, method)(given)
        else:
            assert_close(model.predict_proba(given), wanted, 1e-9)
            assert_close(net.predict_proba(given), wanted, 1e-9)
    assert rejected


def test_what_cannot_raise_gives_nan_and_minus_one(rejecting_folder: Path) -> None:
    net = rejecting_categories()
    rejecting_file("onnx", rejecting_folder)
    session = onnxruntime.InferenceSession(rejecting_folder / "net.onnx")
    cities = ["Oslo", "Paris", "<missing>", "Oslo", "Oslo", "", "Oslo\0"]
    codes = [2.0, 2.0, 2.0, 3.25, np.nan, 7.5, 2.0]
    scores, chances, at = session.run(None, {"city": np.array(cities, object), "code": np.array(codes)})
    wrong = [1, 2, 3, 4, 6]
    assert np.isnan(scores[wrong]).all() and np.isnan(chances[wrong]).all() and (at[wrong] == -1).all()
    fine = pd.DataFrame({"city": ["Oslo", ""], "code": [2.0, 7.5]})
    np.testing.assert_allclose(scores[[0, 5]], net.scores(fine), 1e-9)
    assert np.array_equal(net.classes_[at[[0, 5]]], net.predict(fine))


def test_missing_texts_in_onnx(folder: Path) -> None:
    net = logistic()
    small("onnx", folder)
    session = onnxruntime.InferenceSession(folder / "net.onnx")
    numbers = {name: np.full(6, 2.0) for name in ("size", "price", "code")}
    cities = np.array(["<missing>", "Paris", None, np.nan, "None", pd.NA], object)
    (scores,) = session.run(["scores"], {**numbers, "city": cities})
    np.testing.assert_allclose(scores[:2], net.scores(pd.DataFrame({**numbers, "city": [None, "Paris"] * 3})[:2]))
    assert np.isnan(scores[2:]).all()


@pytest.mark.parametrize("format", FORMATS)
def test_texts_that_look_like_missing_ones(format: str, tmp_path: Path) -> None:
    values = np.array(["Oslo", "nan", None, "Rome"] * 10, dtype=object)
    X, y = pd.DataFrame({"city": values, "more": np.arange(40.0)}), values == None  # noqa: E711  of each
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    pipeline = make_pipeline(encode, LogisticRegression(C=100)).fit(X, y)
    model = opened(windtunnel.compile(pipeline), tmp_path, format)
    texts = ["<missing>", "None", "nan", "<NA>", None, "Paris", "Oslo"]
    rows = pd.DataFrame({"city": np.array(texts, dtype=object), "more": 1.0})
    np.testing.assert_allclose(np.asarray(model.predict_proba(rows)), pipeline.predict_proba(rows), 1e-9)


@pytest.mark.parametrize("format", FORMATS)
def test_none_is_a_category_where_the_pipeline_says_so(format: str, tmp_path: Path) -> None:
    values = np.array(["a", "b", None, np.nan, "b", "b"] * 10, dtype=object)
    X = pd.DataFrame({"city": pd.Series(values, dtype=object)})
    encoder = OneHotEncoder(handle_unknown="ignore")
    pipeline = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder, LogisticRegression(C=100))
    y = [value is None or value == "a" for value in values]
    net = windtunnel.compile(pipeline.fit(X, y))
    model = opened(net, tmp_path, format)
    probabilities = np.asarray(model.predict_proba(X))
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(X), 1e-9)
    assert abs(probabilities[2, 1] - probabilities[3, 1]) > 0.5  # None and NaN
    np.testing.assert_array_equal(probabilities, model.predict_proba({"city": values.tolist()}))


@pytest.mark.parametrize("format", ["torchscript", "exported", "onnx"])
def test_an_infinite_score_is_an_output(format: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    source = LogisticRegression().fit(rows, rows[:, 0] > 0)
    far = np.sign(source.coef_) * np.array([[1e308], [-1e308]])
    path = tmp_path / ("model" + {"torchscript": ".ts", "exported": ".pt2", "onnx": ".onnx"}[format])
    windtunnel.compile(source).export(path, format=format)
    model = serving.load(path, trusted=True)
    given = {name: far[:, int(name)] for name in model.number_columns}
    with np.errstate(over="ignore"):
        assert np.isinf(source.decision_function(far)).all()
        np.testing.assert_array_equal(np.asarray(model.predict_proba(given)), source.predict_proba(far))
        assert [bool(at) for at in model.predict(given)] == source.predict(far).tolist()
    with pytest.raises(serving.BadRows, match="no finite score"):
        model.predict(given | {"1": np.array([np.nan, 0.0])})
