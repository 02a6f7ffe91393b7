"""ONNX inputs of the types that a user's columns have."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import windtunnel
from windtunnel.export import serving

TYPES = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64")


def rows(dtype: str) -> pd.DataFrame:
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 50, 200)
    return pd.DataFrame({"x": values.astype(dtype), "z": np.linspace(0, 1, 200), "city": ["Oslo", "Rome"] * 100})


def source(X: pd.DataFrame) -> Any:
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    trees = LGBMClassifier(n_estimators=5, num_leaves=8, verbosity=-1, n_jobs=1)
    return make_pipeline(columns, trees).fit(X, (X["x"] * X["z"] > X["z"].mean() * X["x"].mean()).astype(int))


@pytest.mark.parametrize("dtype", TYPES)
def test_an_input_has_the_type_of_the_example(dtype: str, tmp_path: Path) -> None:
    X = rows(dtype)
    fitted = source(X)
    windtunnel.compile(fitted).export(tmp_path / "net.onnx", example=X.head(2))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    given = {"x": X["x"].to_numpy(), "z": X["z"].to_numpy(), "city": X["city"].to_numpy(object)}
    (output,) = session.run(["predict_proba"], given)
    np.testing.assert_allclose(output, fitted.predict_proba(X), rtol=1e-9)
    served = serving.load(tmp_path / "net.onnx")
    np.testing.assert_allclose(served.predict_proba(X.astype({"x": float})), output, rtol=1e-12)


def test_missing_values_do_not_fit_a_whole_number(tmp_path: Path) -> None:
    X = rows("int64")
    windtunnel.compile(source(X)).export(tmp_path / "net.onnx", example=X)
    with pytest.raises(serving.BadRows, match="column 'x' takes values of type int64 only"):
        serving.load(tmp_path / "net.onnx").predict(X.assign(x=[np.nan] * 200))


def test_other_formats_take_no_example(tmp_path: Path) -> None:
    X = rows("int64")
    with pytest.raises(windtunnel.InvalidOption, match="example= is for ONNX files"):
        windtunnel.compile(source(X)).export(tmp_path / "net.ts", example=X)


def test_texts_for_missing_values_that_one_of_several_encoders_knows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"c": random.choice(["x", "y", "z"], 90).astype(object), "a": random.normal(size=90)})
    rows.loc[5, "c"], rows.loc[7, "c"] = "None", "nan"
    columns = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["c"]), remainder="passthrough")
    source = CalibratedClassifierCV(make_pipeline(columns, LogisticRegression()), cv=KFold(3), ensemble=True)
    net = windtunnel.compile(source.fit(rows, (rows["c"] == "x") ^ (random.random(90) > 0.8)))
    net.export(tmp_path / "net.onnx")
    given = {name: rows[name].tolist() for name in rows}
    found = serving.load(tmp_path / "net.onnx").predict_proba(given)
    np.testing.assert_allclose(found, source.predict_proba(rows), rtol=1e-9)


def test_numbers_wider_than_float64_are_read_as_float64(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.arange(20, dtype=np.longdouble), "b": np.arange(20.0)})
    net = windtunnel.compile(LogisticRegression().fit(rows.astype(float), rows["b"] > 9))
    net.export(tmp_path / "net.onnx", example=rows)
    types = {each.name: each.type for each in onnxruntime.InferenceSession(tmp_path / "net.onnx").get_inputs()}
    assert types == {"a": "tensor(double)", "b": "tensor(double)"}
