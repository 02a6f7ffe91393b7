"""The walk from a fitted pipeline to its DAG: names, positions, compositions; and what it rejects."""

from __future__ import annotations

from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest
from case import MIXED, NUMBERS, TEXTS, booster, columns, logistic, one_hot, quick, table, targets
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler

from windtunnel.errors import UnsupportedEstimator
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, Raw, Step, Weighted
from windtunnel.pipeline.fitted_columns import fitted_columns
from windtunnel.pipeline.graph import build_graph
from windtunnel.translators.not_fitted import NotFitted


def drawn(expression: Expression) -> Any:
    """An expression as nested tuples, to compare."""
    match expression:
        case Raw():
            return "raw"
        case Step(name=name, inputs=inputs):
            return name, drawn(inputs)
        case Columns(inputs=inputs, positions=positions):
            return drawn(inputs), list(positions)
        case Weighted(name=name, inputs=inputs, weight=weight):
            return name, drawn(inputs), weight
        case Concatenated(parts=parts):
            return [drawn(part) for part in parts]


FRAME = table()[list(MIXED)]
LABELS = targets(table())["label"]


def test_a_bare_estimator() -> None:
    assert drawn(build_graph(quick().fit(FRAME[["age"]], LABELS))) == ("LGBMClassifier", "raw")


def test_nested_pipelines_have_paths_for_names() -> None:
    inner = Pipeline(
        [("scale", StandardScaler()), ("pass", "passthrough"), ("none", None), ("id", FunctionTransformer())]
    )
    fitted = Pipeline([("inner", inner), ("last", LogisticRegression())]).fit(FRAME[list(NUMBERS)], LABELS)
    assert drawn(build_graph(fitted)) == ("last", ("inner.scale", "raw"))


@pytest.mark.parametrize(
    ("selected", "positions"),
    [
        (["income", "age"], [1, 0]),
        ([2, -4], [2, 1]),
        (slice("age", "income"), [0, 1]),
        (slice(1, 3), [1, 2]),
        ([True, False, True, False, False], [0, 2]),
        (np.array([False, True, False, False, False]), [1]),
        pytest.param(lambda frame: ["visits"], [2], id="by a function"),
    ],
    ids=str,
)
def test_columns_however_they_are_selected(selected: Any, positions: list[int]) -> None:
    assert drawn(build_graph(columns((StandardScaler(), selected)).fit(FRAME))) == [("part0", ("raw", positions))]


@pytest.mark.parametrize("selected", ["income", 1])
def test_one_column_without_a_second_dimension(selected: Any) -> None:
    (step,) = build_graph(columns((FunctionTransformer(pd.Series.to_frame), selected)).fit(FRAME)).parts  # type: ignore[union-attr]
    assert step.inputs.flat and step.inputs.positions == (1,)  # type: ignore[union-attr]


def test_columns_dropped_passed_weighted_and_left_over() -> None:
    fitted = columns(
        (one_hot(), ["city"]),
        ("drop", ["visits"]),
        ("passthrough", ["age"]),
        (StandardScaler(), []),
        remainder="passthrough",
        transformer_weights={"part0": 2.0},
    ).fit(FRAME[["age", "income", "visits", "city"]])
    assert drawn(build_graph(fitted)) == [
        ("part0.weight", ("part0", ("raw", [3])), 2.0),
        ("raw", [0]),
        ("raw", [1]),
    ]


def test_unions_inside_columns_inside_pipelines() -> None:
    union = FeatureUnion(
        [("a", StandardScaler()), ("b", "passthrough"), ("c", "drop"), ("d", MinMaxScaler())],
        transformer_weights={"d": 0.5},
    )
    fitted = Pipeline([("columns", columns((union, ["age", "visits"]))), ("last", logistic())]).fit(FRAME, LABELS)
    given = ("raw", [0, 2])
    parts = [("columns.part0.a", given), given, ("columns.part0.d.weight", ("columns.part0.d", given), 0.5)]
    assert drawn(build_graph(fitted)) == ("last", [parts])


def catboost() -> cb.CatBoostClassifier:
    return cb.CatBoostClassifier(iterations=2, allow_writing_files=False, verbose=0)


ARRAY = FRAME[list(NUMBERS)].to_numpy()
ON_COLUMNS = {
    "frame": (StandardScaler().fit(FRAME[["age", "income"]]), (["age", "income"], 2)),
    "array": (StandardScaler().fit(ARRAY), (None, 3)),
    "numbered frame": (StandardScaler().fit(FRAME[["age"]].set_axis([0], axis=1)), (None, 1)),
    "trees on a frame": (quick().fit(FRAME[["age"]], LABELS), (["age"], 1)),
    "trees on an array": (quick().fit(ARRAY, LABELS), (None, 3)),
    "booster": (booster(quick(), FRAME[["age", "income"]], LABELS), (["age", "income"], 2)),
    "booster on an array": (booster(quick(), ARRAY, LABELS), (None, 3)),
    "frame with digits for names": (StandardScaler().fit(FRAME[["age"]].set_axis(["0"], axis=1)), (["0"], 1)),
    "trees on a frame with digits": (quick().fit(FRAME[["age"]].set_axis(["0"], axis=1), LABELS), (None, 1)),
    "catboost on an array": (catboost().fit(ARRAY, LABELS), (None, 3)),
    "catboost on a frame with digits": (catboost().fit(FRAME[["age"]].set_axis(["0"], axis=1), LABELS), (["0"], 1)),
    "columns": (columns((one_hot(), list(TEXTS))).fit(FRAME), (list(MIXED), 5)),
    "nested": (make_pipeline("passthrough", make_pipeline(None, StandardScaler())).fit(FRAME[["age"]]), (["age"], 1)),
    "union": (make_union("passthrough", StandardScaler()).fit(FRAME[["age"]]), (["age"], 1)),
    "union of pipelines": (make_union("drop", make_pipeline(MinMaxScaler())).fit(ARRAY), (None, 3)),
    "identity": (make_pipeline("passthrough", FunctionTransformer()).fit(FRAME[["age"]]), (["age"], 1)),
}


@pytest.mark.parametrize("name", ON_COLUMNS)
def test_fitted_columns(name: str) -> None:
    fitted, want = ON_COLUMNS[name]
    assert fitted_columns(fitted) == want


UNFITTED = {
    "bare": (StandardScaler(), r"StandardScaler is not fitted"),
    "trees": (quick(), r"LGBMClassifier is not fitted"),
    "catboost": (cb.CatBoostRegressor(), r"CatBoostRegressor is not fitted"),
    "pipeline": (
        make_pipeline(StandardScaler(), logistic()),
        r"step 'standardscaler' \(StandardScaler\) is not fitted",
    ),
    "last step": (
        make_pipeline(StandardScaler().fit(ARRAY), logistic()),
        r"step 'logisticregression' \(LogisticRegression\) is not fitted",
    ),
    "columns": (columns((one_hot(), ["city"])), r"ColumnTransformer is not fitted"),
    "union": (make_union(StandardScaler()), r"step 'standardscaler' \(StandardScaler\) is not fitted"),
}


@pytest.mark.parametrize("name", UNFITTED)
def test_unfitted(name: str) -> None:
    estimator, message = UNFITTED[name]
    with pytest.raises(NotFitted, match=f"^{message}; call fit on the pipeline, then translate it.$"):
        build_graph(estimator)


def test_a_class_is_no_estimator() -> None:
    with pytest.raises(NotFitted, match=r"^LogisticRegression is a class; give a fitted instance.$"):
        build_graph(LogisticRegression)


@pytest.mark.parametrize(
    "given", [None, "passthrough", 3, FRAME, print], ids=["None", "text", "number", "frame", "function"]
)
def test_what_is_no_estimator(given: Any) -> None:
    with pytest.raises(
        UnsupportedEstimator, match=r"is not an estimator; give a fitted scikit-learn pipeline, a fitted"
    ):
        build_graph(given)


def test_a_stateless_step_that_was_never_fitted_tells_no_columns() -> None:
    with pytest.raises(
        UnsupportedEstimator, match=r"Normalizer does not tell how many columns .* fit it, or put a step"
    ):
        fitted_columns(Normalizer())
