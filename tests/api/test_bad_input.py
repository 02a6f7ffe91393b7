"""Bad input from the outside: each error says what was given, what is accepted, what to do; nothing learned is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from case import columns, logistic, ordinal, quick, table, targets
from cases import CASES
from lightgbm import LGBMClassifier
from linear_case import FRAME, QUICK, READS, Y, linear, says
from sklearn.cluster import DBSCAN
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectPercentile, f_classif
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import windtunnel
from windtunnel.encode import Batch
from windtunnel.errors import BadInput, InvalidOption, UnsupportedEstimator
from windtunnel.translators.not_fitted import NotFitted

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


@pytest.mark.parametrize("options", [{"strategy": "gemm"}, {"tune": True}])
def test_the_native_library_takes_no_strategy(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="for backend='native', which has its own forms of trees"):
        windtunnel.compile(linear(), backend="native", **options)


def test_calibration_without_rows(rows: pd.DataFrame) -> None:
    for function in (windtunnel.translate, windtunnel.compile):
        with pytest.raises(BadInput) as error:
            function(linear(), calibrate=rows[:0])
        says(
            error,
            "calibrate= has 0 rows; give a few thousand rows, such as a sample of the training rows, or None.",
        )
        with pytest.raises(BadInput, match="calibrate= is a tuple of 2; give raw rows alone: X, without targets"):
            function(linear(), calibrate=(rows, Y["label"]))


def test_calibration_rows_that_the_source_rejects(rows: pd.DataFrame) -> None:
    with pytest.raises(BadInput, match="^columns missing: 'city'. Given: 'age', 'income'."):
        windtunnel.translate(linear(), calibrate=rows[["age", "income"]])
    with pytest.raises(BadInput, match="column 'city' holds categories .* are rejected: 'Atlantis'"):
        windtunnel.translate(linear(), calibrate=rows.assign(city="Atlantis"))


def test_a_translation_is_not_translated_again() -> None:
    net = windtunnel.translate(LogisticRegression().fit(FRAME[["age"]], Y["label"]))
    with pytest.raises(UnsupportedEstimator, match="this is a translation already: fit, compile or export it"):
        windtunnel.translate(net)


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
        "FunctionTransformer in the pipeline; docs/howto/translate.md has such a function. Convert the column, "
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
    "infinity and NaN": (
        lambda X: X.assign(income=[np.inf, *X["income"][1:]], age=[np.nan, *X["age"][1:]]),
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
        "a list of dicts, or an array with two dimensions. A single row is X.reshape(1, -1) of an array or "
        "X.iloc[[0]] of a DataFrame.",
    ),
    "a plan for rows": (
        lambda X: pl.from_pandas(X).lazy(),
        "rows given as a LazyFrame, which holds none yet; give rows.collect()",
    ),
    "a path": (
        lambda X: "rows.parquet",
        "rows given as str with 0 dimensions; accepted are a pandas DataFrame, an Arrow table, a dict of columns, "
        "a list of dicts, or an array with two dimensions. A single row is X.reshape(1, -1) of an array or "
        "X.iloc[[0]] of a DataFrame.",
    ),
    "dicts that differ": (
        lambda X: [{"age": 1.0, "city": "a"}, {"age": 1.0}],
        "row 1 and row 0 differ in the columns 'city'; give each row all columns, with None where a value is missing.",
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


def test_messages_of_wide_tables_stay_short() -> None:
    wide = pd.DataFrame(np.zeros((5, 500)), columns=[f"column {k}" for k in range(500)])
    net = windtunnel.compile(StandardScaler().fit(wide))
    with pytest.raises(BadInput) as error:
        net.transform(wide.add_prefix("the "))
    assert len(str(error.value)) < 1000 and "and 488 more" in str(error.value)


def test_numbers_that_float32_rounds_to_its_greatest_are_accepted_as_by_the_source():
    X = np.linspace(0, 1, 60).reshape(20, 3)
    forest = RandomForestRegressor(3, random_state=0).fit(X, X[:, 0])
    net = windtunnel.compile(forest)
    beyond = 3.4028235677973366e38
    for value in (float(np.finfo(np.float32).max), np.nextafter(beyond, 0)):
        row = np.array([[value, 0.5, -value]])
        assert net.predict(row) == forest.predict(row)
    with np.errstate(over="ignore"):
        for model in (forest, net):
            with pytest.raises(ValueError):
                model.predict(np.array([[beyond, 0.5, 0.5]]))


def test_a_column_beyond_float32_is_named():
    X = np.random.default_rng(0).normal(size=(40, 3))
    net = windtunnel.compile(RandomForestRegressor(3, random_state=0).fit(X, X[:, 0]))
    X[7, 2] = 1e39
    with pytest.raises(BadInput, match="1 of 40 rows .* values beyond float32 in number 2 reach a step"):
        net.predict(X)


def test_a_column_given_twice_under_the_name_that_lightgbm_changed():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a b", "a b", "c"])
    fitted = LGBMClassifier(n_estimators=2, verbose=-1).fit(X.iloc[:, 1:], X["c"] > 0)
    with pytest.raises(BadInput, match="columns given twice: 'a b'"):
        windtunnel.compile(fitted).predict(X)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_dicts_for_a_pipeline_that_was_fitted_on_an_array_go_by_position(backend: str) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3))
    fitted = LinearRegression().fit(X, X @ [1.0, 2.0, 3.0])
    net = windtunnel.compile(fitted, backend=backend)
    wanted = fitted.predict([[4.0, 5.0, 6.0]])
    for rows in (
        [{"2": 6.0, "0": 4.0, "1": 5.0}],
        {"1": [5.0], "2": [6.0], "0": [4.0]},
        {0: [4.0], 2: [6.0], 1: [5.0]},
    ):
        np.testing.assert_allclose(net.predict(rows), wanted)
    for rows in ({"price": [4.0], "1": [5.0], "2": [6.0]}, [{"0": 4.0, "1": 5.0}]):
        with pytest.raises(BadInput, match="knows no names of columns, .* the positions '0' to '2' as keys"):
            net.predict(rows)


def test_bfloat16_is_read_exactly_and_sparse_tensors_are_named() -> None:
    X = torch.tensor([[1.5, -2.0], [0.25, 3.0], [7.0, 0.0]])
    net = windtunnel.compile(LinearRegression().fit(X.numpy(), [1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(net.predict(X.bfloat16()), net.predict(X))
    with pytest.raises(BadInput, match="a tensor with the layout torch.sparse_coo; give tensor.to_dense"):
        net.predict(X.to_sparse())


def test_what_is_translated_in_inference_mode_can_be_trained() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = X[:, 0] > 0
    with torch.inference_mode():
        net = windtunnel.translate(LGBMClassifier(n_estimators=3, verbose=-1).fit(X, y), calibrate=X)
    net.fit((X, y), (X, y), recipe="joint", max_steps=2, progress=False)
    assert len(net.history.epochs) > 1
