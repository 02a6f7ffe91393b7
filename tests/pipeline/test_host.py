"""Steps without a translation stay on the host: same scores, and everything after them is translated and trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from case import NUMBERS, columns, logistic, one_hot, quick, table, targets
from lightgbm import LGBMRegressor
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler

import windtunnel
from windtunnel.errors import BadInput, UnsupportedEstimator
from windtunnel.modules.linear.linear import Linear
from windtunnel.modules.trees.soft.trees import SoftTrees
from windtunnel.program.head import METHODS
from windtunnel.trainers.data.encoded_rows import LazilyEncodedRows

CALLS: list[int] = []


class Squares(TransformerMixin, BaseEstimator):
    """A custom transformer: the squares of its columns; remembers how many rows each call had."""

    def fit(self, X: Any, y: Any = None) -> Squares:
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        CALLS.append(len(X))
        return np.asarray(X, dtype=float) ** 2


class NamedSquares(Squares):
    def get_feature_names_out(self, names: Any = None) -> np.ndarray:
        return np.array([f"square{k}" for k in range(self.n_features_in_)], dtype=object)


class Neighbours(KNNImputer):
    """No translation: a subclass may compute something else."""


class Bins(KBinsDiscretizer):
    """As ``Neighbours``."""


class Centres(KMeans):
    """As ``Neighbours``."""


class Initials(TransformerMixin, BaseEstimator):
    """Gives texts for texts, as a DataFrame."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> Initials:
        self.feature_names_in_ = X.columns.to_numpy()
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        return X.apply(lambda column: column.str[-1])

    def get_feature_names_out(self, names: Any = None) -> Any:
        return self.feature_names_in_


@pytest.fixture(autouse=True)
def forget_calls() -> Iterator[None]:
    CALLS.clear()
    yield


def texts(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """The table, with free text in a column."""
    frame = table(rows, seed, missing=True)
    words = np.array("red green blue fast slow old new cheap dear".split())
    random = np.random.default_rng(seed)
    frame["text"] = [" ".join(random.choice(words, 4)) for _ in range(rows)]
    return frame


def scaled(*others: Any) -> ColumnTransformer:
    return columns(*others, (make_pipeline(SimpleImputer(), StandardScaler()), list(NUMBERS)), sparse_threshold=0)


HOSTED: dict[str, tuple[Any, list[str], list[str]]] = {
    # pipeline, the columns it is fitted on, the steps that stay on the host
    "words of a column": (
        make_pipeline(scaled((CountVectorizer(), "text"), (one_hot(), ["city"])), logistic()),
        ["text", "city", *NUMBERS],
        ["columntransformer.part0"],
    ),
    "words inside a pipeline, sparse": (
        make_pipeline(columns((make_pipeline(CountVectorizer()), "text"), (one_hot(), ["city"])), quick()),
        ["city", "text"],
        ["columntransformer.part0.countvectorizer"],
    ),
    "neighbours in the beginning": (
        make_pipeline(Neighbours(), StandardScaler(), quick()),
        list(NUMBERS),
        ["neighbours"],
    ),
    "bins in the middle": (
        make_pipeline(SimpleImputer(), Bins(3, quantile_method="averaged_inverted_cdf"), logistic()),
        ["age", "income"],
        ["bins"],
    ),
    "bins encoded again": (
        make_pipeline(
            SimpleImputer(),
            Bins(3, encode="ordinal", quantile_method="averaged_inverted_cdf"),
            one_hot(),
            logistic(),
        ),
        ["age", "income"],
        ["bins"],
    ),
    "two in a row": (
        make_pipeline(Neighbours(), NamedSquares(), StandardScaler(), logistic()),
        list(NUMBERS),
        ["namedsquares"],
    ),
    "a scaler that is encoded": (
        make_pipeline(SimpleImputer(), StandardScaler(), one_hot(), logistic()),
        ["visits"],
        ["onehotencoder"],
    ),
    "custom texts, encoded": (
        make_pipeline(columns((make_pipeline(Initials(), one_hot()), ["city", "text"])), logistic()),
        ["city", "text"],
        ["columntransformer.part0.initials"],
    ),
    "the last step": (
        make_pipeline(SimpleImputer(), StandardScaler(), make_union(StandardScaler(), NamedSquares())),
        list(NUMBERS),
        ["featureunion.namedsquares"],
    ),
    "all of it": (make_pipeline(Neighbours()), list(NUMBERS), ["neighbours"]),
}


def fitted(name: str) -> tuple[Any, pd.DataFrame]:
    pipeline, names, _ = HOSTED[name]
    frame = texts()
    return pipeline.fit(frame[names], targets(frame)["label"]), texts(120, seed=1)[names]


def assert_same(net: windtunnel.Translation, source: Any, rows: Any, given: Any = None) -> None:
    for method in METHODS:
        assert method == "apply" or hasattr(net, method) == hasattr(source, method)
        if hasattr(source, method):
            want, got = getattr(source, method)(rows), getattr(net, method)(rows if given is None else given)
            want = want.toarray() if sparse.issparse(want) else want
            if method == "predict":
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("name", HOSTED)
def test_scores_are_those_of_the_source(name: str) -> None:
    source, rows = fitted(name)
    net = windtunnel.compile(source)
    assert [host.name for host in net.hosts] == HOSTED[name][2]
    assert_same(net, source, rows)
    assert_same(net, source, rows[:1])
    assert_same(net, source, rows, rows[rows.columns[::-1]].assign(more=1.0))


@pytest.mark.parametrize("name", HOSTED)
def test_a_translation_scores_alike(name: str) -> None:
    source, rows = fitted(name)
    net = windtunnel.translate(source, calibrate=rows).soften()
    assert [host.name for host in net.hosts] == HOSTED[name][2]
    assert net.fidelity.r2 > 0.999
    if not any(isinstance(step.module, SoftTrees) for step in net.program.steps):
        assert_same(net, source, rows)


@pytest.mark.parametrize("name", [name for name, (pipeline, *_) in HOSTED.items() if hasattr(pipeline, "predict")])
def test_what_comes_after_is_trained(name: str) -> None:
    source, rows = fitted(name)
    net = windtunnel.translate(source, calibrate=rows).soften()
    net.train()
    net(*net.encode(rows)).sum().backward()
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad and parameter.numel()]
    assert trained and all(one.grad is not None and one.grad.isfinite().all() for one in trained)


def test_only_what_is_after_the_host_is_translated() -> None:
    source, rows = fitted("two in a row")
    net = windtunnel.translate(source)
    assert [origin.name for origin in net.origins] == ["standardscaler", "logisticregression"]
    # One host step stands for all steps before it.
    assert net.encoder.numbers == [3, 4, 5] and net.encoder.used_columns() == []
    assert "NamedSquares" in net.hosts[0].reason
    assert isinstance(net.program.steps[-1].module, Linear)


@pytest.mark.parametrize("name", HOSTED)
def test_rejected_by_name(name: str) -> None:
    source, _ = fitted(name)
    (step,) = HOSTED[name][2]
    with pytest.raises(UnsupportedEstimator, match=f"step '{step}'"):
        windtunnel.translate(source, untranslated="error")


def test_an_array_pipeline_with_a_host_step() -> None:
    X = table(missing=True)[list(NUMBERS)].to_numpy()
    source = make_pipeline(Neighbours(), StandardScaler(), quick()).fit(X, targets(table())["label"])
    assert_same(windtunnel.compile(source), source, X)
    assert_same(windtunnel.compile(source), source, X, X.tolist())


@pytest.mark.parametrize(
    "form", [lambda frame: frame, lambda frame: dict(frame.T.reset_index(drop=True).T), lambda f: f[f.columns[::-1]]]
)
def test_a_sample_tells_the_number_of_columns(form: Any) -> None:
    frame = texts()[list(NUMBERS)].fillna(0)
    source = make_pipeline(Squares(), StandardScaler(), logistic()).fit(
        frame, targets(frame.assign(city="", device=""))["label"]
    )
    assert_same(windtunnel.translate(source, calibrate=form(frame)), source, frame)
    assert_same(windtunnel.compile(source, calibrate=form(frame)), source, frame)


def test_the_steps_around_a_step_tell_its_number_of_columns() -> None:
    frame = texts()[list(NUMBERS)].fillna(0)
    labels = frame["income"] > 8000
    columns = ColumnTransformer([("squares", Squares(), ["income"])], remainder="passthrough")
    for first in (Squares(), make_pipeline(columns, make_union(StandardScaler()))):
        source = make_pipeline(first, StandardScaler(), logistic()).fit(frame, labels)
        rows = frame[frame["income"] < 1e5]
        net = windtunnel.compile(source)
        np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), atol=1e-9)


@pytest.mark.parametrize("function", [windtunnel.compile, windtunnel.translate])
def test_without_a_sample_the_number_of_columns_is_asked_for(function: Any) -> None:
    frame = texts()[["income"]]
    source = make_pipeline(FeatureUnion([("squares", Squares())]), logistic()).fit(frame, frame["income"] > 8000)
    with pytest.raises(UnsupportedEstimator) as error:
        function(source)
    assert str(error.value) == (
        "step 'featureunion.squares' (Squares) stays on the host and does not tell how many columns it gives "
        "(get_feature_names_out); give a few raw rows as calibrate=."
    )


def test_a_host_that_changes_its_mind() -> None:
    class Growing(NamedSquares):
        def transform(self, X: Any) -> np.ndarray:
            return np.ones((len(X), 1 if len(X) < 10 else 2))

    frame = texts()[["income"]]
    steps = [("grow", Growing()), ("scale", StandardScaler()), ("last", LogisticRegression())]
    source = Pipeline(steps).fit(frame[:9], np.arange(9) % 2)
    net = windtunnel.compile(source)
    with pytest.raises(BadInput, match="step 'grow', kept on the host, gave 2 columns; it gave 1 when the pipeline"):
        net.predict(frame)


def test_a_predictor_without_translation_is_no_host_step() -> None:
    X = table()[["income", "visits"]]
    for source in (Centres(2, n_init=1).fit(X), make_pipeline(StandardScaler(), Centres(2, n_init=1)).fit(X)):
        with pytest.raises(
            UnsupportedEstimator, match=r"(?i)step 'centres': no translation for .*Centres; its parent KMeans has one"
        ):
            windtunnel.translate(source)


def trees_after_squares(untranslated: str) -> tuple[windtunnel.Translation, pd.DataFrame, Any]:
    frame = texts(200)[["income", "visits"]]
    y = targets(texts(200))["value"]
    source = make_pipeline(NamedSquares(), StandardScaler(), quick(LGBMRegressor)).fit(frame, y)
    return windtunnel.translate(source, untranslated=untranslated, level="L1").soften(), frame, y


def test_cached_outputs_are_computed_once() -> None:
    net, frame, y = trees_after_squares("cache")
    CALLS.clear()
    batches = windtunnel.loader(net, frame, y, batch_size=64)
    assert CALLS == [200]
    for _ in range(2):
        assert len(list(batches)) == 4
    assert CALLS == [200]


@pytest.mark.parametrize("shuffle", [False, True])
def test_streamed_outputs_are_computed_batch_by_batch(shuffle: bool) -> None:
    net, frame, y = trees_after_squares("stream")
    CALLS.clear()
    options = {"batch_size": 64, "shuffle": shuffle, "weight": np.arange(200.0)}
    batches = windtunnel.loader(net, frame, y, **options)
    assert CALLS == []
    seen = [list(batches), list(batches)]
    assert sorted(CALLS) == [8, 8, *[64] * 6]
    net.untranslated = "cache"
    cached = windtunnel.loader(net, frame, y, **options)
    for items in seen:
        for got, want in zip(items, cached, strict=True):
            assert all(
                torch.equal(one, other) for one, other in zip((*got[0], *got[1:]), (*want[0], *want[1:]), strict=True)
            )


@pytest.mark.parametrize("form", [lambda f: f, lambda f: {k: v.tolist() for k, v in f.items()}, lambda f: f.to_numpy()])
def test_rows_of_any_form_are_streamed(form: Any) -> None:
    net, frame, _ = trees_after_squares("stream")
    batches = windtunnel.loader(net, form(frame), batch_size=64, shuffle=False)
    assert torch.equal(torch.cat([rows.numbers for rows in batches]), net.encode(frame).numbers)


@pytest.mark.parametrize("untranslated", ["cache", "stream"])
def test_fine_tuning(untranslated: str) -> None:
    net, frame, y = trees_after_squares(untranslated)
    options = {
        "epochs": 2,
        "batch_size": 64,
        "learning_rate": 1e-4,
        "progress": False,
        "accelerator": "cpu",
        "residual": False,
    }
    CALLS.clear()
    net.fit((frame, y), **options)
    assert net.history.validated_on == "held-out rows" and len(net.history.epochs) == 3
    assert max(CALLS) == (200 if untranslated == "cache" else 64)
    net.fit((frame, y), (frame, y), **options)
    assert net.history.best < net.history.start


@pytest.mark.parametrize("residual", [True, False])
def test_a_loader_of_raw_rows_passes_the_host_once(residual: bool) -> None:
    (net, frame, y), (other, *_) = trees_after_squares("cache"), trees_after_squares("cache")
    options = {"epochs": 2, "residual": residual, "progress": False, "accelerator": "cpu"}
    CALLS.clear()
    net.fit([(frame[start : start + 80], y[start : start + 80]) for start in range(0, 200, 80)], **options)
    assert CALLS == [80, 80, 40] and net.history.validated_on == "held-out rows"
    other.fit((frame, y), **options)
    assert [(epoch.metric, epoch.val_loss) for epoch in net.history.epochs] == [
        (epoch.metric, epoch.val_loss) for epoch in other.history.epochs
    ]
    np.testing.assert_array_equal(net.predict(frame), other.predict(frame))


def test_a_loader_is_streamed_past_the_host() -> None:
    net, frame, y = trees_after_squares("stream")
    with pytest.warns(UserWarning, match='untranslated="stream" keeps no outputs of host steps'):
        net.fit([(frame, y)], epochs=1, recipe="joint", progress=False, accelerator="cpu")
    assert net.history.validated_on == "training rows"


def test_streamed_and_cached_train_to_the_same_bits() -> None:
    weights = []
    for untranslated in ("cache", "stream"):
        net, frame, y = trees_after_squares(untranslated)
        net.fit((frame, y), (frame[:50], y[:50]), recipe="joint", epochs=2, batch_size=64, progress=False)
        weights.append(torch.cat([one.flatten() for one in net.parameters()]))
    assert torch.equal(*weights)


def test_a_residual_model_on_streamed_rows_has_its_terms() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(2500, 2)).round(1), columns=["a", "b"])
    y = frame["a"] * frame["b"] > 0
    source = make_pipeline(FunctionTransformer(np.cbrt), LogisticRegression()).fit(frame, y)
    found = []
    for untranslated in ("cache", "stream"):
        net = windtunnel.translate(source, untranslated=untranslated)
        net.fit((frame[:1500], y[:1500]), (frame[1500:], y[1500:]), epochs=1, progress=False, accelerator="cpu")
        found.append([term.columns for term in net.history.terms])
    assert ("a", "b") in found[0] and found[1] == found[0]


def test_streams_are_loaders_with_batches() -> None:
    net, frame, y = trees_after_squares("stream")
    batches = windtunnel.loader(net, frame, y, batch_size=64, drop_last=True)
    assert isinstance(batches, LazilyEncodedRows) and len(batches) == len(list(batches)) == 3
    with pytest.raises(BadInput, match="y has 3 values for 200 rows"):
        windtunnel.loader(net, frame, y[:3])


def test_a_function_is_a_host_step() -> None:
    frame = texts()[["income"]]
    log = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
    source = make_pipeline(log, StandardScaler(), logistic()).fit(frame, frame["income"] > 8000)
    assert_same(windtunnel.compile(source), source, frame)


class Doubled(TransformerMixin, BaseEstimator):
    """Whose fit sets nothing."""

    def fit(self, X: Any, y: Any = None) -> Doubled:
        return self

    def transform(self, X: Any) -> np.ndarray:
        return 2 * np.asarray(X, dtype=float)


def test_a_transformer_without_a_state_counts_as_fitted() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    source = make_pipeline(StandardScaler(), Doubled(), LogisticRegression()).fit(X, X[:, 0] > 0)
    net = windtunnel.compile(source, calibrate=X)
    assert [host.name for host in net.hosts] == ["doubled"]
    np.testing.assert_allclose(net.predict_proba(X), source.predict_proba(X), 1e-9)


@pytest.mark.parametrize("named", [False, True])
def test_calibration_rows_tell_the_columns_of_a_first_step_without_a_state(named: bool, tmp_path: Path) -> None:
    frame = texts()[["visits", "income"]].fillna(0)
    X, y = frame if named else frame.to_numpy(), frame["income"] > 8000
    for first in (Doubled(), make_union(Doubled(), StandardScaler())):
        source = make_pipeline(first, StandardScaler(), LogisticRegression()).fit(X, y)
        with pytest.raises(UnsupportedEstimator, match="Doubled does not tell how many columns .* as calibrate="):
            windtunnel.translate(source)
        net = windtunnel.translate(source, calibrate=X[:50])
        assert net.encoder.names == (["visits", "income"] if named else None)
        assert_same(net, source, X, frame[["income", "visits"]] if named else X)
        net.save(tmp_path / "net.windtunnel")
        loaded = windtunnel.load(tmp_path / "net.windtunnel", host=source)
        np.testing.assert_array_equal(loaded.predict_proba(X), net.predict_proba(X))


def calendar(dates: pd.DataFrame) -> np.ndarray:
    """The month, weekday and hour of each column, and its days since 2024."""
    parts = [
        [d.dt.month, d.dt.day_of_week, d.dt.hour, (d - pd.Timestamp("2024-01-01")).dt.days] for _, d in dates.items()
    ]
    return np.column_stack(sum(parts, [])).astype(float)


def test_dates_become_numbers_on_the_host() -> None:
    frame = texts()[["income", "city"]]
    frame["when"] = pd.date_range("2024-01-01", periods=len(frame), freq="31h")
    frame.loc[::7, "when"] = pd.NaT
    late = (frame["when"].dt.hour > 12).to_numpy()
    source = make_pipeline(columns((FunctionTransformer(calendar), ["when"]), (one_hot(), ["city"])), quick())
    net = windtunnel.translate(source.fit(frame, late), calibrate=frame)
    assert_same(windtunnel.compile(source, calibrate=frame), source, frame)
    net.fit([(frame[:200], late[:200]), (frame[200:], late[200:])], epochs=1, progress=False)
    np.testing.assert_array_equal(net.predict(frame[:1]), source.predict(frame[:1]))


def test_few_calibration_rows() -> None:
    source, rows = fitted("neighbours in the beginning")
    with pytest.warns(UserWarning, match="calibrate= has 19 rows; .* takes 20 rows at least"):
        windtunnel.translate(source, calibrate=rows[:19]).soften()


def with_gap(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(gap=table.high - table.low)


def test_columns_of_a_function_keep_the_names_of_raw_columns() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["low", "high"])
    alone = make_pipeline(FunctionTransformer(with_gap), LogisticRegression()).fit(X, X.low > 0)
    explained = windtunnel.translate(alone, calibrate=X).explain(X[:5], X)
    assert explained.names == ["low", "high", "gap"]
    beside = make_union(FunctionTransformer(with_gap), StandardScaler())
    both = make_pipeline(beside, LogisticRegression()).fit(X, X.low > 0)
    explained = windtunnel.translate(both, calibrate=X).explain(X[:5], X)
    assert sorted(explained.names) == ["functiontransformer__high", "functiontransformer__low", "gap", "high", "low"]
    one = make_column_transformer((FunctionTransformer(np.exp), ["low"]), (StandardScaler(), ["low", "high"]))
    single = make_pipeline(one, LogisticRegression()).fit(X, X.low > 0)
    assert windtunnel.translate(single, calibrate=X).explain(X[:5], X).names == ["low", "high"]


@pytest.mark.parametrize("make", [windtunnel.translate, windtunnel.compile])
def test_columns_that_nothing_reads_may_be_missing(make: Any) -> None:
    rows = pd.DataFrame({"note": ["to be", "or not"] * 100, "id": "c", "a": np.arange(200.0)})
    parts = make_column_transformer((TfidfVectorizer(), "note"), ("passthrough", ["a"]))
    source = make_pipeline(parts, LogisticRegression()).fit(rows, np.arange(200) % 2)
    net, read = make(source), rows[["a", "note"]]
    assert list(net.read_columns) == [0, 2]
    np.testing.assert_allclose(net.predict_proba(read), source.predict_proba(read), atol=1e-12)
    with pytest.raises(BadInput, match="columns missing: 'note'"):
        net.predict_proba(rows[["a"]])


def digits(columns: Any) -> Any:
    return np.array([[len(str(value))] for value in np.asarray(columns)[:, 0]], float)


@pytest.mark.parametrize("kind", ["int64", "bool", "float64"])
def test_a_step_on_the_host_gets_arrays_in_their_type(kind: str) -> None:
    X = (np.arange(400).reshape(200, 2) % 37).astype(kind)
    parts = make_column_transformer((FunctionTransformer(digits), [0]), ("passthrough", [1]))
    source = make_pipeline(parts, LogisticRegression()).fit(X, np.arange(200) % 2)
    np.testing.assert_allclose(windtunnel.compile(source).predict_proba(X), source.predict_proba(X), atol=1e-12)
