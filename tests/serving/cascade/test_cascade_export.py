"""Exported cascades predict what the cascade predicts, in C and in ONNX Runtime."""

import ctypes
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import windtunnel
from windtunnel.export import serving


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "city": generator.choice(["Oslo", "Rome", "Åsgård"], 1500),
            "size": generator.normal(size=1500),
            "colour": generator.choice(["red", "green"], 1500),
            "age": np.where(generator.random(1500) < 0.1, np.nan, generator.normal(size=1500)),
        }
    ).astype({"city": object, "colour": object})
    score = 3 * frame["size"] + (frame.city == "Rome") + (frame.colour == "red") + frame.age.fillna(1) / 2
    return frame, np.array(["high", "low", "mid"])[(score > 0).to_numpy() + 0 + (score > 2)]


def fitted(rows, model, *parts):
    frame, target = rows
    encode = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((StandardScaler(), ["size"]), (encode, ["city", "colour"]), *parts)
    return make_pipeline(columns, model).fit(frame[:700], target[:700])


@pytest.fixture(scope="module")
def made(rows):
    frame, target = rows
    trees = LGBMClassifier(n_estimators=10, num_leaves=7, min_child_samples=5, verbosity=-1, n_jobs=1)
    pipeline = fitted(rows, trees, ("passthrough", ["age"]))
    cost = {"standardscaler": 1e-6, "onehotencoder": 1e-4, "passthrough": 1e-4}
    train, valid = (frame[:700], target[:700]), (frame[700:], target[700:])
    cascade = windtunnel.cascade(pipeline, train, valid, accuracy_loss=0.2, gamma=0.9, cost=cost)
    return replace(cascade, threshold=replace(cascade.threshold, confidence=0.7))


@pytest.fixture(scope="module")
def queried(made, rows):
    """Rows of which the small model predicts some alone; one has an unknown city, one none."""
    frame = rows[0].copy()
    frame.loc[0, "city"], frame.loc[1, "city"] = "Bergen", None
    confident = made.confident(made.small.predict_proba(frame))
    assert 0.1 < confident.mean() < 0.9
    return frame


def test_c_files(made, queried, tmp_path):
    made.export(tmp_path / "my model.c")
    flags = ["cc", "-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-DWT_PORTABLE", "-shared", "-fPIC"]
    subprocess.run([*flags, tmp_path / "my model.c", "-lm", "-o", tmp_path / "my model.so"], check=True)
    model = serving.load(tmp_path / "my model.so", trusted=True)
    expected = made.predict_proba(queried)
    for count in (0, 1, 7, len(queried)):
        np.testing.assert_allclose(model.predict_proba(queried[:count]), expected[:count], rtol=0, atol=1e-12)
        assert (model.predict(queried[:count]) == expected[:count].argmax(axis=1)).all()
    for name in ("small", "cascade", "full"):  # words of the names within the file
        made.export(tmp_path / f"{name}.c")
        subprocess.run([*flags, tmp_path / f"{name}.c", "-o", tmp_path / f"{name}.so"], check=True)
    library = ctypes.CDLL(str(tmp_path / "my model.so"))
    codes = (tmp_path / "my model.h").read_text().split("enum { ")[1].split(" }")[0].split(", ")
    assert codes[library.my_model_predict(None, ctypes.c_size_t(0), None, None)] == "MY_MODEL_NO_ROWS"


def test_onnx_files(made, queried, tmp_path):
    made.export(tmp_path / "model.onnx")
    model = serving.load(tmp_path / "model.onnx")
    expected = made.predict_proba(queried)
    confident = made.confident(made.small.predict_proba(queried))
    for some in (np.arange(len(queried)), np.flatnonzero(confident), np.flatnonzero(~confident), np.arange(0)):
        output = model.predict_proba(queried.iloc[some])
        np.testing.assert_allclose(output, expected[some], rtol=0, atol=1e-12)
        assert (model.predict(queried.iloc[some]) == expected[some].argmax(axis=1)).all()


def test_what_is_not_exported(made, rows, tmp_path):
    with pytest.raises(windtunnel.InvalidOption, match=".c or .onnx"):
        made.export(tmp_path / "model.ts")
    frame, target = rows
    pipeline = fitted(rows, LogisticRegression(), (FunctionTransformer(np.isnan), ["age"]))
    pairs = (frame[:700], target[:700]), (frame[700:], target[700:])
    hosts = windtunnel.cascade(pipeline, *pairs, cost={"functiontransformer": 1.0})
    for name in ("model.c", "model.onnx"):
        with pytest.raises(windtunnel.UnfaithfulOption, match="stayed on the host"):
            hosts.export(tmp_path / name)
    with pytest.raises(windtunnel.UnfaithfulOption, match="does not read 'age'"):
        replace(made, small=made.full, full=made.small).export(tmp_path / "model.c")
    with pytest.raises(windtunnel.InvalidOption, match="export cascade.full"):
        replace(made, threshold=None).export(tmp_path / "model.c")


@pytest.mark.parametrize("stem", ["wt_small", "WT_full", "wt"])
def test_names_of_files_are_no_names_of_their_functions(made, stem, tmp_path):
    made.export(tmp_path / f"{stem}.c")
    subprocess.run(["cc", "-c", f"{stem}.c", "-o", "model.o"], cwd=tmp_path, check=True)
