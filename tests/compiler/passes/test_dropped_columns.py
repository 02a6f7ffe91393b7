"""Columns that no step reads: rows are rejected where the source rejects them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier
from wide_table import FRAME, bins, few_trees, one_hot, probabilities

import windtunnel
from windtunnel.errors import BadInput
from windtunnel.export import serving
from windtunnel.program.non_finite import takes_missing

DROPPED: dict[str, Callable[[], Any]] = {
    "variance": lambda: VarianceThreshold(9),
    "trees": lambda: SelectFromModel(DecisionTreeClassifier(max_depth=1), threshold=0.5),
    "columns": lambda: make_column_transformer(("passthrough", [-2])),
}


@pytest.mark.parametrize("encoder", [OrdinalEncoder(), OneHotEncoder(drop="first", sparse_output=False), one_hot()])
@pytest.mark.parametrize("name", DROPPED)
def test_categories_of_dropped_columns_are_rejected_as_the_source_does(name: str, encoder: Any, tmp_path: Path) -> None:
    files = FILES if name == "columns" else {}
    rows = FRAME[["c0", "c1", "n1", "n0"]].assign(c1="one")
    encode = make_column_transformer((encoder, ["c0", "c1"]), remainder="passthrough")
    source = make_pipeline(encode, DROPPED[name](), LogisticRegression()).fit(rows, FRAME["n1"] > 0)
    given = [rows[:3].assign(c0=pd.Series(["a", odd, odd], dtype=object)) for odd in ("zzz", None, "b")]
    given += [rows[:3].assign(c1=pd.Series(["one", odd, odd], dtype=object)) for odd in ("zzz", None)]
    assert_rejected_everywhere(source, given, tmp_path, files)


@pytest.mark.parametrize("step", [StandardScaler(), bins(encode="ordinal"), SplineTransformer(3)])
@pytest.mark.parametrize("name", DROPPED)
def test_numbers_of_dropped_columns_are_rejected_as_the_source_does(name: str, step: Any, tmp_path: Path) -> None:
    rows = FRAME[["n4", "n1", "n0"]]
    source = make_pipeline(make_column_transformer((step, ["n4"]), remainder="passthrough"), DROPPED[name](), boosted())
    given = [rows[:3].assign(n4=[0.0, odd, 1.0]) for odd in (np.nan, np.inf, 99.0)]
    files = {"torchscript": FILES["torchscript"]} if name == "columns" else {}
    assert_rejected_everywhere(source.fit(rows, FRAME["n1"] > 0), given, tmp_path, files)


def boosted() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=2, max_depth=1)


FILES = {"torchscript": "net.ts", "exported": "net.pt2", "onnx": "net.onnx"}


def assert_rejected_everywhere(source: Any, rows: list[pd.DataFrame], folder: Path, files: dict[str, str]) -> None:
    """Rows that the source rejects are, compiled, translated and in files, and no others."""
    net = windtunnel.compile(source)
    models = [net, windtunnel.translate(source)]
    for format, path in files.items():
        net.export(folder / path, format=format)
        models.append(serving.load(folder / path, trusted=True))
    for given in rows:
        want = probabilities(source, given)
        for model in models:
            got = probabilities(model, given)
            assert (want is None) == (got is None), (given, model)
            if want is not None and type(model) is not windtunnel.Translation:
                np.testing.assert_allclose(got, want, 1e-9, 1e-9)


@pytest.mark.parametrize(
    ("make", "takes"),
    [
        (lambda: make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()), True),
        (lambda: make_pipeline(StandardScaler(), SimpleImputer(), PolynomialFeatures(2), LinearRegression()), True),
        (lambda: make_pipeline(StandardScaler(), LGBMClassifier(n_estimators=2, verbosity=-1)), True),
        (lambda: make_pipeline(make_union(SimpleImputer(), StandardScaler()), LogisticRegression()), False),
        (lambda: make_pipeline(StandardScaler(), LogisticRegression()), False),
    ],
    ids=["imputed", "imputed later", "trees", "imputed in part", "not imputed"],
)
@pytest.mark.parametrize("backend", ["torch", "torchscript"])
def test_missing_numbers_are_rejected_where_the_source_rejects_them(
    make: Callable[[], Any], takes: bool, backend: str
) -> None:
    drawn = np.random.default_rng(0)
    X = drawn.normal(size=(200, 3))
    source = make().fit(X, X[:, 0] > 0)
    net = windtunnel.compile(source, backend=backend)
    assert takes_missing(net.program) == takes
    X[drawn.random(X.shape) < 0.1] = np.nan
    if takes:
        np.testing.assert_allclose(net.predict(X), source.predict(X), rtol=1e-9, atol=1e-9)
    else:
        with pytest.raises(ValueError, match="NaN"):
            source.predict(X)
        with pytest.raises(BadInput, match="no finite score"):
            net.predict(X)
    X[7, 1] = np.inf
    try:
        expected = source.predict(X)
    except ValueError:
        with pytest.raises(BadInput, match="no finite score"):
            net.predict(X)
    else:
        np.testing.assert_allclose(net.predict(X), expected, rtol=1e-9, atol=1e-9)


def test_an_array_of_which_trees_read_a_few_columns_is_read_where_it_is() -> None:
    drawn = np.random.default_rng(0)
    X = drawn.normal(size=(200, 40))
    y = X[:, 30] + X[:, 7] > 0
    source = make_pipeline(SelectKBest(k=3), few_trees()).fit(X, y)
    net = windtunnel.compile(source, backend="torch")
    batch = net.encoder.encode_array(X, shared=True)
    assert batch is not None and batch.numbers.data_ptr() == X.ctypes.data
    guard, trees = net.program.steps
    assert guard.rejects and [take.neighbours for take in guard.takes] == [True]
    assert set(trees.takes[0].columns.tolist()) <= {*np.flatnonzero(source[0].get_support()).tolist()}
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), rtol=1e-9, atol=1e-9)
    X[3, 11] = np.inf  # in a column that is not selected
    with pytest.raises(ValueError, match="infinity"):
        source.predict(X)
    with pytest.raises(BadInput, match="1 of 200 rows"):
        net.predict(X)
