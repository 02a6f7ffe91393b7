"""Compositions, nested and selected at will."""

from __future__ import annotations

import category_encoders as ce
from case import (
    AWKWARD,
    IMPUTE,
    MIXED,
    NUMBERS,
    TEXTS,
    Case,
    _is_text,
    columns,
    logistic,
    one_hot,
    ordinal,
    quick,
)
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    StandardScaler,
)

from windtunnel import TwoHotEncoder

CASES = [
    Case(
        "selections of every kind",
        lambda: make_pipeline(
            columns(
                (StandardScaler(), ["age"]),
                (MinMaxScaler(), [1, -4]),
                (MaxAbsScaler(), slice("age", "visits")),
                (one_hot(), _is_text),
                (ordinal(), [False, False, False, True, False, False]),
                (one_hot(), make_column_selector(dtype_include="category")),
                (StandardScaler(), []),
            ),
            SimpleImputer(),
            logistic(),
        ),
        (*MIXED, "plan"),
        **AWKWARD,
    ),
    Case(
        "remainder passed through",
        lambda: make_pipeline(
            columns((one_hot(), list(TEXTS)), ("drop", ["visits"]), remainder="passthrough"), quick()
        ),
        **AWKWARD,
    ),
    Case(
        "remainder scaled, part passed through",
        lambda: make_pipeline(
            columns((one_hot(), list(TEXTS)), ("passthrough", ["visits"]), remainder=MinMaxScaler()), logistic()
        ),
        unseen=True,
    ),
    Case(
        "a column as number and as category",
        lambda: make_pipeline(
            columns(
                (one_hot(), ["zip", "visits"]),
                (StandardScaler(), ["zip", "visits"]),
                (TwoHotEncoder(columns=[0]), ["zip"]),
            ),
            logistic(),
        ),
        ("zip", "visits"),
        unseen=True,
    ),
    Case(
        "weights",
        lambda: make_pipeline(
            columns(
                (StandardScaler(), ["income"]),
                (one_hot(), ["city"]),
                transformer_weights={"part0": 0.3, "part1": 2.0},
                sparse_threshold=0,
            ),
            FeatureUnion(
                [("a", StandardScaler()), ("b", "passthrough"), ("c", "drop")], transformer_weights={"a": 0.5}
            ),
            logistic(),
        ),
        **AWKWARD,
    ),
    Case(
        "a union inside columns",
        lambda: make_pipeline(
            columns(
                (make_pipeline(SimpleImputer(), make_union(StandardScaler(), MinMaxScaler())), list(NUMBERS)),
                (make_union(one_hot(), ce.CountEncoder()), list(TEXTS)),
                sparse_threshold=0,
            ),
            StandardScaler(),
            logistic(),
        ),
        **AWKWARD,
    ),
    Case(
        "nested pipelines and steps that pass",
        lambda: Pipeline(
            [
                ("nothing", None),
                ("inner", Pipeline([("pass", "passthrough"), ("scale", MinMaxScaler())])),
                ("function", FunctionTransformer()),
                ("model", Pipeline([("scale", StandardScaler()), ("last", quick())])),
            ]
        ),
        NUMBERS,
        missing=True,
    ),
    Case(
        "columns of columns, named by pandas",
        lambda: make_pipeline(
            make_column_transformer(
                (SimpleImputer(), list(NUMBERS)), (ordinal(), list(TEXTS)), verbose_feature_names_out=False
            ).set_output(transform="pandas"),
            make_column_transformer((one_hot(), ["device", "city"]), (StandardScaler(), ["visits", "age"])),
            logistic(),
        ),
        **AWKWARD,
    ),
    Case(
        "columns alone",
        lambda: columns((one_hot(), ["plan"]), (StandardScaler(), ["age"]), (IMPUTE(), ["income"])),
        (*NUMBERS, "plan"),
        **AWKWARD,
    ),
    Case("nothing but passing", lambda: Pipeline([("a", "passthrough"), ("b", FunctionTransformer())]), NUMBERS),
]
