"""The one table of pipelines: what is fitted, on which columns, and the rows that it is asked about.

Every class of ``windtunnel.supported()`` is somewhere in it, and ``test_translate.py`` runs each check over all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import category_encoders as ce
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    Ridge,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC, LinearSVR

from windtunnel import RareCategories, TwoHotEncoder

NUMBERS = ("age", "income", "visits")
"""A float with missing values, a large float, a count with many zeros."""
CATEGORIES = ("city", "device", "plan", "zip")
"""str with missing values, object with None, category with missing values, integers."""
TEXTS = ("city", "device")
MIXED = (*NUMBERS, *TEXTS)
SEEN = {
    "city": [f"city {letter}" for letter in "ABCDEFGH"],
    "device": ["phone", "tablet", "desk", "tv", "watch"],
    "plan": ["free", "team", "pro"],
    "zip": [100, 205, 310, 415, 520, 625],
}
UNSEEN = {"city": "Atlantis", "device": "toaster", "plan": "gold", "zip": 999}


def table(rows: int = 300, seed: int = 0, *, missing: bool = False, unseen: bool = False) -> pd.DataFrame:
    """Return numbers and categories of every kind; rare categories in each column; ``unseen`` adds one more to each."""
    random = np.random.default_rng(seed)
    # float32 values: a tree decides in float64, and a raw value between two float32 numbers could fall either way.
    data: dict[str, Any] = {
        "age": random.normal(40, 12, rows).astype(np.float32).astype(np.float64),
        "income": random.lognormal(9, 0.7, rows).round(),
        "visits": random.poisson(0.9, rows),
        # Decimals that float32 has to round, with many ties.
        "cents": random.lognormal(0, 0.5, rows).round(1),
    }
    for name, seen in SEEN.items():
        weight = 0.6 ** np.arange(len(seen))
        data[name] = np.array(seen, dtype=object)[random.choice(len(seen), rows, p=weight / weight.sum())]
        data[name][: len(seen)] = seen
        if unseen:
            data[name][random.random(rows) < 0.08] = UNSEEN[name]
    frame = pd.DataFrame({name: pd.Series(column, dtype=_dtype(name)) for name, column in data.items()})
    if missing:
        for name in ("age", "cents", *TEXTS, "plan"):
            frame.loc[random.random(rows) < 0.08, name] = None if name == "device" else np.nan
    return frame


def _dtype(name: str) -> Any:
    dtypes = {"age": float, "income": float, "cents": float, "visits": int, "city": "str", "device": object, "zip": int}
    return dtypes.get(name) or pd.CategoricalDtype([*SEEN["plan"], UNSEEN["plan"]])


def targets(frame: pd.DataFrame, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Labels of two and three classes, values, positive values and pairs of values, with a pattern to find."""
    random = np.random.default_rng(seed)
    latent = (frame["age"].fillna(50).to_numpy() - 40) / 12 + 0.8 * np.log(frame["income"].to_numpy() / 8000)
    latent = latent + frame["visits"].to_numpy() * frame["city"].isin(SEEN["city"][::2]).to_numpy()
    latent = latent + 0.7 * frame["device"].isin(["phone", "desk"]).to_numpy() + 0.5 * random.normal(size=len(frame))
    return {
        "label": np.where(latent > np.median(latent), "yes", "no"),
        "grade": np.array([3, 1, 7])[np.digitize(latent, np.quantile(latent, [0.33, 0.7]))],
        "value": latent,
        "count": np.exp(latent / 2).round(),
        "pair": np.stack([latent, latent**2], axis=1),
    }


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes
    ----------
    id : str
    make : callable
        The unfitted pipeline or estimator.
    columns : sequence of str
        What it is fitted on.
    target : str
        A key of ``targets``.
    missing, unseen : bool
        Whether the rows have missing values; whether the rows that it is asked about have categories not fitted on.
    array : bool
        Whether it is fitted on a NumPy array.
    fit : callable or None
        ``fit(estimator, X, y)`` where it is not ``estimator.fit(X, y)``.
    tolerance : float
        Relative, and absolute, of scores.
    why : str
        The reason of a tolerance above 1e-5.
    """

    id: str
    make: Callable[[], Any]
    columns: Sequence[str] = MIXED
    target: str = "label"
    missing: bool = False
    unseen: bool = False
    array: bool = False
    fit: Callable[[Any, Any, Any], Any] | None = None
    tolerance: float = 1e-5
    why: str = ""

    def fitted(self) -> Any:
        """The fitted pipeline; the same object at each call."""
        return _fitted(self.id)

    def train(self) -> tuple[Any, Any]:
        """The rows that it was fitted on and their targets."""
        frame = table(missing=self.missing)
        return self._given(frame), targets(frame)[self.target]

    def rows(self, rows: int = 200) -> Any:
        """Other rows, in the form that it was fitted on."""
        return self._given(table(rows, seed=1, missing=self.missing, unseen=self.unseen))

    def _given(self, frame: pd.DataFrame) -> Any:
        frame = frame[list(self.columns)]
        return frame.to_numpy() if self.array else frame


def quick(cls: type = lgb.LGBMClassifier, **options: Any) -> Any:
    """A small LightGBM model."""
    return cls(**{"n_estimators": 8, "num_leaves": 8, "min_child_samples": 5, "n_jobs": 1, "verbosity": -1} | options)


def logistic(**options: Any) -> LogisticRegression:
    return LogisticRegression(**{"max_iter": 2000} | options)


def one_hot(**options: Any) -> OneHotEncoder:
    return OneHotEncoder(**{"handle_unknown": "ignore"} | options)


def ordinal(**options: Any) -> OrdinalEncoder:
    known = {"handle_unknown": "use_encoded_value", "unknown_value": -1, "encoded_missing_value": -1}
    return OrdinalEncoder(**known | options)


def columns(*parts: Any, **options: Any) -> ColumnTransformer:
    return ColumnTransformer([(f"part{index}", *part) for index, part in enumerate(parts)], **options)


def booster(estimator: BaseEstimator, X: Any, y: Any) -> lgb.Booster:
    """A raw Booster with the options of an estimator."""
    options = estimator.get_params()
    rounds = options.pop("n_estimators")
    data = lgb.Dataset(X, label=y == "yes" if y.dtype.kind == "U" else y)
    return lgb.train({"objective": "regression", "seed": 1} | _named(options), data, num_boost_round=rounds)


def _named(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and name != "importance_type"}


def _is_text(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if name in TEXTS]


IMPUTE = partial(SimpleImputer, strategy="most_frequent")
AWKWARD: dict[str, Any] = {"missing": True, "unseen": True}

SCALERS = [
    Case("standard scaler alone", StandardScaler, NUMBERS),
    Case("standard scaler, logistic", lambda: make_pipeline(StandardScaler(), logistic()), NUMBERS),
    Case(
        "standard scaler without mean",
        lambda: make_pipeline(StandardScaler(with_mean=False), Ridge()),
        NUMBERS,
        "value",
    ),
    Case("min-max scaler, clipped", lambda: make_pipeline(MinMaxScaler(clip=True), Ridge()), NUMBERS, "value"),
    Case("max-abs scaler", lambda: make_pipeline(MaxAbsScaler(), LinearSVR()), NUMBERS, "value"),
    Case("robust scaler", lambda: make_pipeline(RobustScaler(), Lasso(alpha=0.01)), NUMBERS, "value"),
    Case(
        "normalizer",
        lambda: make_pipeline(StandardScaler(), Normalizer("l1"), LinearSVC(dual=False)),
        NUMBERS,
        "grade",
    ),
    Case(
        "scaler fitted on an array", lambda: make_pipeline(StandardScaler(), quick()), NUMBERS, array=True, missing=True
    ),
]
IMPUTERS = [
    Case(
        "mean imputer with indicator",
        lambda: make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), logistic()),
        NUMBERS,
        "grade",
        missing=True,
    ),
    Case("imputer of zeros, trees", lambda: make_pipeline(SimpleImputer(missing_values=0), quick()), NUMBERS[1:]),
    Case("imputer of texts, one-hot", lambda: make_pipeline(IMPUTE(), one_hot(), logistic()), TEXTS, **AWKWARD),
    Case(
        "constant imputer, ordinal, trees",
        lambda: make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), ordinal(), quick()),
        TEXTS,
        **AWKWARD,
    ),
    Case(
        "imputer of numbers, one-hot",
        lambda: make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot(), logistic()),
        ("cents", "visits"),
        missing=True,
    ),
    # An imputer of NaN leaves None alone, so both are in these rows, and mean different things.
    Case("imputer of NaN, two-hot", lambda: make_pipeline(IMPUTE(), TwoHotEncoder(), logistic()), TEXTS, **AWKWARD),
    Case(
        "rare, imputer of NaN, target encoder",
        lambda: make_pipeline(RareCategories(min_count=20), IMPUTE(), ce.TargetEncoder(), quick(lgb.LGBMRegressor)),
        TEXTS,
        "value",
        **AWKWARD,
    ),
    Case(
        "imputer of one text",
        lambda: make_pipeline(SimpleImputer(missing_values="phone", strategy="most_frequent"), one_hot(), logistic()),
        ("device",),
        unseen=True,
    ),
    Case(
        "imputer of one integer, one-hot",
        lambda: make_pipeline(SimpleImputer(missing_values=205, strategy="most_frequent"), one_hot(), logistic()),
        ("zip",),
        unseen=True,
    ),
]
ENCODERS = [
    Case("one-hot alone, sparse", one_hot, CATEGORIES, **AWKWARD),
    Case(
        "one-hot, infrequent and dropped",
        lambda: make_pipeline(
            OneHotEncoder(drop="first", min_frequency=20, handle_unknown="infrequent_if_exist"),
            SGDClassifier(loss="log_loss", random_state=0),
        ),
        CATEGORIES,
        "grade",
        missing=True,
        unseen=True,
    ),
    Case("one-hot that refuses", lambda: make_pipeline(OneHotEncoder(), logistic()), CATEGORIES),
    Case("ordinal alone", ordinal, CATEGORIES, **AWKWARD),
    Case("ordinal, one-hot", lambda: make_pipeline(ordinal(), one_hot(), logistic()), CATEGORIES, **AWKWARD),
    Case("ordinal that refuses, one-hot", lambda: make_pipeline(OrdinalEncoder(), one_hot(), logistic()), CATEGORIES),
    Case(
        "ordinal, trees with categories",
        lambda: make_pipeline(ordinal(), quick()),
        TEXTS,
        fit=lambda pipeline, X, y: pipeline.fit(X, y, lgbmclassifier__categorical_feature=[0, 1]),
        **AWKWARD,
    ),
    Case(
        "ordinal with NaN, trees",
        lambda: make_pipeline(ordinal(encoded_missing_value=np.nan), quick()),
        TEXTS,
        missing=True,
    ),
    Case(
        "one-hot of an array of objects",
        lambda: make_pipeline(one_hot(), logistic()),
        CATEGORIES,
        array=True,
        **AWKWARD,
    ),
]
CATEGORY_ENCODERS = [
    Case("ce one-hot", lambda: make_pipeline(ce.OneHotEncoder(cols=list(TEXTS)), quick()), **AWKWARD),
    Case("ce ordinal", lambda: make_pipeline(ce.OrdinalEncoder(), quick()), **AWKWARD),
    Case(
        "ce binary", lambda: make_pipeline(ce.BinaryEncoder(), SimpleImputer(), StandardScaler(), logistic()), **AWKWARD
    ),
    Case("ce base n", lambda: make_pipeline(ce.BaseNEncoder(base=3), quick()), CATEGORIES, **AWKWARD),
    Case("ce hashing", lambda: make_pipeline(ce.HashingEncoder(n_components=6, max_process=1), quick()), **AWKWARD),
    Case(
        "ce hashing of one column, numbers beside",
        lambda: make_pipeline(
            columns((ce.HashingEncoder(n_components=5, max_process=1, cols=["city"]), ["city", "age"])), quick()
        ),
        **AWKWARD,
    ),
    Case("ce target", lambda: make_pipeline(ce.TargetEncoder(), quick(lgb.LGBMRegressor)), target="value", **AWKWARD),
    Case("ce count", lambda: make_pipeline(ce.CountEncoder(), quick()), **AWKWARD),
]
OURS = [
    Case(
        "rare, two-hot, trees", lambda: make_pipeline(RareCategories(min_count=20), TwoHotEncoder(), quick()), **AWKWARD
    ),
    Case(
        "rare, two-hot in columns",
        lambda: make_pipeline(
            columns(
                (make_pipeline(RareCategories(min_frequency_quantile=0.1), TwoHotEncoder()), list(CATEGORIES)),
                (StandardScaler(), ["income"]),
            ),
            logistic(C=0.1),
        ),
        (*NUMBERS, *CATEGORIES),
        **AWKWARD,
    ),
    Case("rare, one-hot", lambda: make_pipeline(RareCategories(min_count=20), one_hot(), logistic()), TEXTS, **AWKWARD),
    Case(
        "rare, hashing",
        lambda: make_pipeline(
            RareCategories(min_count=20), ce.HashingEncoder(n_components=5, max_process=1), logistic()
        ),
        TEXTS,
        **AWKWARD,
    ),
    Case("two-hot alone", TwoHotEncoder, (*MIXED, "plan"), **AWKWARD),
]
LINEAR = [
    Case("linear regression, two targets", LinearRegression, NUMBERS, "pair"),
    Case("elastic net", lambda: make_pipeline(StandardScaler(), ElasticNet(alpha=0.01)), NUMBERS, "value"),
    Case(
        "sgd regressor",
        lambda: make_pipeline(StandardScaler(), SGDRegressor(loss="epsilon_insensitive", random_state=0)),
        NUMBERS,
        "value",
    ),
    Case(
        "sgd modified huber",
        lambda: make_pipeline(StandardScaler(), SGDClassifier(loss="modified_huber", random_state=0)),
        NUMBERS,
        "grade",
    ),
    Case("linear svc", lambda: make_pipeline(StandardScaler(), LinearSVC()), NUMBERS),
]
TREES = [
    Case("trees alone", quick, NUMBERS, missing=True),
    Case("trees over pandas categories", quick, ("age", "plan", "visits"), missing=True),
    Case("trees of three classes", quick, NUMBERS, "grade", missing=True, array=True),
    Case("trees one against all", lambda: quick(objective="multiclassova"), NUMBERS, "grade", missing=True),
    Case("trees of counts", lambda: quick(lgb.LGBMRegressor, objective="poisson"), NUMBERS, "count", missing=True),
    Case("trees, zero as missing", lambda: quick(zero_as_missing=True), NUMBERS),
    Case("trees, dart", lambda: quick(lgb.LGBMRegressor, boosting_type="dart", random_state=0), NUMBERS, "value"),
    Case(
        "trees, random forest of classes",
        lambda: quick(boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0),
        NUMBERS,
        missing=True,
    ),
    Case(
        "trees, random forest",
        lambda: quick(lgb.LGBMRegressor, boosting_type="rf", subsample=0.7, subsample_freq=1, random_state=0),
        NUMBERS,
        "value",
    ),
    Case(
        "rare, trees over pandas categories",
        lambda: make_pipeline(RareCategories(min_count=20), quick()),
        ("age", "plan", "visits"),
        missing=True,
    ),
    Case(
        "mean imputer, scaler, trees",
        lambda: make_pipeline(SimpleImputer(), StandardScaler(), quick(n_estimators=20)),
        NUMBERS,
        missing=True,
    ),
    Case(
        "median imputer in columns, robust scaler, trees",
        lambda: make_pipeline(
            columns((make_pipeline(SimpleImputer(strategy="median"), RobustScaler()), ["cents", "age"])), quick()
        ),
        ("cents", "age"),
        missing=True,
    ),
    Case("min-max scaler, trees", lambda: make_pipeline(MinMaxScaler(), quick()), ("cents", "income")),
    Case("booster", lambda: quick(objective="binary"), NUMBERS, missing=True, fit=booster),
    Case("booster over pandas categories", quick, ("age", "plan"), "value", missing=True, fit=booster),
]
COMPOSITIONS = [
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
CASES: dict[str, Case] = {
    case.id: case
    for case in (
        *SCALERS, *IMPUTERS, *ENCODERS, *CATEGORY_ENCODERS, *OURS, *LINEAR, *TREES, *COMPOSITIONS,
    )
}  # fmt: skip


@cache
def _fitted(name: str) -> Any:
    case = CASES[name]
    estimator, (X, y) = case.make(), case.train()
    return case.fit(estimator, X, y) if case.fit else estimator.fit(X, y)


def parametrized(*wanted: Case) -> Any:
    """``@parametrized()`` runs a test over the whole table, ``@parametrized(*TREES)`` over a part of it."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in wanted or CASES.values()])


def estimators(fitted: Any) -> Iterator[Any]:
    """Every estimator inside a fitted pipeline."""
    if isinstance(fitted, Pipeline):
        parts = [part for _, part in fitted.steps]
    elif isinstance(fitted, ColumnTransformer):
        parts = [part for _, part, _ in fitted.transformers_]
    elif isinstance(fitted, FeatureUnion):
        parts = [part for _, part in fitted.transformer_list]
    else:
        yield fitted
        return
    for part in parts:
        yield from estimators(part)
