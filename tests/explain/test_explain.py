"""Explanations add up to the raw score, and agree with shap and LightGBM."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

import windtunnel
from windtunnel.errors import BadInput, InvalidOption
from windtunnel.program.installed_residuals import InstalledResiduals
from windtunnel.program.translated import TranslatedPipeline

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap calls a deprecated function of matplotlib
    import shap

ROWS = 300
TREES = {"n_estimators": 12, "num_leaves": 8, "min_child_samples": 5, "verbosity": -1, "n_jobs": 1}


def table(rows: int = ROWS, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Numbers with gaps and a category; a target of two classes and one of three."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows), "city": rng.choice(list("xyzw"), rows)})
    signal = X["a"] + 2 * (X["city"] == "x") + X["b"] * (X["city"] == "y") + 0.3 * rng.normal(size=rows)
    X.loc[rng.random(rows) < 0.1, "b"] = np.nan
    return X, (signal > 0.4).astype(int).to_numpy(), np.digitize(signal, [0, 1.2])


def encoded(categories, model):
    return make_pipeline(make_column_transformer((categories, ["city"]), remainder="passthrough"), model)


def linear(model):
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), (numbers, ["a", "b"]))
    return make_pipeline(parts, model)


def awkward() -> pd.DataFrame:
    """Rows with a missing number and an unseen category."""
    X = table(40, seed=1)[0]
    X.loc[3, "city"], X.loc[4, "b"] = "unseen", np.nan
    return X


def exact(pipeline, dtype: str = "float64") -> windtunnel.Translation:
    return windtunnel.compile(pipeline, dtype=dtype)


def check_sum(net: TranslatedPipeline, explanation: windtunnel.Explanation, X) -> None:
    total = explanation.base + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, net.scores(X).double().numpy(), atol=1e-6)


def of_raw_columns(source: make_pipeline, contributions: np.ndarray) -> np.ndarray:
    """Contributions of encoded columns, added up by raw column: a, b, city."""
    names = [name.split("__")[1].split("_")[0] for name in source[0].get_feature_names_out()]
    return np.stack([contributions[:, [n == raw for n in names]].sum(axis=1) for raw in ("a", "b", "city")], axis=1)


@pytest.mark.parametrize("categories", [OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                                        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)],
                         ids=["one-hot", "ordinal"])  # fmt: skip
@pytest.mark.parametrize("target", [1, 2], ids=["binary", "multiclass"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names", "ignore:LightGBM binary classifier")
def test_lightgbm_agrees_with_shap_and_pred_contrib(categories, target) -> None:
    data = table()
    source = encoded(categories, LGBMClassifier(**TREES)).fit(data[0], data[target])
    X = awkward()
    net, inputs = exact(source), source[0].transform(X)
    explanation = net.explain(X)
    contributions = source[-1].booster_.predict(inputs, pred_contrib=True).reshape(len(X), -1, inputs.shape[1] + 1)
    for k in range(len(explanation.base)):
        expected = of_raw_columns(source, contributions[:, k, :-1])
        np.testing.assert_allclose(explanation.values[:, :, k], expected, atol=1e-9)
        np.testing.assert_allclose(explanation.base[k], contributions[0, k, -1], atol=1e-9)
    oracle = np.asarray(shap.TreeExplainer(source[-1].booster_).shap_values(inputs)).reshape(*inputs.shape, -1)
    np.testing.assert_allclose(explanation.values, of_raw_columns(source, oracle), atol=1e-9)
    assert explanation.names == ["a", "b", "city"] and explanation.standard_error is None
    check_sum(net, explanation, X)


SHAP_MODELS = {
    "forest": (RandomForestClassifier(10, max_depth=5, random_state=0), 1),
    "boosting": (GradientBoostingClassifier(n_estimators=10, random_state=0), 1),
    "histogram boosting": (HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5), 2),
}


@pytest.mark.parametrize("name", SHAP_MODELS)
def test_trees_of_scikit_learn_agree_with_shap(name) -> None:
    model, target = SHAP_MODELS[name]
    data = table()
    X = data[0][["a", "b"]].fillna(0.0)
    model = model.fit(X.to_numpy(), data[target])
    net = exact(model)
    explanation = net.explain(X.to_numpy())
    oracle = shap.TreeExplainer(model).shap_values(X.to_numpy())
    np.testing.assert_allclose(explanation.values, np.asarray(oracle).reshape(len(X), 2, -1), atol=1e-6)
    check_sum(net, explanation, X.to_numpy())
    assert explanation.names == ["x0", "x1"]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_flags_of_missing_numbers_belong_to_their_column() -> None:
    X, y, _ = table()
    rows = X[["a", "b"]]
    source = make_pipeline(SimpleImputer(add_indicator=True), LGBMClassifier(**TREES)).fit(rows, y)
    contributions = source[-1].booster_.predict(source[0].transform(rows), pred_contrib=True)
    expected = np.stack([contributions[:, 0], contributions[:, 1] + contributions[:, 2]], axis=1)
    explanation = exact(source).explain(rows)
    np.testing.assert_allclose(explanation.values[:, :, 0], expected, atol=1e-9)


def test_native_categories_agree_with_pred_contrib() -> None:
    X, y, _ = table()
    X["city"] = X["city"].astype("category")
    model = LGBMClassifier(**TREES).fit(X, y)
    net = exact(model)
    rows = X.head(30)
    expected = model.booster_.predict(rows, pred_contrib=True)
    np.testing.assert_allclose(net.explain(rows).values[:, :, 0], expected[:, :-1], atol=1e-9)


@pytest.mark.parametrize("model", [LogisticRegression(), Ridge()], ids=["logistic", "ridge"])
def test_linear_models_are_weights_times_distances_from_the_background(model) -> None:
    X, y, _ = table()
    source = linear(model).fit(X, y)
    rows, background = awkward(), X.head(50)
    for net in (exact(source), windtunnel.translate(source, calibrate=X)):
        explanation = net.explain(rows, background)
        weights, inputs, compared = model.coef_.reshape(-1), *(source[0].transform(part) for part in (rows, background))
        weighted = np.asarray((inputs - compared.mean(axis=0)) * weights)
        city = weighted[:, : weighted.shape[1] - 2].sum(axis=1)
        expected = np.stack([weighted[:, -2], weighted[:, -1], city], axis=1)
        np.testing.assert_allclose(explanation.values[:, :, 0], expected, atol=1e-5)
        check_sum(net, explanation, rows)


def test_a_linear_model_behind_components_is_exact_too() -> None:
    X, y, _ = table()
    X = X[["a", "b"]].fillna(0.0)
    net = exact(make_pipeline(StandardScaler(), PCA(2), LogisticRegression()).fit(X, y))
    explanation = net.explain(X.head(20), X)
    assert explanation.standard_error is None
    check_sum(net, explanation, X.head(20))


def test_trees_behind_components_are_sampled_with_a_standard_error() -> None:
    X, y, _ = table()
    X = X[["a", "b"]].fillna(0.0)
    net = exact(make_pipeline(PCA(2), LGBMClassifier(**TREES)).fit(X.to_numpy(), y))
    rows, background = X.head(10).to_numpy(), X.tail(200).to_numpy()
    explanation = net.explain(rows, background, samples=100)
    check_sum(net, explanation, rows)

    def mean_score(known: list[int]) -> np.ndarray:
        mixed = np.repeat(background[None], len(rows), axis=0)
        mixed[:, :, known] = rows[:, None, known]
        return net.scores(mixed.reshape(-1, 2)).numpy().reshape(len(rows), -1).mean(axis=1)

    nobody, first, second, both = (mean_score(known) for known in ([], [0], [1], [0, 1]))
    shapley = np.stack([first - nobody + both - second, second - nobody + both - first], axis=1) / 2
    assert explanation.standard_error is not None
    distance = np.abs(explanation.values[:, :, 0] - shapley) / explanation.standard_error[:, :, 0]
    assert np.median(distance) < 1.5 and distance.max() < 5
    assert "sampled" in explanation.method


def test_texts_are_one_column() -> None:
    texts = ["red car", "blue car", "red bus", "green bus"] * 10
    source = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, [0, 1, 0, 1] * 10)
    net = exact(source)
    explanation = net.explain(texts[:4])
    assert explanation.names == ["text"] and explanation.data["text"].tolist() == texts[:4]
    check_sum(net, explanation, texts[:4])


@pytest.fixture(scope="module")
def trained() -> tuple[windtunnel.Translation, pd.DataFrame, np.ndarray]:
    """A linear pipeline that misses an interaction, which the residual model finds."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": rng.choice(list("uvwx"), 3000), "b": rng.choice(list("pqrs"), 3000), "c": rng.normal(size=3000)}
    )
    y = ((X["a"].isin(["u", "v"]) ^ X["b"].isin(["p", "q"])) | (rng.random(3000) < 0.1)).astype(int)
    parts = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["a", "b"]), (StandardScaler(), ["c"]))
    net = windtunnel.translate(make_pipeline(parts, LogisticRegression()).fit(X, y), calibrate=X)
    net.fit((X[:2000], y[:2000]), (X[2000:], y[2000:]), epochs=2, progress=False)
    return net, X, y.to_numpy()


@pytest.fixture
def fitted(trained) -> tuple[windtunnel.Translation, pd.DataFrame]:
    return trained[:2]


def test_a_residual_model_has_terms_of_columns_and_interactions(fitted, tmp_path) -> None:
    net, X = fitted
    rows = X.head(50)
    explanation = net.explain(rows, X)
    assert explanation.columns[:4] == (("a",), ("b",), ("c",), ("a", "b"))
    assert explanation.importance().index[0] == "a x b"
    check_sum(net, explanation, rows)
    net.save(tmp_path / "model.windtunnel")
    loaded = windtunnel.load(tmp_path / "model.windtunnel").explain(rows, X)
    np.testing.assert_array_equal(loaded.values, explanation.values)


def test_the_report_names_the_terms_of_the_residual_model(fitted, tmp_path) -> None:
    net, X = fitted
    assert net.history is not None and net.history.calibration is not None
    term = net.history.terms[0]
    assert term.columns == ("a", "b") and term.gain > 0 and term.low < 0 < term.high
    cell = term.cells[0]
    assert cell.rows == sum((X[:2000]["a"] == cell.values[2]) & (X[:2000]["b"] == cell.values[8]))
    assert cell.values == f"a={cell.values[2]} x b={cell.values[8]}"
    assert cell.text("log-odds") in " ".join(str(net.report()).split())
    report = json.loads(net.report().to_json())
    assert report["history"]["terms"][0]["columns"] == ["a", "b"]
    assert "<svg" in net.report().to_html()
    net.save(tmp_path / "model.windtunnel")
    assert windtunnel.load(tmp_path / "model.windtunnel").history == net.history


def test_cells_name_the_terms_that_occur() -> None:
    words = np.random.default_rng(0).random((4000, 3)) < 0.5
    frame = pd.DataFrame({"text": [" ".join(np.array(["red", "green", "blue"])[row]) for row in words]})
    y = words[:, 0] ^ words[:, 1]
    counts = make_column_transformer((CountVectorizer(binary=True), "text"))
    source = make_pipeline(counts, LogisticRegression()).fit(frame, y)
    net = windtunnel.translate(source).fit((frame[:2000], y[:2000]), (frame[2000:], y[2000:]), progress=False)
    cells = [cell.values for term in net.history.terms for cell in term.cells]
    assert any("'red'=1" in cell for cell in cells) and not any("=0" in cell for cell in cells)


def test_bins_of_whole_numbers_are_named_by_their_value() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"hour": rng.integers(0, 24, 3000), "member": rng.random(3000) < 0.5})
    y = ((X["hour"] == 18) & X["member"]) | (rng.random(3000) < 0.1)
    net = windtunnel.translate(LogisticRegression().fit(X, y), calibrate=X)
    net.fit((X[:2000], y[:2000]), (X[2000:], y[2000:]), epochs=1, progress=False)
    cells = [cell.values for term in net.history.terms for cell in term.cells]
    assert "hour=18 x member=1" in cells


def test_calibration_errors_are_those_of_ten_bins(trained) -> None:
    net, X, y = trained
    calibration, probability, labels = net.history.calibration, net.predict_proba(X[2000:])[:, 1], y[2000:]
    bins = np.clip((probability * 10).astype(int), 0, 9)
    parts = [(bins == place) for place in range(10) if (bins == place).any()]
    error = sum(part.mean() * abs(probability[part].mean() - labels[part].mean()) for part in parts)
    assert calibration.rows == 1000
    np.testing.assert_allclose(calibration.after.error, error, atol=1e-6)


def test_loaded_trees_keep_their_training_counts(tmp_path) -> None:
    X, y, _ = table()
    source = encoded(OrdinalEncoder(), LGBMRegressor(**TREES)).fit(X, y)
    net = exact(source)
    net.save(tmp_path / "model.windtunnel")
    explanation = windtunnel.load(tmp_path / "model.windtunnel").explain(X.head(1))
    np.testing.assert_array_equal(explanation.values, net.explain(X.head(1)).values)


def test_frame_text_and_plots(fitted, tmp_path) -> None:
    net, X = fitted
    explanation = net.explain(X.head(20), X)
    frame = explanation.to_frame()
    assert [*frame][:5] == ["base", "a", "b", "c", "a x b"] and [*frame][-1] == "score"
    np.testing.assert_allclose(frame["score"], frame.drop(columns="score").sum(axis=1))
    assert "a x b" in repr(explanation) and "<table>" in explanation._repr_html_()
    row = int(explanation.values[:, :, 0].min(axis=1).argmin())
    of_one = net.explain(X.iloc[row : row + 1], X)
    lowest = int(of_one.values[0, :, 0].argmin())
    assert of_one.values.min() < 0 and f"{of_one.values.min():8.4f}  {of_one.names[lowest]}" in repr(of_one)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    bars, waterfall = explanation.plot(), explanation.plot(row=3)
    assert bars.get_yticklabels()[0].get_text() == "a x b"
    assert waterfall.get_yticklabels()[-1].get_text() == "score"
    pyplot.close("all")


def test_several_classes_have_a_row_and_a_bar_for_each() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    X, _, y = table()
    net = exact(encoded(OrdinalEncoder(), LGBMClassifier(**TREES)).fit(X, y))
    explanation = net.explain(X.head(5))
    assert explanation.outputs == ("0", "1", "2")
    frame = explanation.to_frame()
    assert frame["output"].tolist() == ["0", "1", "2"] * 5
    same_labels = net.explain(X.head(5).iloc[::-1].set_axis([1, 0, 1, 0, 0])).to_frame()
    assert same_labels.index.tolist() == np.repeat([1, 0, 1, 0, 0], 3).tolist()
    np.testing.assert_allclose(same_labels["score"].to_numpy().reshape(5, 3), net.scores(X.head(5).iloc[::-1]))
    assert len(explanation.plot().get_legend().get_texts()) == 3
    explanation.plot(row=-1, output="2")
    pyplot.close("all")
    with pytest.raises(BadInput, match="output='x'; there are '0', '1', '2'"):
        explanation.plot(row=0, output="x")


def test_residual_models_behind_scores_that_are_joined() -> None:
    """Compiled, the scores of both targets would otherwise go into the sum with the residual model one by one."""
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 3)).round(1)
    y = np.column_stack([np.where(X[:, 1] * X[:, 2] > 0, 2.0, 0.0) + X[:, 0], X[:, 1]])
    net = windtunnel.translate(MultiOutputRegressor(Ridge()).fit(X, y))
    train, valid = (X[:2000], y[:2000]), (X[2000:], y[2000:])
    net.fit(train, valid, epochs=3, progress=False, accelerator="cpu")
    assert InstalledResiduals.of(net.program)
    compiled = windtunnel.compile(net)
    for explanation in (net.explain(X[:20]), compiled.explain(X[:20])):
        sums = explanation.base + explanation.values.sum(axis=1)
        np.testing.assert_allclose(sums, net.scores(X[:20]), rtol=1e-5, atol=1e-5)
    compiled.fit(train, valid, epochs=3, progress=False, accelerator="cpu")
    assert len(compiled.program.steps) <= len(net.program.steps) + 1


def test_scores_of_pairs_of_classes_are_named_so() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    source = SVC().fit(X, np.digitize(X[:, 0] + X[:, 1], [-0.8, 0.8]))
    explained = windtunnel.translate(source).explain(X[:100], X[:50])
    assert explained.outputs == ("0 rather than 1", "0 rather than 2", "1 rather than 2")
    scores = explained.values.sum(axis=1) + explained.base
    pairs = [output.split(" rather than ") for output in explained.outputs]
    most = []
    for row in scores:
        votes = [pair[int(score <= 0)] for pair, score in zip(pairs, row, strict=True)]
        most.append(max("012", key=votes.count))
    assert np.mean(most == source.predict(X[:100]).astype(str)) > 0.95


def test_what_cannot_be_explained() -> None:
    X, y, _ = table()
    net = exact(linear(LogisticRegression()).fit(X, y))
    with pytest.raises(BadInput, match="give several, or background="):
        net.explain(X.head(1))
    with pytest.raises(BadInput, match="got 0 rows"):
        exact(LGBMClassifier(n_estimators=2, verbosity=-1).fit(X[["a"]], y)).explain(X[["a"]].head(0))
    with pytest.raises(BadInput, match="ends in a transformer"):
        exact(StandardScaler().fit(X[["a"]])).explain(X[["a"]])
    with pytest.raises(BadInput, match="samples=1"):
        net.explain(X, samples=1)
    assert torch.isfinite(net.scores(X)).all()


@pytest.mark.parametrize("make", [windtunnel.compile, windtunnel.translate])
def test_terms_that_share_a_norm_are_not_additive(make):
    generator = np.random.default_rng(0)
    words = ["red", "green", "blue", "cat dog", "dog", "cat"]
    rows = pd.DataFrame({"a": generator.choice(words, 100), "b": generator.choice(words, 100)})
    counts = ColumnTransformer([("a", CountVectorizer(), "a"), ("b", CountVectorizer(), "b")])
    pipeline = make_pipeline(counts, TfidfTransformer(), LogisticRegression(C=100)).fit(
        rows, generator.integers(0, 2, 100)
    )
    net = make(pipeline)
    explained = net.explain(rows[:10], rows)
    np.testing.assert_allclose(explained.base + explained.values.sum(axis=1), net.scores(rows[:10]).numpy(), atol=1e-9)


def test_columns_may_have_the_names_of_the_frame():
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["score", "score (term)", "output"])
    net = windtunnel.compile(LogisticRegression().fit(rows, rows["score"] > 0))
    explained = net.explain(rows[:4], rows)
    frame = explained.to_frame()
    assert frame.columns.tolist() == ["base", "score (term) (term)", "score (term)", "output", "score"]
    np.testing.assert_array_equal(frame.to_numpy()[:, 1:4], explained.values[:, :, 0])


def test_without_matplotlib_the_extra_is_named(fitted, monkeypatch) -> None:
    net, X = fitted
    monkeypatch.setattr("windtunnel.errors.find_spec", lambda name: None)
    with pytest.raises(InvalidOption, match=r"pip install '\.\[explain\]'"):
        net.explain(X.head(3)).plot()
