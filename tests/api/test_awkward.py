"""What goes wrong elsewhere without a word: odd categories, odd forms of rows, odd shapes of models."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import windtunnel
from windtunnel import RareCategories, TwoHotEncoder
from windtunnel.errors import BadInput, UnsupportedEstimator

ENCODERS: dict[str, Callable[[], Any]] = {
    "one-hot": lambda: OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    "ordinal": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2),
    "target": lambda: TargetEncoder(cv=2, random_state=0),
    "two-hot": TwoHotEncoder,
    "rare, one-hot": lambda: make_pipeline(RareCategories(min_count=3), OneHotEncoder(handle_unknown="ignore")),
    "ce one-hot": ce.OneHotEncoder,
    "ce ordinal": ce.OrdinalEncoder,
    "ce binary": ce.BinaryEncoder,
    "ce target": ce.TargetEncoder,
    "ce count": ce.CountEncoder,
    "ce james-stein": ce.JamesSteinEncoder,
    "ce hashing": lambda: ce.HashingEncoder(n_components=4, max_process=1),
}
MANY = 12
CATEGORIES: dict[str, list[Any]] = {
    "empty strings and blanks": ["", " ", "a", "a "],
    "Unicode": ["Ünï", "☃", "e\u0301", "\u00e9", "日本"],
    "texts that look like others": ["1", "1.0", "True", "nan", "None"],
    "negative zero": [0.0, -0.0, 1.5, -1.5],
    "large integers": [2**53, 2**53 + 2, -(2**40), 0],
    "booleans": [True, False],
    "NaN": ["a", "b", np.nan],
    "None": ["a", "b", None],
    "numbers with NaN": [1.0, 2.0, np.nan],
    "nothing but one value": ["only"],
}


def asked(source: Any, method: str, rows: Any) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = getattr(source, method)(rows)
    return np.asarray(output.toarray() if sparse.issparse(output) else output).astype(float)


def column(values: list[Any], more: Any = None) -> pd.DataFrame:
    data = values * MANY if more is None else [*values, more]
    dtype = object if any(isinstance(value, str) or value is None for value in data) else None
    return pd.DataFrame({"c": pd.Series(data, dtype=dtype), "n": np.arange(len(data)) % 5})


@pytest.mark.parametrize("kind", CATEGORIES)
@pytest.mark.parametrize("name", ENCODERS)
def test_categories(name: str, kind: str) -> None:
    if (name, kind) == ("ce hashing", "NaN"):
        pytest.skip("in an object column a missing value is taken as None: see the notes of HashingEncoder")
    values = CATEGORIES[kind]
    rows = column(values)
    y = np.arange(len(rows)) % 3 % 2
    encoder = ENCODERS[name]()
    given = rows[["c"]]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = encoder.fit(given, y)
    except (TypeError, ValueError):
        pytest.skip("the source does not take these categories")
    net = windtunnel.compile(source)
    # Unknown ones are of the same kind as the known ones.
    strange = "never seen" if any(isinstance(value, str) for value in values) else 77
    for other in (given, given[:1], given[::-1], column(values, strange)[["c"]]):
        try:
            want = asked(source, "transform", other)
        except (TypeError, ValueError):
            with pytest.raises(BadInput):
                net.transform(other)
            continue
        np.testing.assert_allclose(asked(net, "transform", other), want, 1e-9, 1e-9)


LONG_IDS = {"far apart": 2**61 + 10**15 * np.arange(6), "rounded to the same": 2**53 + np.arange(5)}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("ids", LONG_IDS)
@pytest.mark.parametrize("name", ENCODERS)
def test_long_ids_as_floats_are_compared_as_the_source_compares_them(name: str, ids: str, missing: bool) -> None:
    """A table whose column of ids has a missing one gives all of them as float64."""
    known = pd.DataFrame({"c": np.tile(LONG_IDS[ids], MANY)})
    rows = known.astype(float)
    if missing:
        rows.loc[0, "c"] = np.nan
    source = ENCODERS[name]().fit(known, np.arange(len(known)) % 3 % 2)
    wanted = asked(source, "transform", rows)
    np.testing.assert_allclose(asked(windtunnel.compile(source), "transform", rows), wanted, 1e-9, 1e-9)


def polars_table(values: list[int | None]) -> Any:
    return pytest.importorskip("polars").DataFrame({"c": values})


@pytest.mark.parametrize(
    "table",
    [
        lambda values: pa.table({"c": pa.array(values, pa.int64())}),
        lambda values: pa.record_batch({"c": pa.array(values, pa.int64())}),
        lambda values: pa.table({"c": pa.array(values, pa.uint64())}),
        polars_table,
        lambda values: {"c": values},
        lambda values: {"c": tuple(values)},
        lambda values: {"c": pa.array(values)},
        lambda values: {"c": polars_table(values)["c"]},
        lambda values: pa.Table.from_arrays([pa.array(values)] * 2 + [pa.nulls(len(values))], names=["c", "d", "d"]),
        lambda values: [{"c": value} for value in values],
    ],
)
@pytest.mark.parametrize("rows", [2, 100])
def test_a_missing_id_changes_no_other_one(table: Any, rows: int) -> None:
    known = pd.DataFrame({"c": np.tile(LONG_IDS["rounded to the same"], MANY)})
    net = windtunnel.compile(OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(known))
    values = [*LONG_IDS["rounded to the same"].tolist(), None] * rows
    wanted = net.transform(pd.DataFrame({"c": pd.array(values, "Int64")}))
    assert (wanted[:5] == np.eye(5)).all()
    np.testing.assert_array_equal(net.transform(table(values)), wanted)


@pytest.mark.parametrize("name", ["one-hot", "ordinal", "two-hot", "ce ordinal", "ce target"])
def test_integers_and_texts_in_one_column_are_given_right_or_rejected(name: str) -> None:
    rows = pd.DataFrame({"c": pd.Series([1, "1", 2, "b"] * MANY, dtype=object)})
    y = np.arange(len(rows)) % 3 % 2
    try:
        source = ENCODERS[name]().fit(rows, y)
    except TypeError:
        pytest.skip("the source does not take these categories")
    net = windtunnel.compile(source)
    np.testing.assert_allclose(asked(net, "transform", rows), asked(source, "transform", rows), 1e-9)


@pytest.mark.parametrize("name", ["one-hot", "ordinal", "two-hot", "ce ordinal"])
def test_dates_are_rejected_by_name(name: str) -> None:
    source = ENCODERS[name]().fit(pd.DataFrame({"when": ["a", "b"] * MANY}))
    with pytest.raises(BadInput, match="'when' holds .*datetime"):
        windtunnel.compile(source).transform(pd.DataFrame({"when": pd.to_datetime(["2026-11-21"])}))


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "Fortran order": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "CSR": sparse.csr_matrix,
    "CSC array": sparse.csc_array,
    "lists": np.ndarray.tolist,
}


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.setflags(write=False)
    return X


@pytest.mark.parametrize("form", [*FORMS.values(), read_only], ids=[*FORMS, "read-only"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: LogisticRegression(),
        lambda: RandomForestClassifier(5, random_state=0),
        lambda: LGBMClassifier(n_estimators=5, min_child_samples=3, verbosity=-1),
    ],
    ids=["logistic", "forest", "lightgbm"],
)
def test_forms_of_rows(make: Callable[[], Any], form: Callable[[np.ndarray], Any]) -> None:
    X = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32).astype(np.float64).round(2)
    source = make().fit(X, X[:, 0] > 0)
    given = form(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = windtunnel.compile(source).predict_proba(given)
    np.testing.assert_allclose(
        got, source.predict_proba(np.asarray(form(X).todense() if sparse.issparse(given) else given)), 1e-6
    )


LABELS: dict[str, list[Any]] = {
    "texts": ["no", "yes"],
    "negative": [-1, 1],
    "far apart": [-100, 7, 3000],
    "booleans": [False, True],
    "floats": [0.5, 1.5],
    "objects": ["a", "b", "c"],
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize(
    "make",
    [LogisticRegression, GaussianNB, lambda: DecisionTreeClassifier(max_depth=3),
     lambda: GradientBoostingClassifier(n_estimators=3), lambda: HistGradientBoostingClassifier(max_iter=3),
     lambda: LGBMClassifier(n_estimators=3, min_child_samples=3, verbosity=-1)],
    ids=["logistic", "naive bayes", "tree", "boosting", "histogram boosting", "lightgbm"],
)  # fmt: skip
def test_labels(make: Callable[[], Any], kind: str) -> None:
    X = np.random.default_rng(0).normal(size=(90, 3))
    labels = np.array(LABELS[kind], dtype=object if kind == "objects" else None)
    y = labels[np.digitize(X[:, 0], [0.0] if len(labels) == 2 else [-0.4, 0.4])]
    if kind == "floats":
        with pytest.raises(ValueError, match="continuous"):
            LogisticRegression().fit(X, y)
        return
    source = make().fit(X, y)
    net = windtunnel.compile(source)
    got, want = net.predict(X), source.predict(X)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), 1e-9, 1e-12)


SHAPES: dict[str, tuple[Callable[[], Any], int]] = {
    "a stump without a split": (lambda: DecisionTreeRegressor(min_samples_leaf=60), 3),
    "one tree": (lambda: LGBMRegressor(n_estimators=1, verbosity=-1), 3),
    "one feature": (lambda: ExtraTreesRegressor(3, random_state=0), 1),
    "depth 30": (lambda: DecisionTreeRegressor(max_depth=30, random_state=0), 2),
    "two thousand trees": (
        lambda: LGBMRegressor(n_estimators=2000, num_leaves=4, min_child_samples=5, verbosity=-1),
        3,
    ),
    "constant columns": (lambda: make_pipeline(StandardScaler(), ExtraTreesRegressor(3, random_state=0)), 0),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_of_models(kind: str) -> None:
    make, width = SHAPES[kind]
    random = np.random.default_rng(0)
    rows = 40 if kind == "depth 30" else 100
    X = random.normal(size=(rows, width)) if width else np.full((rows, 2), 3.0)
    # Where each value outweighs all the smaller ones, the best split peels off one row at a time.
    y = 1e15 * 3.0 ** -np.argsort(np.argsort(X[:, 0])) if kind == "depth 30" else random.normal(size=rows)
    source = make().fit(X, y)
    if kind == "depth 30":
        assert source.get_depth() == 30
    net = windtunnel.compile(source)
    for given in (X, X[:1]):
        np.testing.assert_allclose(net.predict(given), source.predict(given), 1e-9, 1e-12)
    with pytest.raises(BadInput, match="0 rows"):
        net.predict(X[:0])


def test_values_on_a_threshold_and_beside_it() -> None:
    X = np.random.default_rng(0).normal(size=(200, 1))
    for source in (
        DecisionTreeRegressor(max_depth=6),
        LGBMRegressor(n_estimators=5, min_child_samples=2, verbosity=-1),
    ):
        source.fit(X, np.sin(5 * X[:, 0]))
        thresholds = (
            source.tree_.threshold[source.tree_.feature >= 0]
            if hasattr(source, "tree_")
            else np.array([float(t) for tree in source.booster_.model_to_string().split("threshold=")[1:]
                           for t in tree.splitlines()[0].split()])
        )  # fmt: skip
        beside = [np.nextafter(thresholds, way) for way in (-np.inf, np.inf)]
        rows = np.concatenate([thresholds, *beside, thresholds.astype(np.float32)])[:, None]
        np.testing.assert_array_equal(windtunnel.compile(source).predict(rows), source.predict(rows))
        single = rows.astype(np.float32)
        got = windtunnel.compile(source, dtype="float32").predict(single)
        np.testing.assert_allclose(got, source.predict(single), 1e-6)


def test_categories_beyond_ascii_in_xgboost() -> None:
    """XGBoost cuts them short in what it keeps, where nobody can tell what they were."""
    xgboost = pytest.importorskip("xgboost")
    X = pd.DataFrame({"city": pd.Categorical(["Koeln", "Łódź"] * 50), "n": np.arange(100.0)})
    source = xgboost.XGBClassifier(n_estimators=3, max_depth=2, enable_categorical=True)
    with pytest.raises(UnsupportedEstimator, match="beyond ASCII"):
        windtunnel.compile(source.fit(X, np.arange(100) % 2))
    plain = X.assign(city=X["city"].cat.rename_categories({"Łódź": "Lodz"}))
    net = windtunnel.compile(source.fit(plain, np.arange(100) % 2))
    np.testing.assert_allclose(net.predict_proba(plain), source.predict_proba(plain), 1e-6)


def half_surrogate_names() -> tuple[Any, pd.DataFrame]:
    """A pipeline over columns whose names are half a surrogate pair, and its rows."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame({0: random.choice([0.5, 1.0, 2.0], 60), 1: random.choice(["Oslo", "Rome"], 60)})
    rows.columns = pd.Index(["\ud800", "b\udc00"], dtype=object)
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    return pipeline.fit(rows, random.random(60) < 0.3 + 0.2 * rows["\ud800"]), rows


@pytest.mark.parametrize("backend", ["native", "torch", "torchscript", "exported", "onnx"])
def test_names_that_are_half_a_surrogate_pair(backend: str) -> None:
    pipeline, rows = half_surrogate_names()
    net = windtunnel.compile(pipeline, backend=backend)
    for queried in (rows, rows.iloc[:, ::-1], rows.to_dict("list"), rows.to_dict("records")):
        np.testing.assert_allclose(net.predict_proba(queried), pipeline.predict_proba(rows), atol=1e-9)


def test_names_that_are_half_a_surrogate_pair_in_a_translation() -> None:
    pipeline, rows = half_surrogate_names()
    net = windtunnel.translate(pipeline, calibrate=rows)
    assert list(net.explain(rows.iloc[:5]).to_frame()) == ["base", "\ud800", "b\udc00", "score"]
    net.fit((rows, rows["b\udc00"] == "Oslo"), epochs=1, progress=False)
    assert net.report().to_dict()["history"]["metric"] == net.history.metric
    with pytest.raises(BadInput, match=r"columns missing: '\\ud800'"):
        net.predict(rows.iloc[:, [1]])


@pytest.mark.parametrize("model", [HistGradientBoostingClassifier(max_iter=3), LogisticRegression()])
def test_names_that_are_half_a_surrogate_pair_before_an_imputer(model: Any) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)))
    rows.columns, rows.iloc[::7, 0] = pd.Index(["\ud800", "b\udc00"], dtype=object), np.nan
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), model).fit(rows, rows["b\udc00"] > 0)
    for net in (windtunnel.compile(pipeline), windtunnel.translate(pipeline, calibrate=rows)):
        np.testing.assert_allclose(net.predict_proba(rows), pipeline.predict_proba(rows), atol=1e-9)
