"""Translations, trained or not, inside of other estimators: the whole is translated with what ``fit`` has trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from export_cases import columns_of, opened
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import StackingClassifier, VotingClassifier, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, TargetEncoder

import windtunnel
from windtunnel import Recipe, WindTunnelClassifier, WindTunnelRegressor
from windtunnel.errors import UnsupportedEstimator

METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")


def rows() -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, and targets of two classes, three classes and numbers; two columns belong together."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=1600),
            "b": rng.normal(size=1600),
            "city": rng.choice(list("abcdef"), 1600),
            "shop": rng.choice(list("uvwxyz"), 1600),
        }
    )
    frame.loc[::41, "b"] = np.nan
    pair = frame["city"].map(ord) * 6 + frame["shop"].map(ord)
    value = (frame["a"] + rng.normal(size=3000)[pair] * 2).to_numpy()
    noisy = value + rng.logistic(size=len(frame))
    return frame, np.where(noisy > 0, "yes", "no"), np.digitize(noisy, [-1, 1]), value


X, Y, Y3, VALUE = rows()
TRAIN, TEST = slice(1000), slice(1000, None)
RECIPE = Recipe(epochs=1, select="best_epoch", validation_fraction=0.3)


def pipeline(last: Any) -> Pipeline:
    encoder = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(make_column_transformer((encoder, ["city", "shop"]), remainder="passthrough"), last)


def classifier() -> WindTunnelClassifier:
    return WindTunnelClassifier(pipeline(LGBMClassifier(n_estimators=8, verbose=-1)), recipe=RECIPE)


def regressor() -> WindTunnelRegressor:
    return WindTunnelRegressor(pipeline(LGBMRegressor(n_estimators=8, verbose=-1)), recipe=RECIPE)


@pytest.fixture(scope="module")
def fitted() -> WindTunnelClassifier:
    """A classifier whose ``fit`` kept a residual model."""
    model = classifier().fit(X[TRAIN], Y[TRAIN])
    assert model.history_.kept.name != "translation"
    return model


def behind_steps() -> Pipeline:
    """Steps, then an estimator that is fitted on what they compute."""
    columns = make_column_transformer((TargetEncoder(), ["city", "shop"]), (SimpleImputer(), ["a", "b"]))
    return make_pipeline(columns, WindTunnelClassifier(LGBMClassifier(n_estimators=8, verbose=-1), recipe=RECIPE))


FITTED: dict[str, Callable[[], Any]] = {
    "calibration": lambda: CalibratedClassifierCV(classifier(), cv=2).fit(X[TRAIN], Y[TRAIN]),
    "calibration of three classes": lambda: CalibratedClassifierCV(classifier(), cv=2).fit(X[TRAIN], Y3[TRAIN]),
    "one-vs-rest": lambda: OneVsRestClassifier(classifier()).fit(X[TRAIN], Y3[TRAIN]),
    "search": lambda: GridSearchCV(classifier(), {"recipe__epochs": [1]}, cv=2).fit(X[TRAIN], Y[TRAIN]),
    "stack": lambda: StackingClassifier([("net", classifier())], cv=2).fit(X[TRAIN], Y3[TRAIN]),
    "vote of labels": lambda: VotingClassifier(
        [("net", classifier()), ("trees", pipeline(LGBMClassifier(n_estimators=3, verbose=-1)))]
    ).fit(X[TRAIN], Y[TRAIN]),
    "vote of values": lambda: VotingRegressor([("net", regressor())]).fit(X[TRAIN], VALUE[TRAIN]),
    "transformed target": lambda: TransformedTargetRegressor(
        regressor(), func=np.log1p, inverse_func=np.expm1, check_inverse=False
    ).fit(X[TRAIN], np.abs(VALUE[TRAIN])),
    "pipeline": lambda: behind_steps().fit(X[TRAIN], Y[TRAIN]),
    "folds": lambda: CalibratedClassifierCV(
        FrozenEstimator(classifier().set_params(folds=2).fit(X[TRAIN], Y[TRAIN]))
    ).fit(X[TEST], Y[TEST]),
}


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("translate", [windtunnel.translate, windtunnel.compile])
def test_the_whole_is_translated(name: str, translate: Callable[[Any], Any], tmp_path: Path) -> None:
    model = FITTED[name]()
    net = translate(model)
    net.save(tmp_path / "model.windtunnel")
    same_outputs(model, net, X[TEST])
    same_outputs(model, windtunnel.load(tmp_path / "model.windtunnel"), X[TEST])


def same_outputs(model: Any, net: Any, table: Any) -> None:
    for method in METHODS:
        assert hasattr(net, method) == hasattr(model, method)
        if hasattr(model, method):
            ours, theirs = getattr(net, method)(table), getattr(model, method)(table)
            if theirs.dtype.kind in "OUi":
                np.testing.assert_array_equal(ours, theirs)
            else:
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("format", ["onnx", "exported", "c"])
def test_a_calibrated_translation_is_exported(fitted: WindTunnelClassifier, format: str, tmp_path: Path) -> None:
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted.translation_)).fit(X[TEST], Y[TEST])
    net = windtunnel.compile(calibrated)
    given = columns_of(net, X[TEST])
    probabilities = opened(net, tmp_path, format).predict_proba(given)
    np.testing.assert_allclose(probabilities, calibrated.predict_proba(X[TEST]), rtol=1e-9)


def test_the_inner_translation_stays_as_it_is_when_the_whole_is_fitted(fitted: WindTunnelClassifier) -> None:
    thresholded = FixedThresholdClassifier(FrozenEstimator(fitted), threshold=0.3, pos_label="yes")
    thresholded.fit(X[TRAIN], Y[TRAIN])
    before = fitted.predict_proba(X[TEST])
    net = windtunnel.translate(thresholded, calibrate=X[TRAIN])
    net.fit((X[TRAIN], Y[TRAIN]), (X[TEST], Y[TEST]), recipe="joint", epochs=1, select="best_epoch")
    np.testing.assert_array_equal(fitted.predict_proba(X[TEST]), before)
    assert any(parameter.requires_grad for parameter in net.parameters())


def test_columns_go_by_name(fitted: WindTunnelClassifier) -> None:
    reordered = X[TEST][["shop", "b", "city", "a"]]
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted.translation_)).fit(reordered, Y[TEST])
    assert calibrated.feature_names_in_.tolist() == ["a", "b", "city", "shop"]
    same_outputs(calibrated, windtunnel.compile(calibrated), reordered)


def test_unknown_and_missing_categories(fitted: WindTunnelClassifier) -> None:
    odd = X[TEST].copy()
    odd.iloc[:5, 2], odd.iloc[3:9, 3] = "elsewhere", None
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted)).fit(X[TEST], Y[TEST])
    same_outputs(calibrated, windtunnel.compile(calibrated), odd)


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(a=table["a"].round(1))


def test_steps_on_the_host() -> None:
    trees = pipeline(LGBMClassifier(n_estimators=8, verbose=-1))
    model = WindTunnelClassifier(make_pipeline(FunctionTransformer(rounded), trees), recipe=RECIPE)
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X[TRAIN], Y[TRAIN])
    net = windtunnel.translate(calibrated, calibrate=X[TRAIN])
    assert len(net.hosts) == 2
    same_outputs(calibrated, net, X[TEST])
    with pytest.raises(UnsupportedEstimator, match="keeps 'functiontransformer' on the host"):
        windtunnel.translate(calibrated, untranslated="error")


def test_texts() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["red", "green", "blue", "grey"], 3)) for _ in range(300)]
    labels = np.array(["red" in text for text in texts])
    model = WindTunnelClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), recipe=RECIPE)
    calibrated = CalibratedClassifierCV(model, cv=2).fit(texts, labels)
    same_outputs(calibrated, windtunnel.compile(calibrated), texts[:50])


def test_a_translated_transformer() -> None:
    steps = make_column_transformer((TargetEncoder(), ["city", "shop"]), (SimpleImputer(), ["a", "b"]))
    steps.fit(X[TRAIN], Y[TRAIN])
    last = LogisticRegression().fit(steps.transform(X[TRAIN]), Y[TRAIN])
    whole = Pipeline([("steps", windtunnel.translate(steps)), ("last", last)])
    same_outputs(whole, windtunnel.compile(whole), X[TEST])


def test_what_cannot_be_inside_is_named(fitted: WindTunnelClassifier) -> None:
    in_onnx = FrozenEstimator(windtunnel.compile(fitted, backend="onnx"))
    with pytest.raises(UnsupportedEstimator, match="runs on a backend that is fixed"):
        windtunnel.compile(CalibratedClassifierCV(in_onnx).fit(X[TEST], Y[TEST]))
    calibrated = CalibratedClassifierCV(FrozenEstimator(fitted)).fit(X[TEST], Y[TEST])
    with pytest.raises(UnsupportedEstimator, match="computes in float64 and the estimators around it in float32"):
        windtunnel.compile(calibrated, dtype="float32")
    columns = make_column_transformer(
        (SimpleImputer(strategy="most_frequent"), ["city", "shop"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    imputed = make_pipeline(columns.set_output(transform="pandas"), classifier()).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(UnsupportedEstimator, match="reads categories that the steps before it compute or merge"):
        windtunnel.compile(imputed)
