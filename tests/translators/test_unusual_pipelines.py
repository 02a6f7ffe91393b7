"""Fitted pipelines that the case table has not: their rows have values that few columns have."""

from __future__ import annotations

from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PowerTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.translators.scikit_learn_version import scikit_learn_before

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=(200, 4))
POSITIVE = np.abs(NUMBERS) + 1
LABEL, VALUE, GRADE = NUMBERS[:, 0] > 0, NUMBERS[:, 1], np.digitize(NUMBERS[:, 2], [-0.5, 0.5])
DIGITS = pd.DataFrame(NUMBERS, columns=["0", "1", "2", "3"])
INVENTED = pd.DataFrame(NUMBERS, columns=[f"Column_{position}" for position in range(4)])
SCALED = ColumnTransformer([("s", StandardScaler(), [0, 1])], remainder="passthrough")


@pytest.mark.parametrize("frame", [DIGITS, INVENTED], ids=["digits", "as LightGBM would call them"])
def test_rows_are_taken_by_the_names_of_columns_that_look_invented(frame: pd.DataFrame) -> None:
    source = make_pipeline(SCALED, LogisticRegression()).fit(frame, LABEL)
    net = windtunnel.compile(source)
    for rows in (frame, frame[frame.columns[::-1]], frame.assign(more=1.0)):
        np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), atol=1e-9)
    np.testing.assert_allclose(net.predict_proba(frame.to_numpy()), net.predict_proba(frame), atol=1e-9)


def test_a_column_of_texts_by_the_position_that_numpy_gives() -> None:
    rows = np.array([[f"a b{row % 3}", row % 5] for row in range(200)], dtype=object)
    texts = CountVectorizer(token_pattern=r"\w+")
    columns = ColumnTransformer([("t", texts, np.int64(0)), ("n", "passthrough", [1])])
    source = make_pipeline(columns, LogisticRegression()).fit(rows, LABEL)
    for some in (rows, rows[:1]):
        np.testing.assert_allclose(
            windtunnel.compile(source).predict_proba(some), source.predict_proba(some), atol=1e-9
        )


SOURCES: dict[str, tuple[Any, Any, Any]] = {
    "imputer of pandas' NA": (
        make_pipeline(SimpleImputer(missing_values=pd.NA, strategy="most_frequent"), OneHotEncoder()),
        pd.DataFrame({"c": pd.Series(["a", "b", None, np.nan] * 50, dtype=object)}),
        None,
    ),
    "the logarithm of an imputed 0": (
        make_pipeline(SimpleImputer(strategy="constant", fill_value=0), FunctionTransformer(np.log), Ridge()),
        POSITIVE,
        VALUE,
    ),
    "members that reject zeros": (
        BaggingRegressor(make_pipeline(PowerTransformer("box-cox"), Ridge())),
        POSITIVE,
        VALUE,
    ),
    "members that do not know zeros": (
        BaggingRegressor(make_pipeline(OneHotEncoder(), Ridge()), max_samples=200, bootstrap=False),
        RANDOM.integers(1, 4, (200, 2)),
        VALUE,
    ),
    "hashed texts, some missing": (
        ce.HashingEncoder(max_process=1),
        pd.DataFrame({"c": pd.Series(["a", "b", None, "c"] * 50, dtype="string")}),
        None,
    ),
    "hashed float32": (
        ce.HashingEncoder(cols=["c"], max_process=1),
        pd.DataFrame({"c": np.tile(np.array([1.1, 2.2], dtype=np.float32), 100)}),
        None,
    ),
    "means of booleans": (ce.CatBoostEncoder(cols=["c"]), pd.DataFrame({"c": NUMBERS[:, 3] > 0.5}), VALUE),
    "means of booleans among objects": (
        ce.CatBoostEncoder(cols=["c"]),
        pd.DataFrame({"c": pd.Series(NUMBERS[:, 3] > 0.5, dtype=object)}),
        VALUE,
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_outputs_are_those_of_the_source(name: str) -> None:
    source, rows, target = SOURCES[name]
    method = "predict" if hasattr(source, "predict") else "transform"
    net = windtunnel.compile(source.fit(rows, target))
    for some in (rows, rows[::-1], rows[:1]):
        expected = getattr(source, method)(some)
        expected = expected.toarray() if hasattr(expected, "toarray") else expected
        np.testing.assert_allclose(getattr(net, method)(some), np.asarray(expected, dtype=float), atol=1e-9)


def test_what_a_function_transformer_without_a_function_validates() -> None:
    source = make_pipeline(FunctionTransformer(validate=True), HistGradientBoostingClassifier(max_iter=2))
    net = windtunnel.compile(source.fit(NUMBERS, LABEL))
    bad = np.where(np.arange(200)[:, None] == 3, np.nan, NUMBERS)
    with pytest.raises(ValueError, match="NaN"):
        source.predict(bad)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.predict(bad)


def test_categories_that_are_no_text_or_number_are_rejected() -> None:
    rows = pd.DataFrame({"c": pd.cut(NUMBERS[:, 0], [-9, -1, 0, 1, 9]), "x": NUMBERS[:, 1]})
    source = HistGradientBoostingClassifier(max_iter=2).fit(rows, LABEL)
    with pytest.raises(UnsupportedEstimator, match="categories of type Interval in its input column 0"):
        windtunnel.compile(source)


def test_an_init_that_rejects_zeros_is_rejected() -> None:
    init = make_pipeline(PowerTransformer("box-cox"), Ridge())
    with pytest.raises(UnsupportedEstimator, match="starts from a Pipeline that rejects a row of zeros"):
        windtunnel.compile(GradientBoostingRegressor(n_estimators=2, init=init).fit(POSITIVE, VALUE))


@pytest.mark.skipif(not scikit_learn_before("1.8"), reason="scikit-learn 1.8 has no multi_class")
@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"multi_class": "ovr"}, GRADE),
        ({"multi_class": "ovr"}, LABEL),
        ({"multi_class": "multinomial"}, LABEL),
        ({"multi_class": "multinomial"}, GRADE),
        ({"solver": "liblinear"}, GRADE),
    ],
)
@pytest.mark.parametrize("estimator", [LogisticRegression, LogisticRegressionCV])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_old_ways_to_combine_classes(estimator: Any, options: dict[str, str], target: Any) -> None:
    source = estimator(**options).fit(NUMBERS, target)
    net = windtunnel.compile(source)
    np.testing.assert_allclose(net.predict_proba(NUMBERS), source.predict_proba(NUMBERS), atol=1e-9)
    np.testing.assert_allclose(net.decision_function(NUMBERS), source.decision_function(NUMBERS), atol=1e-9)


@pytest.mark.parametrize("last", [DecisionTreeRegressor(max_depth=4), Ridge()], ids=["tree", "ridge"])
@pytest.mark.parametrize("kind", ["numbers", "booleans"])
def test_an_imputer_of_texts_fills_what_is_read_as_numbers(last: Any, kind: str) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 3, 200) * 7.0 if kind == "numbers" else generator.random(200) < 0.7
    frame = pd.DataFrame({"k": pd.Series(values, dtype=float if kind == "numbers" else object)})
    frame["s"] = pd.Series(generator.choice(["u", "v"], 200), dtype=object)
    target = frame["k"].astype(float) * (1 + (frame["s"] == "u"))
    columns = make_column_transformer((OneHotEncoder(), [1]), remainder="passthrough", sparse_threshold=0)
    pipeline = make_pipeline(SimpleImputer(strategy="most_frequent"), columns, clone(last)).fit(frame, target)
    frame.loc[:20, "k"] = np.nan
    for make in (windtunnel.compile, windtunnel.translate):
        np.testing.assert_allclose(make(pipeline).predict(frame), pipeline.predict(frame), atol=1e-9)
