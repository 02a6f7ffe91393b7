"""Bad input from the outside: each error says what was given, what is accepted, what to do; nothing learned is lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from case import NUMBERS, columns, logistic, ordinal, quick, table, targets
from cases import CASES
from lightgbm import LGBMRegressor
from sklearn.cluster import DBSCAN
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_selection import SelectPercentile, f_classif
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import windtunnel
from windtunnel.encode import Batch
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator
from windtunnel.translators.not_fitted import NotFitted

FRAME = table()
Y = targets(FRAME)
QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 64, "progress": False, "accelerator": "cpu"}


def says(error: pytest.ExceptionInfo[Exception], text: str) -> None:
    """The whole message, with one ``...`` where wording of other libraries comes in."""
    first, _, last = text.partition("...")
    message = str(error.value)
    assert message == text or ("..." in text and message.startswith(first) and message.endswith(last)), message


def linear() -> Any:
    return make_pipeline(
        columns((OneHotEncoder(), ["city"]), (StandardScaler(), ["age", "income"]), sparse_threshold=0), logistic()
    ).fit(FRAME[["age", "income", "city"]], Y["label"])


@pytest.fixture
def net() -> windtunnel.Translation:
    """A city that rejects unknown categories, two scaled numbers, a logistic regression."""
    return windtunnel.translate(linear())


@pytest.fixture
def rows() -> pd.DataFrame:
    return FRAME[["age", "income", "city"]].copy()


# What cannot be translated

NOT_TRANSLATED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unfitted": (
        lambda: make_pipeline(StandardScaler(), logistic()),
        NotFitted,
        "step 'standardscaler' (StandardScaler) is not fitted; call fit on the pipeline, then translate it.",
    ),
    "class": (lambda: LogisticRegression, NotFitted, "LogisticRegression is a class; give a fitted instance."),
    "pipeline of classes": (
        lambda: make_pipeline("passthrough", StandardScaler).set_params(),
        NotFitted,
        "StandardScaler is a class; give a fitted instance.",
    ),
    "random answers at the end": (
        lambda: make_pipeline(StandardScaler(), DummyClassifier(strategy="uniform")).fit(FRAME[["age"]], Y["label"]),
        UnsupportedEstimator,
        "step 'dummyclassifier': DummyClassifier(strategy='uniform') predicts at random; ...or 'constant'.",
    ),
    "subclass": (
        lambda: type("Mine", (LogisticRegression,), {})().fit(FRAME[["age"]], Y["label"]),
        UnsupportedEstimator,
        "step 'Mine': no translation for ...Mine; its parent LogisticRegression has one, but a subclass may compute "
        "something else. Register a converter with @windtunnel.translates(Mine).",
    ),
    "a class that has no rows to answer": (
        lambda: DBSCAN().fit(FRAME[["age"]]),
        UnsupportedEstimator,
        "step 'DBSCAN': no translation for ...DBSCAN, as its output is about the rows that it was fitted on; it has no "
        "predict or transform for others.",
    ),
    "selection of nothing": (
        lambda: SelectPercentile(f_classif, percentile=0).fit(FRAME[["age"]], Y["label"]),
        UnsupportedEstimator,
        "step 'SelectPercentile' gives no columns: its output has the shape [rows, 0]. Fit it again so that it "
        "keeps some, or leave it out.",
    ),
    "flags of nothing": (
        lambda: make_union(MissingIndicator()).fit(FRAME[["age"]]),
        UnsupportedEstimator,
        "FeatureUnion gives no columns: its output has the shape [rows, 0]. Fit it again so that it keeps some, "
        "or leave it out.",
    ),
    "a predictor of nothing": (
        lambda: make_pipeline(MissingIndicator(), DummyClassifier()).fit(FRAME[["age"]], Y["label"]),
        UnsupportedEstimator,
        "step 'dummyclassifier' is given no columns, as the steps before it keep none of theirs; fit the pipeline "
        "again so that they keep some, or leave them out.",
    ),
    "rows": (
        lambda: FRAME,
        UnsupportedEstimator,
        "DataFrame is not an estimator; give a fitted scikit-learn pipeline, a fitted estimator or a Booster.",
    ),
    "nothing": (
        lambda: None,
        UnsupportedEstimator,
        "None is not an estimator; give a fitted scikit-learn pipeline, a fitted estimator or a Booster.",
    ),
}


@pytest.mark.parametrize("function", [windtunnel.translate, windtunnel.compile])
@pytest.mark.parametrize("name", NOT_TRANSLATED)
def test_what_cannot_be_translated(name: str, function: Callable[[Any], Any]) -> None:
    make, kind, text = NOT_TRANSLATED[name]
    with pytest.raises(kind) as error:
        function(make())
    says(error, text)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "level": ({"level": "L5"}, "level='L5'; accepted are L0, L1, L2, L3, L4"),
    "level as a number": ({"level": 4}, "level=4; accepted are L0, L1, L2, L3, L4"),
    "level of a step": ({"level": {"model": "all"}}, "level='all'; accepted are L0, L1, L2, L3, L4"),
    "start": ({"start": "hot"}, "start='hot'; accepted are 'warm' and 'cold'"),
    "temperature 0": ({"temperature": 0}, "temperature=0; accepted are 'auto' and finite numbers above 0"),
    "temperature NaN": (
        {"temperature": float("nan")},
        "temperature=nan; accepted are 'auto' and finite numbers above 0",
    ),
    "temperature None": ({"temperature": None}, "temperature=None; accepted are 'auto' and finite numbers above 0"),
    "temperature text": ({"temperature": "hot"}, "temperature='hot'; accepted are 'auto' and finite numbers above 0"),
    "untranslated": ({"untranslated": "skip"}, "untranslated='skip'; accepted are 'cache', 'stream' and 'error'"),
    "all": (
        {"level": "L9", "start": 1},
        "level='L9'; accepted are L0, L1, L2, L3, L4; start=1; accepted are 'warm' and 'cold'",
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_translate(name: str) -> None:
    options, text = OPTIONS[name]
    with pytest.raises(InvalidOption) as error:
        windtunnel.translate(CASES["trees alone"].fitted(), **options)
    says(error, f"translate got {text}.")


def test_calibration_without_rows(rows: pd.DataFrame) -> None:
    for function in (windtunnel.translate, windtunnel.compile):
        with pytest.raises(BadInput) as error:
            function(linear(), calibrate=rows[:0])
        says(
            error,
            "calibrate= has 0 rows; give a few thousand rows, such as a sample of the training rows, or None.",
        )


def test_calibration_rows_that_the_source_rejects(rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^columns missing: 'city'. Given: 'age', 'income'."):
        windtunnel.translate(linear(), calibrate=rows[["age", "income"]])
    with pytest.raises(BadInput, match="column 'city' holds categories .* are rejected: 'Atlantis'"):
        windtunnel.translate(linear(), calibrate=rows.assign(city="Atlantis"))


# Rows

READS = "The pipeline reads 'age', 'income', 'city'; rename or add the missing ones."
ROWS: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "misspelt": (
        lambda X: X.rename(columns={"income": "incomes"}),
        f"columns missing: 'income' (given: 'incomes'). Given: 'age', 'incomes', 'city'. {READS}",
    ),
    "a column too few": (lambda X: X[["age"]], f"columns missing: 'income', 'city'. Given: 'age'. {READS}"),
    "numbers for names": (
        lambda X: X.set_axis([0, 1, 2], axis=1),
        f"columns missing: 'age', 'income', 'city'. Given: '0', '1', '2'. {READS}",
    ),
    "array too narrow": (
        lambda X: X.to_numpy()[:, :2],
        "got 2 columns; the pipeline was fitted on 3: 'age', 'income', 'city'. Give a DataFrame with these names.",
    ),
    "duplicated": (
        lambda X: pd.concat([X, X[["age"]]], axis=1),
        "columns given twice: 'age'; each name must be there once.",
    ),
    "text for numbers": (
        lambda X: X.assign(age="old"),
        "column 'age' holds values such as 'old' of dtype str; the pipeline reads numbers there. Convert the column, "
        "or encode it in the pipeline before fitting.",
    ),
    "dates for numbers": (
        lambda X: X.assign(age=pd.Timestamp("2026-01-01")),
        "column 'age' holds values such as Timestamp('2026-01-01 00:00:00') of dtype datetime64[...]; the pipeline "
        "reads numbers there. Dates become numbers (year, month, weekday, hour, days since a date) by a "
        "FunctionTransformer in the pipeline; docs/guide.md has such a function. Convert the column, "
        "or encode it in the pipeline before fitting.",
    ),
    "numbers for categories": (
        lambda X: X.assign(city=7),
        "column 'city' holds values such as 7 of dtype int64, which is number; its categories are text, such as "
        "'city A'. Convert the column to what the pipeline saw.",
    ),
    "dates for categories": (
        lambda X: X.assign(city=pd.Timestamp("2026-01-01")),
        "column 'city' holds values such as Timestamp('2026-01-01 00:00:00') of dtype datetime64[..., which is "
        "datetime64; its categories are text, such as 'city A'. Convert the column to what the pipeline saw.",
    ),
    "unseen category": (
        lambda X: X.assign(city=["Atlantis", "Lilliput", *X["city"][2:]]),
        "column 'city' holds categories that were not there in fitting and are rejected: 'Atlantis', "
        "'Lilliput'. Fit the encoder with handle_unknown='ignore' or a value for unknown ones; for a model that reads "
        "categories without an encoder, such as XGBoost, make them missing; or fine-tune on rows with them first.",
    ),
    "missing category": (
        lambda X: X.assign(city=[None, *X["city"][1:]]),
        "column 'city' holds categories that were not there in fitting and are rejected: missing values. "
        "Fit the encoder with handle_unknown='ignore' or a value for unknown ones; ...or fine-tune on rows with them "
        "first.",
    ),
    "NaN": (
        lambda X: X.assign(age=[np.nan, np.nan, *X["age"][2:]]),
        "2 of 300 rows have no finite score: NaN, infinite values or values beyond float32 in 'age' reach a step that "
        "does not take them. Impute or drop them, or put a SimpleImputer in the pipeline before fitting it.",
    ),
    "infinity": (
        lambda X: X.assign(income=[np.inf, *X["income"][1:]]),
        "1 of 300 rows have no finite score: NaN, infinite values or values beyond float32 in 'income' reach a step "
        "that does not take them. Impute or drop them, or put a SimpleImputer in the pipeline before fitting it.",
    ),
    "beyond float32": (
        lambda X: X.assign(income=[1e39, *X["income"][1:]], age=[np.nan, *X["age"][1:]]),
        "1 of 300 rows have no finite score: NaN, infinite values or values beyond float32 in 'age', 'income' reach a "
        "step that does not take them. Impute or drop them, or put a SimpleImputer in the pipeline before fitting it.",
    ),
    "all missing": (
        lambda X: X.assign(age=None),
        "300 of 300 rows have no finite score: NaN, infinite values or values beyond float32 in 'age' reach a step "
        "that does not take them. Impute or drop them, or put a SimpleImputer in the pipeline before fitting it.",
    ),
    "no rows": (lambda X: X[:0], "got 0 rows; at least 1 is needed to predict."),
    "no rows of Arrow": (lambda X: pa.table(X)[:0], "got 0 rows; at least 1 is needed to predict."),
    "one row, flat": (
        lambda X: X.iloc[0],
        "rows given as Series with 1 dimensions; accepted are a pandas DataFrame, an Arrow table, a dict of columns, "
        "or an array with two dimensions. A single row is X.reshape(1, -1) of an array or X.iloc[[0]] of a DataFrame; "
        "of a list of dicts it is pd.DataFrame(rows).",
    ),
    "a path": (
        lambda X: "rows.parquet",
        "rows given as str with 0 dimensions; accepted are a pandas DataFrame, an Arrow table, a dict of columns, or "
        "an array with two dimensions. A single row is X.reshape(1, -1) of an array or X.iloc[[0]] of a DataFrame; "
        "of a list of dicts it is pd.DataFrame(rows).",
    ),
    "another's batch": (
        lambda X: Batch(torch.zeros(1, 3), torch.zeros(1, 1, dtype=torch.int64)),
        "got a batch of 3 numbers in 1 rows and 1 ids in 1 rows; this translation reads 2 numbers and 1 ids. Give raw "
        "rows, or what its own encode gave.",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(net: windtunnel.Translation, rows: pd.DataFrame, name: str) -> None:
    bad, text = ROWS[name]
    for method in (net.predict, net.predict_proba, net.decision_function):
        with pytest.raises(BadInput) as error:
            method(bad(rows))
        says(error, text)


def test_trees_take_what_linear_models_reject() -> None:
    case = CASES["trees alone"]
    source, net, rows = case.fitted(), windtunnel.compile(case.fitted()), case.rows(20)
    rows.iloc[0] = np.nan
    rows.loc[1, "income"], rows.loc[2, "income"], rows["age"] = np.inf, -np.inf, np.nan
    np.testing.assert_allclose(net.predict_proba(rows), source.predict_proba(rows), rtol=1e-5)
    soft = windtunnel.translate(source, calibrate=case.train()[0])
    assert np.isfinite(soft.predict_proba(rows)).all()


def test_only_what_reaches_the_model_is_named() -> None:
    X = table(missing=True)[["age", "income"]]
    source = make_pipeline(columns((SimpleImputer(), ["age"]), remainder="passthrough"), logistic())
    net = windtunnel.compile(source.fit(X, Y["label"]))
    X.loc[0, ["age", "income"]] = np.nan
    with pytest.raises(BadInput, match="^1 of 300 rows .* beyond float32 in 'income' reach a step"):
        net.predict(X)


def test_categories_without_a_code_reach_a_linear_model() -> None:
    source = make_pipeline(ordinal(unknown_value=np.nan), LinearRegression())
    net = windtunnel.compile(source.fit(FRAME[["city"]], np.arange(len(FRAME))))
    with pytest.raises(BadInput, match="^1 of 1 rows .* in what a step computes reach a step that does not take them"):
        net.predict(pd.DataFrame({"city": ["Atlantis"]}))


def test_scaled_missing_values_of_a_transformer_are_no_error() -> None:
    X = table(missing=True)[["age"]]
    source = StandardScaler().fit(X)
    np.testing.assert_allclose(windtunnel.compile(source).transform(X), source.transform(X), rtol=1e-5)


# Unseen categories, further fitting

REFUSING: dict[str, Callable[[], Any]] = {
    "one-hot": lambda: make_pipeline(OneHotEncoder(), logistic()),
    "ordinal, one-hot": lambda: make_pipeline(OrdinalEncoder(), OneHotEncoder(), logistic()),
    "one-hot, trees": lambda: make_pipeline(OneHotEncoder(), quick()),
}


@pytest.mark.parametrize("name", REFUSING)
def test_fit_takes_categories_that_the_source_rejects(name: str) -> None:
    X, new = FRAME[["city", "device"]], table(unseen=True, seed=1)[["city", "device"]]
    source = REFUSING[name]().fit(X, Y["label"])
    with pytest.raises(ValueError, match="unknown categor"):
        source.predict(new)
    net = windtunnel.translate(source, calibrate=X)
    with pytest.raises(BadInput, match="column 'city' holds .*: 'Atlantis'"):
        net.predict(new)
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    net.fit((new, targets(table(seed=1))["label"]), **QUICK | {"learning_rate": 0.05, "epochs": 5, "residual": False})
    assert {key: value.shape for key, value in net.state_dict().items()} == shapes
    assert np.isfinite(net.predict_proba(new)).all()
    # What was rejected once and did not come is rejected still.
    with pytest.raises(BadInput, match="column 'city' holds .* are rejected: missing values"):
        net.predict(new.assign(city=None))


def test_the_row_of_the_unknown_is_trained(rows: pd.DataFrame, net: windtunnel.Translation) -> None:
    rows.loc[:150, "city"] = "Atlantis"
    y = np.where(rows["city"] == "Atlantis", "yes", "no")
    net.fit((rows, y), (rows, y), **QUICK | {"learning_rate": 0.05, "epochs": 8})
    assert net.history.best > net.history.start
    known = net.predict_proba(rows.assign(city="city B"))[:, 1].mean()
    assert net.predict_proba(rows.assign(city="Lilliput"))[:, 1].mean() > known


# Targets, weights, loaders, recipes

TARGETS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "one class": (
        lambda y: np.full(len(y), "no"),
        "every training target is 'no'; a classifier is fine-tuned on rows of at least two of its classes 'no', 'yes': "
        "give rows of another one",
    ),
    "too short": (lambda y: y[:-1], "y has 299 values for 300 rows; give one per row, in the same order"),
    "one value": (lambda y: "yes", "y has 3 values for 300 rows; give one per row, in the same order"),
    "missing": (
        lambda y: pd.Series(["yes", None, *y[2:]]),
        "1 of 300 targets are missing (NaN or None); drop these rows.",
    ),
    "pandas' NA": (
        lambda y: pd.array(["yes", pd.NA, *y[2:]], dtype="string"),
        "1 of 300 targets are missing (NaN or None); drop these rows.",
    ),
    "NaN": (lambda y: np.full(len(y), np.nan), "300 of 300 targets are missing (NaN or None); drop these rows."),
    "unknown labels": (
        lambda y: ["maybe", 1, *y[2:]],
        "labels '1', 'maybe' are not among the classes that the pipeline was fitted on: 'no', 'yes'. Map them, or "
        "refit the pipeline with them.",
    ),
    "numbers for labels": (
        lambda y: (y == "yes").astype(int),
        "labels 0, 1 are not among the classes that the pipeline was fitted on: 'no', 'yes'. Map them, or refit the "
        "pipeline with them.",
    ),
    "two columns": (
        lambda y: np.stack([y, y], axis=1),
        "targets of shape (300, 2); of this binary pipeline, fine-tuning takes one label per row. Several targets are "
        "fine-tuned one at a time, each by a translation of its own model.",
    ),
}


def assert_unchanged(net: windtunnel.Translation, before: windtunnel.Translation, rows: Any) -> None:
    """Same weights, same scores, same rejections, nothing of a run left behind."""
    assert torch.equal(net.scores(rows), before.scores(rows))
    assert net.encoder == before.encoder and not net.training and net.history is before.history
    assert all(
        one.requires_grad == two.requires_grad for one, two in zip(net.parameters(), before.parameters(), strict=True)
    )
    assert all(one.grad is None for one in net.parameters())


@pytest.mark.parametrize("name", TARGETS)
def test_targets(net: windtunnel.Translation, rows: pd.DataFrame, name: str) -> None:
    bad, text = TARGETS[name]
    before, unseen = copy.deepcopy(net), rows.assign(city=["Atlantis", *rows["city"][1:]])
    with pytest.raises(BadInput) as error:
        net.fit((unseen, bad(Y["label"])), **QUICK)
    says(error, text)
    assert_unchanged(net, before, rows)
    with pytest.raises(BadInput, match="'Atlantis'"):
        net.predict(unseen)


VALUES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "NaN": (
        lambda y: np.where(np.arange(len(y)) < 2, np.nan, y),
        "2 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "infinity": (
        lambda y: np.where(np.arange(len(y)) < 1, np.inf, y),
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "beyond float32": (
        lambda y: np.where(np.arange(len(y)) < 1, 1e39, y),
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "None": (
        lambda y: [None, *y[1:]],
        "1 of 300 targets are NaN, infinite or beyond float32; drop these rows or impute them.",
    ),
    "text": (lambda y: ["high", *y[1:]], "targets of type str; a regressor is fine-tuned on numbers: convert them."),
    "digits": (lambda y: y.astype(str), "targets of type str; a regressor is fine-tuned on numbers: convert them."),
    "dates": (
        lambda y: pd.date_range("2026-01-01", periods=len(y)),
        "targets of type datetime; a regressor is fine-tuned on numbers: convert them.",
    ),
    "two columns": (
        lambda y: np.stack([y, y], axis=1),
        "targets of shape (300, 2); of this regression pipeline, fine-tuning takes one value per row. Several targets "
        "are fine-tuned one at a time, each by a translation of its own model.",
    ),
    "ragged": (
        lambda y: [[1.0], [1.0, 2.0]] * 150,
        "targets that are no array (...); give one per row.",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_targets_of_a_regressor(name: str) -> None:
    bad, text = VALUES[name]
    X = FRAME[list(NUMBERS)]
    net = windtunnel.translate(quick(LGBMRegressor).fit(X, Y["value"]), calibrate=X)
    before = copy.deepcopy(net)
    with pytest.raises(BadInput) as error:
        net.fit((X, bad(Y["value"])), **QUICK)
    says(error, text)
    assert_unchanged(net, before, X)


def test_one_target_for_a_model_of_two() -> None:
    X = FRAME[["age", "visits"]]
    net = windtunnel.translate(LinearRegression().fit(X, Y["pair"]))
    before = copy.deepcopy(net)
    with pytest.raises(BadInput) as error:
        net.fit((X, Y["value"]), residual=False, **QUICK)
    says(
        error,
        "targets of shape (...) for scores of shape (30, 2); give one value for each output of each row",
    )
    assert_unchanged(net, before, X)


def test_a_transformer_has_no_target() -> None:
    X = FRAME[list(NUMBERS)]
    net = windtunnel.translate(StandardScaler().fit(X))
    with pytest.raises(BadInput) as error:
        net.fit((X, Y["value"]), **QUICK)
    says(error, "this pipeline ends in a transformer, so there is no target to fit; add a final predictor.")


def broken(rows: pd.DataFrame) -> Iterator[Any]:
    yield rows, Y["label"]
    raise RuntimeError("the disk is gone")


ACCEPTED = (
    "fit takes an iterable of (rows, target) or (rows, target, weight), where rows are a DataFrame, an Arrow table, an "
    "array, a dict of columns or an encoded Batch; all rows at once are a tuple (X, y) or (X, y, weight)"
)
FITS: dict[str, tuple[Callable[[pd.DataFrame], Any], dict[str, Any], str]] = {
    "a loader that yields nothing": (
        lambda X: iter(()),
        {},
        f"the loader yielded nothing; {ACCEPTED}: give at least one batch",
    ),
    "an empty list": (lambda X: [], {}, f"the loader yielded nothing; {ACCEPTED}: give at least one batch"),
    "no rows": (lambda X: (X[:0], []), {}, "X has no rows; give at least one"),
    "rows alone": (lambda X: X, {}, "train is a DataFrame; give (X, y) or (X, y, weight), or a loader of such batches"),
    "batches without targets": (lambda X: [X], {}, f"the loader yielded a DataFrame; {ACCEPTED}"),
    "weights below 0": (
        lambda X: (X, Y["label"], -np.ones(len(X))),
        {},
        "300 of 300 weights are negative, NaN or infinite; give one finite number from 0 per row",
    ),
    "weights of 0": (
        lambda X: (X, Y["label"], np.zeros(len(X))),
        {},
        "all 300 weights are 0; give at least one row a weight above 0",
    ),
    "weights too short": (
        lambda X: (X, Y["label"], np.ones(3)),
        {},
        "weight has 3 values for 300 rows; give one per row, in the same order",
    ),
    "rows of wrong names": (
        lambda X: (X.rename(columns={"age": "aeg"}), Y["label"]),
        {},
        f"columns missing: 'age' (given: 'aeg'). Given: 'aeg', 'income', 'city'. {READS}",
    ),
    "an option that does not exist": (
        lambda X: (X, Y["label"]),
        {"learning_rates": 0.1},
        "learning_rates=0.1 is not an option: did you mean learning_rate?",
    ),
    "weights beside the rows": (
        lambda X: (X, Y["label"]),
        {"sample_weight": np.ones(len(FRAME))},
        "weights come with their rows: fit((X, y, weight), valid), or a loader of such batches",
    ),
    "an option out of range": (
        lambda X: (X, Y["label"]),
        {"epochs": 0, "dropout": 1.0},
        "recipe: epochs=0 must be a whole number from 1; dropout=1.0 must be in [0, 1)",
    ),
    "a recipe that does not exist": (
        lambda X: (X, Y["label"]),
        {"recipe": "papers"},
        "recipe='papers' is not known; did you mean paper?",
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_what_fit_is_given(net: windtunnel.Translation, rows: pd.DataFrame, name: str) -> None:
    train, options, text = FITS[name]
    before = copy.deepcopy(net)
    with pytest.raises((BadInput, InvalidOption)) as error:
        net.fit(train(rows), **QUICK | options)
    says(error, text)
    assert_unchanged(net, before, rows)


def test_missing_numbers_in_training_rows(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    before = copy.deepcopy(net)
    with pytest.raises(BadInput, match="^300 of 300 rows have no finite score: .* in 'age' reach a step that does not"):
        net.fit((rows.assign(age=np.nan), Y["label"]), (rows, Y["label"]), **QUICK)
    assert_unchanged(net, before, rows)
    bad = rows.assign(age=[np.inf, *rows["age"][1:]])
    for train, valid in (
        ([(rows, Y["label"]), (bad, Y["label"])], (rows, Y["label"])),
        ((rows, Y["label"]), (bad, Y["label"])),
    ):
        with pytest.raises(BadInput, match="finite"):
            net.fit(train, valid, **QUICK)
        assert torch.equal(net.scores(rows), before.scores(rows)) and net.history is None


@pytest.mark.parametrize("options", [{}, {"residual": False}], ids=["residual", "joint"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("columns", [["age"], ["age", "income"]], ids=["trees", "scaler, trees"])
def test_rows_that_predict_rejects_are_not_used_for_training_or_validation(
    columns: list[str], value: float, options: dict[str, Any], rows: pd.DataFrame
) -> None:
    # Soft trees give a finite score for any number.
    good = rows[columns]
    trees = GradientBoostingClassifier(n_estimators=3, random_state=0)
    source = trees if len(columns) == 1 else make_pipeline(StandardScaler(), trees)
    net = windtunnel.translate(source.fit(good, Y["label"]), calibrate=good)
    bad = good.assign(age=[value, *good["age"][1:]])
    with pytest.raises(BadInput, match="1 of 300 rows have no finite score: .* in 'age'"):
        net.predict(bad)
    for train, valid in ((bad, good), (good, bad)):
        with pytest.raises(BadInput, match="1 of 300 rows have no finite score: .* in 'age'"):
            net.fit((train, Y["label"]), (valid, Y["label"]), **QUICK | options)


def test_a_loader_that_breaks(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    net.fit((rows, Y["label"]), (rows, Y["label"]), **QUICK)
    before = copy.deepcopy(net)
    before.history = net.history
    with pytest.raises(RuntimeError, match="the disk is gone"):
        net.fit(broken(rows.assign(city=["Atlantis", *rows["city"][1:]])), (rows, Y["label"]), **QUICK)
    assert_unchanged(net, before, rows)


def test_compiled_cannot_be_trained(rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^nothing in this translation is trainable: .*; translate with level="):
        windtunnel.compile(linear()).fit((rows, Y["label"]), residual=False, **QUICK)


def test_loader_checks_what_it_is_given(net: windtunnel.Translation, rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^X has no rows; give at least one$"):
        windtunnel.loader(net, rows[:0])
    with pytest.raises(BadInput, match="^batch_size=0 must be a whole number from 1$"):
        windtunnel.loader(net, rows, Y["label"], batch_size=0)
    with pytest.raises(BadInput, match="^y has 2 values for 300 rows"):
        windtunnel.loader(net, rows, Y["label"][:2])


def test_messages_of_wide_tables_stay_short() -> None:
    wide = pd.DataFrame(np.zeros((5, 500)), columns=[f"column {k}" for k in range(500)])
    net = windtunnel.compile(StandardScaler().fit(wide))
    with pytest.raises(BadInput) as error:
        net.transform(wide.add_prefix("the "))
    assert len(str(error.value)) < 1000 and "and 488 more" in str(error.value)
