"""Fitted pipelines for the tests of saving, exporting and reporting: one per kind of head, column and module."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pytest
import torch
from c_library import FLAGS
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from torch import Tensor

import windtunnel
from windtunnel import LeafEncoder
from windtunnel.export import serving
from windtunnel.export.columns import names, raw_columns
from windtunnel.modules.base import Module


def frame(count: int = 200, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, text with gaps, and categories that are numbers which float32 does not hold."""
    random = np.random.default_rng(seed)
    rows = pd.DataFrame({"size": random.normal(size=count), "price": random.lognormal(3, 1, count)})
    rows["city"] = random.choice(["Oslo", "Bergen", "Tromsø", "", "東京"], count)
    rows["code"] = random.choice([0.1, 2.0, 7.5], count)
    rows.loc[random.random(count) < 0.1, ["price", "city"]] = [np.nan, None]
    return rows


def target(rows: pd.DataFrame) -> Any:
    return rows["size"] + rows["city"].isin(["Oslo", "東京"]) - 0.2 * rows["code"]


def columns(encoder: Any = None) -> Any:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encoder = encoder or OneHotEncoder(handle_unknown="ignore")
    return make_column_transformer((numbers, ["price", "size"]), (encoder, ["city", "code"]))


def binary(model: Any, encoder: Any = None) -> Any:
    rows = frame()
    return make_pipeline(columns(encoder), model).fit(rows, np.where(target(rows) > 0, "yes", "no"))


def multiclass(model: Any, encoder: Any = None) -> Any:
    rows = frame()
    return make_pipeline(columns(encoder), model).fit(rows, pd.cut(target(rows), 3, labels=False).to_numpy() * 10)


def regression(model: Any, y: Any) -> Any:
    return make_pipeline(columns(), model).fit(frame(), y)


def categories_in_trees() -> Any:
    rows = pandas_categories(frame())
    return LGBMClassifier(n_estimators=5, num_leaves=8, min_child_samples=5, cat_smooth=1, verbose=-1).fit(
        rows, target(frame()) > 0
    )


def pandas_categories(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype({"city": "category", "code": "category"})


SMALL: dict[str, Any] = {"n_estimators": 5, "num_leaves": 6, "min_child_samples": 5, "verbose": -1}
CODES = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
PIPELINES: dict[str, Callable[[], Any]] = {
    "logistic": lambda: binary(LogisticRegression()),
    "softmax": lambda: multiclass(LogisticRegression()),
    "one_vs_rest": lambda: multiclass(SGDClassifier(loss="log_loss", random_state=0)),
    "margins": lambda: binary(LinearSVC()),
    "ridge": lambda: regression(Ridge(), target(frame())),
    "ridge_two_targets": lambda: regression(Ridge(), np.stack([target(frame())] * 2, axis=1)),
    "lightgbm_binary": lambda: binary(LGBMClassifier(**SMALL), CODES),
    "lightgbm_multiclass": lambda: multiclass(LGBMClassifier(**SMALL), CODES),
    "lightgbm_poisson": lambda: regression(LGBMRegressor(**SMALL, objective="poisson"), target(frame()).clip(0)),
    "lightgbm_categories": categories_in_trees,
    "hashing": lambda: binary(LogisticRegression(), ce.HashingEncoder(cols=["city"], n_components=4)),
    "leaves": lambda: binary(make_pipeline(LeafEncoder(LGBMClassifier(**SMALL)), LogisticRegression()), CODES),
    "transformer": lambda: make_pipeline(columns(), MinMaxScaler()).fit(frame()),
}


class Custom(TransformerMixin, BaseEstimator):
    """A step that has no translation and never gets one."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return np.sin(np.asarray(X, dtype=float))

    def get_feature_names_out(self, names: Any = None) -> Any:
        return np.array([f"sin{column}" for column in range(self.n_features_in_)])


def with_host_step() -> Any:
    parts = [("scaled", StandardScaler(), ["size"]), ("custom", Custom(), ["size", "code"])]
    pipeline = Pipeline([("columns", ColumnTransformer(parts)), ("model", LogisticRegression())])
    return pipeline.fit(frame(), target(frame()) > 0)


class Looping(Module):
    """Loops over rows, of which a graph cannot tell how many there are."""

    def forward(self, x: Tensor) -> Tensor:
        rows: list[Tensor] = []
        for row in range(x.shape[0]):
            rows.append(x[row] * 2)
        return torch.stack(rows)


@cache
def fitted(name: str) -> Any:
    return PIPELINES[name]()


def rows_for(name: str) -> pd.DataFrame:
    """Rows that the pipeline takes, some with categories that it has not seen."""
    rows = frame(60, seed=1)
    rows.loc[:2, "city"] = ["Trondheim", "x" * 70, "Ålesund"]
    return pandas_categories(rows) if name == "lightgbm_categories" else rows


def translated(name: str, **options: Any) -> windtunnel.Translation:
    rows = pandas_categories(frame()) if name == "lightgbm_categories" else frame()
    return windtunnel.translate(fitted(name), **{"calibrate": rows, **options}).soften()


SUFFIX = {"torchscript": ".ts", "onnx": ".onnx", "exported": ".pt2", "aoti": ".pt2", "c": ".so"}
FORMATS = ("torchscript", "onnx", "exported")
"""Those that are written in seconds; native code has a test of its own."""


def opened(net: windtunnel.Translation, folder: Path, format: str) -> serving.Model:
    path = folder / f"net{SUFFIX[format]}"
    if format == "c":
        net.export(path.with_suffix(".c"))
        subprocess.run(["cc", *FLAGS, path.with_suffix(".c"), "-lm", "-o", path], check=True)
    else:
        net.export(path, format=format)
    return serving.load(path, trusted=format != "onnx")


@cache
def logistic() -> windtunnel.Translation:
    return windtunnel.compile(fitted("logistic"))


@cache
def small(format: str, folder: Path) -> serving.Model:
    return opened(logistic(), folder, format)


def columns_of(net: windtunnel.Translation, rows: Any) -> dict[str, list[Any]]:
    """The raw columns that a translation reads, by the names that files give them."""
    picked, used = net.encoder.select(rows), [*sum(raw_columns(net.encoder), [])]
    return {name: picked[at].astype(object).tolist() for at, name in zip(used, names(net.encoder, used), strict=True)}


def assert_as_net(model: serving.Model, net: windtunnel.Translation, rows: Any, tolerance: float) -> None:
    given = columns_of(net, rows)
    np.testing.assert_allclose(model.scores(given), net.scores(rows), tolerance, tolerance)
    if "predict_proba" in model.facts["outputs"]:
        wanted = net.predict_proba(rows)
        assert_close(model.predict_proba(given), np.hstack(wanted) if isinstance(wanted, list) else wanted, tolerance)
    if "predict" in model.facts["outputs"] and net.head.classes is not None:
        np.testing.assert_array_equal(net.head.labels(torch.as_tensor(model.predict(given))), net.predict(rows))
    elif "predict" in model.facts["outputs"]:
        assert_close(model.predict(given), net.predict(rows), tolerance)


def assert_close(found: Any, wanted: Any, tolerance: float) -> None:
    """Compare float64 outputs with those of a translation, which rounds some as the source does."""
    tolerance = max(tolerance, np.finfo(wanted.dtype).eps if wanted.dtype.kind == "f" else 0)
    np.testing.assert_allclose(np.asarray(found), wanted, tolerance, tolerance)


def windtunnel_columns(encoder: Any, columns: list[str]) -> Any:
    return make_column_transformer((encoder, columns))


def assert_the_same_errors(model: serving.Model) -> None:
    rows = rows_for("logistic").to_dict("list")
    wrong: list[tuple[Any, str]] = [
        ({"size": [1.0], "prise": [2.0]}, r"columns missing: \['price', 'code', 'city'\]; given: \['size', 'prise'\]"),
        (rows | {"size": ["1"] * 60}, "column 'size' holds '1'; numbers are read there"),
        (rows | {"size": [[1.0]] * 60}, r"column 'size' holds \[1.0\]; numbers are read there"),
        (rows | {"city": [b"Oslo"] * 60}, "column 'city' holds b'Oslo'; texts are read there"),
        (rows | {"city": [3] * 60}, "column 'city' holds 3; texts are read there"),
        (rows | {"city": ["Os\0lo"] * 60}, "column 'city' holds 'Os.*lo', with a NUL in it"),
        (rows | {"city": "Oslo"}, "column 'city' is a single str"),
        (rows | {"city": ["Oslo"]}, "columns of different lengths: .*'city': 1"),
        (rows | {"city": pd.DataFrame(rows)[["city"]]}, "column 'city' is a DataFrame, no single column"),
        (pd.DataFrame(rows).iloc[:, [0, *range(4)]], r"columns given twice: \['size'\]; each name must be there once"),
        ([[1.0, 2.0]], "rows given as list; give a mapping"),
        (rows | {"size": [np.inf] * 60}, "60 of 60 rows (scored at once )?have no finite score"),
    ]
    for given, message in wrong:
        with pytest.raises(serving.BadRows, match=message):
            model.predict(given)
    with pytest.raises(AttributeError, match="this model has no transform"):
        model._output("transform", rows)
