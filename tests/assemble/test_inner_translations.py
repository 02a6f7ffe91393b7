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
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder

import windtunnel
from windtunnel import Recipe, WindTunnelClassifier, WindTunnelRegressor
from windtunnel.errors import BadInput, UnsupportedEstimator

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


def test_an_array_is_taken_by_position() -> None:
    numbers = X[["a", "b"]].fillna(0)
    net = windtunnel.translate(LogisticRegression().fit(numbers[TRAIN], Y[TRAIN]))
    for part in ("passthrough", StandardScaler()):
        whole = make_pipeline(make_column_transformer((part, ["b", "a"])), FrozenEstimator(net)).fit(numbers, Y)
        same_outputs(whole, windtunnel.compile(whole), numbers)


def other_orders() -> dict[str, Any]:
    """Estimators that give a translation of the columns a, b these in another order, or may do so."""
    numbers, label = X[["a", "b"]].fillna(0), Y3
    frozen = FrozenEstimator(windtunnel.translate(LogisticRegression().fit(numbers, label)))
    tuned = FrozenEstimator(WindTunnelClassifier(LogisticRegression(), recipe=RECIPE).fit(numbers, label))
    turned = numbers[["b", "a"]]
    plain = ("plain", FrozenEstimator(LogisticRegression().fit(turned, label)))
    fitted_alone = ("alone", LogisticRegression())
    function = FunctionTransformer(np.abs).set_output(transform="pandas")
    table = make_column_transformer((StandardScaler(), ["b", "a"]), verbose_feature_names_out=False)
    scaler = make_pipeline(StandardScaler()).set_output(transform="pandas").fit(turned)
    return {
        "bagging": BaggingClassifier(frozen, n_estimators=2).fit(turned, label),
        "vote": VotingClassifier([("net", frozen), plain]).fit(turned, label),
        "vote whose names are those of the translation": VotingClassifier([fitted_alone, ("net", frozen)]).fit(
            turned, Y3
        ),
        "stack": StackingClassifier([("net", frozen)], cv=2, passthrough=True).fit(turned, Y3),
        "function": make_pipeline(function, frozen).fit(numbers, Y3),
        "vote of a tuned one": VotingClassifier([("net", tuned), plain]).fit(turned, label),
        "table": make_pipeline(table.set_output(transform="pandas"), frozen).fit(numbers, label),
        "frozen table": make_pipeline(FrozenEstimator(scaler), frozen).fit(turned, label),
    }


def test_columns_in_another_order_are_rejected() -> None:
    for name, model in other_orders().items():
        with pytest.raises(UnsupportedEstimator, match=r"in\s+the same order|does not tell whether it has names"):
            windtunnel.compile(model)
            pytest.fail(f"{name} is compiled")


def test_names_that_are_no_texts_are_rejected_as_the_source_does_not_check_them() -> None:
    numbers = X[["a", "b"]].fillna(0).set_axis([3, 1], axis=1)
    tuned = WindTunnelClassifier(LGBMClassifier(n_estimators=8, verbose=-1), recipe=RECIPE).fit(numbers, Y)
    with pytest.raises(UnsupportedEstimator, match="does not tell whether it has names"):
        windtunnel.compile(CalibratedClassifierCV(FrozenEstimator(tuned)).fit(numbers, Y))


def test_a_translation_with_a_residual_model_behind_steps_is_explained_refreshed_and_tuned() -> None:
    numbers = X[["a", "b"]].fillna(0)
    inner = WindTunnelClassifier(LGBMClassifier(n_estimators=8, verbose=-1), recipe=RECIPE)
    whole = make_pipeline(StandardScaler(), inner).fit(numbers[TRAIN], Y[TRAIN])
    assert inner.history_.kept.name != "translation"
    for change in ({"joint": True}, {"recipe": "joint"}, {}):
        net = windtunnel.translate(whole, calibrate=numbers[TRAIN])
        explained = net.explain(numbers[TEST][:3])
        scores = whole.decision_function(numbers[TEST][:3])
        np.testing.assert_allclose(explained.base + explained.values.sum(axis=1), scores[:, None], rtol=1e-6)
        net.fit((numbers[TRAIN], Y[TRAIN]), (numbers[TEST], Y[TEST]), epochs=1, max_steps=10, **change)
        net.refresh((numbers, Y))
    raw = FixedThresholdClassifier(FrozenEstimator(inner), threshold=0.4, pos_label="yes").fit(numbers, Y)
    net = windtunnel.translate(raw, calibrate=numbers[TRAIN])
    net.fit((numbers[TRAIN], Y[TRAIN]), (numbers[TEST], Y[TEST]), epochs=1, max_steps=10, joint=True)


def test_a_translation_behind_steps_that_rename_columns() -> None:
    columns = make_column_transformer(("passthrough", ["b", "a", "city"])).set_output(transform="pandas")
    encoder = make_column_transformer((OneHotEncoder(), ["passthrough__city"]), remainder="passthrough")
    trees = LGBMClassifier(n_estimators=8, verbose=-1)
    whole = make_pipeline(columns, WindTunnelClassifier(make_pipeline(encoder, trees), recipe=RECIPE))
    same_outputs(whole.fit(X[TRAIN], Y[TRAIN]), windtunnel.compile(whole), X[TEST])


class NotNegative(WindTunnelRegressor):
    """An estimator of a user, which changes what the translation predicts."""

    def predict(self, X: Any) -> Any:
        """Predict no value below 0."""
        return np.maximum(super().predict(X), 0)


def test_a_subclass_is_not_replaced_by_its_translation() -> None:
    model = NotNegative(pipeline(LGBMRegressor(n_estimators=8, verbose=-1)), recipe=RECIPE)
    vote = VotingRegressor([("a", model)]).fit(X[TRAIN], VALUE[TRAIN])
    for outer in (vote, vote.estimators_[0]):
        with pytest.raises(UnsupportedEstimator, match="no translation for .*NotNegative"):
            windtunnel.compile(outer)


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


def test_steps_on_the_host_behind_other_steps_are_rejected() -> None:
    missing = FunctionTransformer(np.isnan, feature_names_out="one-to-one")
    model = WindTunnelClassifier(make_pipeline(missing, LogisticRegression()), recipe=RECIPE)
    filled = make_pipeline(SimpleImputer(strategy="constant", fill_value=9.0), model).fit(X[["a", "b"]], Y)
    with pytest.raises(UnsupportedEstimator, match="keeps step 'functiontransformer' on the host, which reads"):
        windtunnel.compile(filled)


class Times(TransformerMixin, BaseEstimator):
    """A step that stays on the host."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None) -> Times:
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.array(X.columns, dtype=object)
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X) * self.factor

    def get_feature_names_out(self, names: Any = None) -> Any:
        return self.feature_names_in_


def test_a_file_finds_the_steps_on_the_host_inside_of_other_estimators(tmp_path: Path) -> None:
    numbers = X[["a", "b"]].fillna(0)
    inner = windtunnel.translate(make_pipeline(Times(5.0), StandardScaler(with_std=False)).fit(numbers))
    union = FeatureUnion([("times", Times(2.0)), ("net", FrozenEstimator(inner))]).fit(numbers)
    calibrated = CalibratedClassifierCV(make_pipeline(Times(3.0), LogisticRegression()), cv=2).fit(numbers, Y)
    tuned = WindTunnelClassifier(make_pipeline(Times(4.0), LogisticRegression()), recipe=RECIPE)
    vote = VotingClassifier([("net", tuned), ("plain", make_pipeline(Times(-1.0), LogisticRegression()))])
    for model in (union, calibrated, vote.fit(numbers, Y)):
        windtunnel.compile(model).save(tmp_path / "model.windtunnel")
        same_outputs(model, windtunnel.load(tmp_path / "model.windtunnel", host=model), numbers)


def texts_and_labels() -> tuple[list[str], Any]:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["red", "green", "blue", "grey"], 3)) for _ in range(300)]
    return texts, np.array(["red" in text for text in texts])


def test_texts() -> None:
    texts, labels = texts_and_labels()
    model = WindTunnelClassifier(make_pipeline(TfidfVectorizer(), LogisticRegression()), recipe=RECIPE)
    model.fit(texts, labels)
    behind = make_pipeline(TfidfVectorizer(), WindTunnelClassifier(LogisticRegression(), recipe=RECIPE))
    value = TransformedTargetRegressor(make_pipeline(TfidfVectorizer(), Ridge())).fit(texts, labels + 0.5)
    calibrated = [
        CalibratedClassifierCV(FrozenEstimator(each)).fit(texts, labels) for each in (model, model.translation_)
    ]
    for whole in (*calibrated, behind.fit(texts, labels), value):
        same_outputs(whole, windtunnel.compile(whole), texts[:50])


class Holder(Times):
    """A step of a user with attributes as those of scikit-learn's votes."""

    def __init__(self, estimators: Any = None, estimator: Any = None) -> None:
        self.estimators, self.estimator, self.factor = estimators, estimator, 2.0

    def fit(self, X: Any, y: Any = None) -> Holder:
        return self


@pytest.mark.parametrize("attributes", [{"estimators": ["a"]}, {"estimator": TfidfVectorizer()}], ids=str)
def test_a_step_of_a_user_takes_tables_whatever_it_holds(attributes: dict[str, Any]) -> None:
    numbers = X[["a", "b"]].fillna(0)
    model = make_pipeline(Holder(**attributes), LogisticRegression()).fit(numbers, Y)
    same_outputs(model, windtunnel.compile(model, calibrate=numbers[TRAIN]), numbers)


def test_joint_training_behind_a_step_without_a_gradient_is_rejected() -> None:
    numbers = X[["a", "b"]].fillna(0)
    neighbours = windtunnel.compile(KNeighborsClassifier().fit(numbers.to_numpy(), Y))
    whole = make_pipeline(StandardScaler(), FrozenEstimator(neighbours)).fit(numbers, Y)
    net = windtunnel.translate(whole)
    with pytest.raises(BadInput, match="no gradient of the scores reaches a parameter"):
        net.fit((numbers[TRAIN], Y[TRAIN]), (numbers[TEST], Y[TEST]), recipe="joint")


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
