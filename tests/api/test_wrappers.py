"""WindTunnelClassifier and WindTunnelRegressor live where scikit-learn's estimators live."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, Pool
from scipy.sparse import issparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from xgboost import XGBClassifier

import windtunnel
from windtunnel import (
    BadInput,
    InvalidOption,
    Recipe,
    UnsupportedEstimator,
    WindTunnelClassifier,
    WindTunnelRegressor,
)
from windtunnel.api import wrappers

WEIGHTS = "rows are held out and batched: a weight of 2 is not the same draw as the row twice"
SUBSET = "computed in float32, whose products of one row and of many differ in the last bit on some processors"


@parametrize_with_checks(
    [WindTunnelClassifier(recipe=Recipe(epochs=1)), WindTunnelRegressor(recipe=Recipe(epochs=1))],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
        "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
        "check_methods_subset_invariance": SUBSET,
    },
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
def test_sklearn_checks(estimator, check):
    check(estimator)


def test_cross_validation_and_grid_search():
    X, y = load_breast_cancer(return_X_y=True)
    estimator = WindTunnelClassifier(recipe=Recipe(epochs=1))
    source = cross_val_score(estimator._default(), X, y, cv=3)
    assert cross_val_score(estimator, X, y, cv=3).mean() > source.mean() - 0.02
    search = GridSearchCV(estimator, {"level": ["L1", "L4"]}, cv=2).fit(X[:200], y[:200])
    assert search.best_params_["level"] in ("L1", "L4")


def test_the_default_pipeline_takes_sparse_rows():
    rng = np.random.default_rng(0)
    X = rng.choice(["a", "b", "c"], (300, 2))
    y = (X[:, 0] == "a") ^ (rng.random(300) < 0.2)
    encoded = make_pipeline(OneHotEncoder(), WindTunnelClassifier(recipe=Recipe(epochs=1))).fit(X, y)
    np.testing.assert_allclose(windtunnel.compile(encoded).predict_proba(X), encoded.predict_proba(X), rtol=1e-9)


def test_a_search_takes_whole_recipes():
    X, y = load_breast_cancer(return_X_y=True)
    recipes = [Recipe(residual=False, epochs=1), Recipe(residual=False, epochs=2)]
    search = GridSearchCV(WindTunnelClassifier(), {"recipe": recipes}, cv=2).fit(X[:200], y[:200])
    assert search.cv_results_["param_recipe"].tolist() == recipes
    found = search.best_estimator_
    assert found.recipe in recipes and len(found.history_.epochs) == found.recipe.epochs + 1


def test_the_fraction_and_the_seed_of_a_recipe_apply():
    X, y = load_breast_cancer(return_X_y=True)
    recipe = Recipe(validation_fraction=0.5, seed=9, residual=False, epochs=1)
    estimator = WindTunnelClassifier(LogisticRegression(max_iter=5000), recipe=recipe)
    assert estimator.fit(X, y).history_.validation_rows == pytest.approx(len(y) / 2, abs=1)
    estimator.set_params(recipe__validation_fraction=0.2)
    assert estimator.fit(X, y).history_.validation_rows == pytest.approx(len(y) / 5, abs=1)
    estimator.set_params(validation_fraction=0.3)
    assert estimator.fit(X, y).history_.validation_rows == pytest.approx(0.3 * len(y), abs=1)


def test_weights_go_where_metadata_routing_sends_them():
    X, y = load_breast_cancer(return_X_y=True)
    weight = np.linspace(0.2, 2, len(y))
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, LogisticRegression().set_fit_request(sample_weight=True))
        fitted = WindTunnelClassifier(pipeline).fit(X, y, sample_weight=weight, eval_set=(X, y)).pipeline_
        expected = pipeline.fit(X, y, sample_weight=weight).predict_proba(X)
    np.testing.assert_allclose(fitted.predict_proba(X), expected, rtol=1e-12)


def test_a_pipeline_with_text_columns_in_a_frame():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"city": rng.choice(["a", "b", "c"], 300), "age": rng.normal(size=300)})
    y = np.where((X.city == "b") & (X.age > 0), "yes", "no")
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]))
    estimator = WindTunnelClassifier(make_pipeline(columns, LogisticRegression()), recipe=Recipe(epochs=2))
    estimator.fit(X, y, sample_weight=np.ones(len(y)))
    assert set(estimator.predict(X)) == {"yes", "no"}
    assert estimator.score(X, y) >= 0.85
    assert list(estimator.feature_names_in_) == ["city", "age"]


@pytest.mark.parametrize("folds", [None, 2])
def test_an_encoder_with_sparse_output(folds):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"city": rng.choice([f"city {one}" for one in range(30)], 400), "age": rng.normal(size=400)})
    y = (X.city.str[5:].astype(int) + 5 * X.age > 15).to_numpy()
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age"]))
    assert issparse(columns.fit_transform(X))
    estimator = WindTunnelClassifier(LogisticRegression(), recipe=Recipe(epochs=1), folds=folds)
    pipeline = make_pipeline(columns, estimator).fit(X, y)
    assert pipeline.score(X, y) >= 0.85
    dense = estimator.translation_.predict_proba(columns.transform(X).toarray())
    # Sums over the numbers that are stored add them in another order.
    np.testing.assert_allclose(pipeline.predict_proba(X), dense, rtol=1e-12)


def test_the_result_is_no_worse_than_the_source_on_held_out_rows():
    X, y = load_diabetes(return_X_y=True)
    estimator = WindTunnelRegressor(
        lgb.LGBMRegressor(n_estimators=10, num_leaves=7, verbosity=-1), recipe=Recipe(epochs=2, learning_rate=10.0)
    )
    history = estimator.fit(X, y).history_
    assert history.best <= history.start


def test_estimators_have_the_methods_of_their_pipeline():
    assert not hasattr(WindTunnelRegressor(), "predict_proba")
    from sklearn.svm import LinearSVC

    assert not hasattr(WindTunnelClassifier(LinearSVC()), "predict_proba")
    assert hasattr(WindTunnelClassifier(LinearSVC()), "decision_function")
    assert not hasattr(WindTunnelClassifier(LinearSVC()), "predict_log_proba")
    X, y = load_breast_cancer(return_X_y=True)
    fitted = WindTunnelClassifier(recipe=Recipe(epochs=1)).fit(X, y)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), fitted.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("folds", [1, 2.5, "many"])
def test_invalid_folds(folds):
    with pytest.raises(InvalidOption, match=f"folds={folds!r}"):
        clone(WindTunnelClassifier(folds=folds)).fit(np.eye(40)[:, :4], [0, 1] * 20)


def test_the_random_state_draws_the_folds(monkeypatch):
    seeds = []

    def recorded(*args, seed, **options):
        seeds.append(seed)
        return windtunnel.crossfit(*args, seed=seed, **options)

    monkeypatch.setattr(wrappers, "crossfit", recorded)
    X, y = load_breast_cancer(return_X_y=True)
    for random_state in (3, None):
        WindTunnelClassifier(folds=2, random_state=random_state, recipe=Recipe(epochs=1, seed=7)).fit(X, y)
    assert seeds == [3, 7]


def test_folds_make_members():
    X, y = load_breast_cancer(return_X_y=True)
    model = WindTunnelClassifier(make_pipeline(StandardScaler(), LogisticRegression()), recipe=Recipe(epochs=1))
    model = model.fit(X, y).set_params(folds=3).fit(X, y)
    assert not hasattr(model, "pipeline_")
    assert sum("estimators_.2" in origin.name for origin in model.translation_.origins) > 0
    assert model.score(X, y) > 0.95 and model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (WindTunnelRegressor(LogisticRegression()), "ends in a regressor, which LogisticRegression does not; use "),
        (WindTunnelClassifier(lgb.LGBMRegressor()), "which LGBMRegressor does not; use WindTunnelRegressor"),
    ],
    ids=["classifier", "regressor"],
)
def test_a_pipeline_of_the_other_kind(estimator, message):
    with pytest.raises(InvalidOption, match=message):
        estimator.fit(np.eye(4), [0, 1, 0, 1])


def test_translating_a_tuned_estimator_points_to_its_translation():
    X, y = load_breast_cancer(return_X_y=True)
    fitted = WindTunnelClassifier(LogisticRegression(max_iter=5000), recipe=Recipe(epochs=1)).fit(X[:, :3], y)
    with pytest.raises(UnsupportedEstimator, match="compile or export its translation_ as it is"):
        windtunnel.translate(fitted)


STOPPING = {
    "lightgbm": (
        lgb.LGBMClassifier(n_estimators=200, early_stopping_round=3, verbosity=-1),
        lambda X, y, weight: {"eval_X": X, "eval_y": y, "eval_sample_weight": [weight]},
    ),
    "xgboost": (
        XGBClassifier(n_estimators=200, early_stopping_rounds=3, n_jobs=1),
        lambda X, y, weight: {"eval_set": [(X, y)], "sample_weight_eval_set": [weight], "verbose": False},
    ),
    "catboost": (
        CatBoostClassifier(iterations=200, early_stopping_rounds=3, verbose=False, allow_writing_files=False),
        lambda X, y, weight: {"eval_set": Pool(X, y, weight=weight)},
    ),
}


def test_a_class_with_one_row_leaves_rows_for_validation():
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    y[7] = "once"
    used, held = WindTunnelClassifier()._split(y, None, Recipe())
    assert 7 in used and len(held) == 30
    assert sorted([*used, *held]) == [*range(300)]
    assert "on 30 validation rows" in str(WindTunnelClassifier(recipe=Recipe(epochs=1)).fit(X, y).history_)


def test_too_few_rows_to_hold_out_are_reported_as_training_rows():
    with pytest.warns(
        UserWarning, match="cannot hold training rows out: 1 rows with a weight above 0 are too few. It validates"
    ):
        history = WindTunnelRegressor(recipe=Recipe(epochs=1)).fit([[0.0]], [1.0]).history_
    assert "on 1 training rows" in str(history)


@pytest.mark.parametrize("fraction", [0, 1, 5, "0.1"])
def test_a_fraction_out_of_range_is_rejected(fraction):
    with pytest.raises(InvalidOption, match=r"validation_fraction=.* must be in \(0, 1\)"):
        WindTunnelRegressor(validation_fraction=fraction).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.filterwarnings("ignore:the translation keeps R2")  # of trees softened by few rows
@pytest.mark.parametrize("library", STOPPING)
def test_a_booster_stops_early_on_held_out_rows(library):
    booster, rows_to_stop_by = STOPPING[library]
    X, y = load_breast_cancer(return_X_y=True)
    weight = np.random.default_rng(0).uniform(0.1, 2, len(y))
    pipeline = make_pipeline(StandardScaler(), make_pipeline("passthrough", booster))
    estimator = WindTunnelClassifier(pipeline, recipe=Recipe(epochs=1)).fit(X, y, weight)
    used, held = estimator._split(y, None, Recipe())
    scaler = StandardScaler().fit(X[used])
    rows = rows_to_stop_by(scaler.transform(X[held]), y[held], weight[held])
    source = clone(booster).fit(scaler.transform(X[used]), y[used], sample_weight=weight[used], **rows)
    np.testing.assert_array_equal(
        estimator.pipeline_.predict_proba(X), source.predict_proba(scaler.transform(X)), strict=True
    )


@pytest.mark.parametrize("labels", [[1, 2], ["no", "yes"]])
@pytest.mark.parametrize("library", ["lightgbm", "catboost"])  # XGBoost takes no others than 0, 1, ...
def test_a_booster_stops_early_with_labels_of_any_kind(library, labels):
    booster, _ = STOPPING[library]
    X, y = load_breast_cancer(return_X_y=True)
    first, second = (
        WindTunnelClassifier(booster, recipe=Recipe(epochs=1)).fit(X, np.array(names)[y]).pipeline_
        for names in ([0, 1], labels)
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X), strict=True)


def test_members_have_as_many_trees_as_early_stopping_leaves():
    booster, _ = STOPPING["lightgbm"]
    X, y = load_breast_cancer(return_X_y=True)
    one, several = (
        WindTunnelClassifier(booster, folds=folds, recipe=Recipe(epochs=1)).fit(X, y) for folds in (None, 2)
    )
    trees = [len(step.module.ensemble().output) for step in several.translation_.program.steps if "Trees" in str(step)]
    assert trees == [one.pipeline_.best_iteration_] * 2 != [200] * 2


@pytest.mark.parametrize("library", STOPPING)
def test_members_without_rows_to_stop_early(library):
    booster, _ = STOPPING[library]
    with pytest.raises(
        BadInput, match=r"stops early on validation rows \(early_stopping_rounds?=3\), .* give it fitted"
    ):
        windtunnel.crossfit(make_pipeline(StandardScaler(), booster), *load_breast_cancer(return_X_y=True))


TEXTS = ["good film", "bad film", "good plot", "bad plot"] * 30


@pytest.mark.parametrize("folds", [None, 2])
@pytest.mark.parametrize("form", [list, np.array, pd.Series])
def test_texts_are_rows_of_one_column(form, folds):
    pipeline = make_pipeline(TfidfVectorizer(), LogisticRegression())
    y = [1, 0, 1, 0] * 30
    tuned = WindTunnelClassifier(pipeline, folds=folds, recipe=Recipe(epochs=1)).fit(form(TEXTS), y)
    assert tuned.predict(form(TEXTS[:4])).tolist() == y[:4]
    assert windtunnel.crossfit(pipeline, form(TEXTS), y, folds=2, progress=False).predict(TEXTS[:2]).tolist() == [1, 0]


@pytest.mark.parametrize("state", [np.int64(3), np.random.RandomState(3)])
def test_random_states_of_numpy(state):
    X, y = load_breast_cancer(return_X_y=True)
    tuned = WindTunnelClassifier(recipe=Recipe(epochs=1), random_state=state).fit(X[:200], y[:200])
    assert tuned.score(X[200:], y[200:]) > 0.8


def test_unknown_arguments():
    with pytest.raises(InvalidOption, match=r"levl= is no argument of WindTunnelClassifier: did you mean level\?"):
        WindTunnelClassifier(levl="L1")
    with pytest.raises(
        InvalidOption,
        match=r"pass options of fine-tuning to WindTunnelRegressor as recipe=windtunnel.Recipe\(epochs=2\)",
    ):
        WindTunnelRegressor(epochs=2)
    with pytest.raises(InvalidOption, match=r"n_trials= is no argument of sweep: did you mean trials\?"):
        windtunnel.sweep(None, None, None, n_trials=3)


def test_a_fitted_wrapper_reports_on_test_rows_and_exports(tmp_path):
    X, y = load_breast_cancer(return_X_y=True)
    estimator = WindTunnelClassifier(recipe=Recipe(residual=False, epochs=1))
    with pytest.raises(NotFittedError):
        _ = estimator.history_
    estimator.fit(X[:300], y[:300])
    assert "fine-tuned" in estimator.report((X[300:], y[300:])).test_scores
    estimator.export(tmp_path / "model.c")
    assert (tmp_path / "model.c").stat().st_size


def test_a_fit_that_fails_leaves_the_estimator_as_it_was(monkeypatch):
    X, y = make_classification(300, random_state=0)
    model = WindTunnelClassifier(recipe=Recipe(epochs=1)).fit(X, y)
    before = model.translation_, model.pipeline_, model.history_
    with pytest.raises(InvalidOption, match="does not fit a binary model"):
        model.set_params(recipe=Recipe(metric="rmse")).fit(X[:, :10], 1 - y)
    assert (model.translation_, model.pipeline_, model.history_) == before and len(model.predict(X)) == 300

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("windtunnel.trainers.finetune.calibration", interrupted)  # after the installation
    with pytest.raises(KeyboardInterrupt):
        model.set_params(recipe=Recipe(epochs=2)).fit(X[:, :10], np.where(y, "no", "yes"))
    assert model.translation_ is not before[0] and model.history_ is not before[2]
    assert model.classes_.tolist() == ["no", "yes"] and {*model.predict(X[:, :10])} == {"no", "yes"}


def test_options_of_the_translation_are_checked_before_anything_is_fitted():
    X, y = load_breast_cancer(return_X_y=True)
    for folds in ("auto", 2):
        with pytest.raises(InvalidOption, match="level='L9'"):
            WindTunnelClassifier(FailingClassifier(), level="L9", folds=folds).fit(X, y)


class FailingClassifier(ClassifierMixin, BaseEstimator):
    """Must not be fitted."""

    def fit(self, X, y):
        raise AssertionError


def test_a_fitted_wrapper_is_compiled_as_its_translation() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    fitted = WindTunnelClassifier(make_pipeline(StandardScaler(), LogisticRegression()), recipe=Recipe(epochs=1))
    fitted.fit(X, y)
    np.testing.assert_allclose(windtunnel.compile(fitted).predict_proba(X), fitted.predict_proba(X), atol=1e-5)


def test_rows_that_are_given_in_another_way_are_named() -> None:
    X, y = frame_and_labels()
    estimator, train, valid = WindTunnelClassifier(LogisticRegression()), (X[:80], y[:80]), (X[80:], y[80:])
    for arguments in ((train, valid), (*train, valid)):
        with pytest.raises(BadInput, match=r"validation rows are eval_set=\(X, y\)"):
            estimator.fit(*arguments)
    with pytest.raises(BadInput, match="eval_set has 2 sets of rows; give one"):
        estimator.fit(X, y, eval_set=[train, valid])
    labels = np.where(y, "yes", "no").astype(object)
    labels[3] = None
    with pytest.raises(BadInput, match="1 of 120 targets are missing"):
        estimator.fit(X, labels)


def test_translations_are_no_pipelines() -> None:
    X, y = frame_and_labels()
    net = windtunnel.translate(LogisticRegression().fit(X, y))
    with pytest.raises(InvalidOption, match="pipeline is a translation"):
        WindTunnelClassifier(net).fit(X, y)
    with pytest.raises(UnsupportedEstimator, match="not its translation"):
        windtunnel.crossfit(net, X, y)
    with pytest.raises(InvalidOption, match="crossfit takes the weights of rows as weight="):
        windtunnel.crossfit(LogisticRegression(), X, y, sample_weight=np.ones(len(y)))


def test_missing_numbers_that_the_source_takes_are_taken_by_a_selector() -> None:
    X, y = frame_and_labels()
    X = X.mask(X > 2)
    estimator = WindTunnelClassifier(lgb.LGBMClassifier(n_estimators=3, verbosity=-1), recipe=Recipe(epochs=1))
    selector = SequentialFeatureSelector(estimator, n_features_to_select=1, cv=2).fit(X, y)
    assert selector.get_support().sum() == 1


def frame_and_labels() -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(120, 3)), columns=list("abc"))
    return X, (X["a"] + random.normal(size=120) > 0).to_numpy().astype(int)


def test_tuples_of_rows_labels_and_weights_are_fitted() -> None:
    X, y = frame_and_labels()
    estimator = WindTunnelClassifier(LogisticRegression(), recipe=Recipe(epochs=1))
    wanted = estimator.fit(X.to_numpy(), y, np.ones(120)).predict_proba(X.to_numpy())
    estimator.fit(tuple(map(tuple, X.to_numpy().tolist())), tuple(y.tolist()), (1.0,) * 120)
    np.testing.assert_array_equal(estimator.predict_proba(X.to_numpy()), wanted)
    texts = ("good day", "bad day") * 30
    source = make_pipeline(TfidfVectorizer(), LogisticRegression())
    assert WindTunnelClassifier(source, recipe=Recipe(epochs=1)).fit(texts, (1, 0) * 30).predict(texts)[
        :2
    ].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["no"] * 49, "y of eval_set has 49 values for 50 rows"),
        (["no"] * 49 + [None], "1 of 50 targets are missing"),
        (["no"] * 49 + ["perhaps"], "eval_set has the labels 'perhaps', which the training rows have not"),
    ],
)
def test_validation_rows_are_checked_before_a_booster_reads_them(target, message):
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    estimator = WindTunnelClassifier(lgb.LGBMClassifier(n_estimators=5, early_stopping_round=2, verbosity=-1))
    with pytest.raises(BadInput, match=message):
        estimator.fit(X, y, eval_set=(X[:50], np.array(target, dtype=object)))
