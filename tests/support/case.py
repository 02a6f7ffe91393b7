"""``Case``, a row of the case table; the data that cases are fitted on; constructors that many families use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVC

NUMBERS = ("age", "income", "visits")
"""A float with missing values, a large float, a count with many zeros."""
CATEGORIES = ("city", "device", "plan", "zip")
"""str with missing values, object with None, category with missing values, integers."""
TEXTS = ("city", "device")
MIXED = (*NUMBERS, *TEXTS)
FOUR = (*NUMBERS, "cents")
SEEN = {
    "city": [f"city {letter}" for letter in "ABCDEFGH"],
    "device": ["phone", "tablet", "desk", "tv", "watch"],
    "plan": ["free", "team", "pro"],
    "zip": [100, 205, 310, 415, 520, 625],
}
WORDS = "the a not red Café slow, naïve Red-hot! is x FAST und 東京 2024 don't Straße über I 👍 e.g. İstanbul".split()
UNSEEN = {"city": "Atlantis", "device": "toaster", "plan": "gold", "zip": 999}


def table(rows: int = 300, seed: int = 0, *, missing: bool = False, unseen: bool = False) -> pd.DataFrame:
    """Return numbers and categories of every kind; rare categories in each column; ``unseen`` adds one more to each."""
    return _table(rows, seed, missing, unseen).copy()


@cache
def _table(rows: int, seed: int, missing: bool, unseen: bool) -> pd.DataFrame:
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
    data["review"] = reviews(rows, seed)
    frame = pd.DataFrame({name: pd.Series(column, dtype=_dtype(name)) for name, column in data.items()})
    if missing:
        for name in ("age", "cents", *TEXTS, "plan"):
            frame.loc[random.random(rows) < 0.08, name] = None if name == "device" else np.nan
    return frame


def reviews(rows: int, seed: int) -> list[str]:
    """Sentences of common and rare words, with accents, other scripts, capitals, stop words and nothing at all."""
    random = np.random.default_rng([seed, 1])
    weight = 0.85 ** np.arange(len(WORDS))
    return [" ".join(random.choice(WORDS, random.integers(0, 9), p=weight / weight.sum())) for _ in range(rows)]


def _dtype(name: str) -> Any:
    dtypes = {"age": float, "income": float, "cents": float, "visits": int, "city": "str", "device": object, "zip": int}
    dtypes["review"] = "str"
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


@cache
def _targets(missing: bool) -> dict[str, NDArray[Any]]:
    return targets(table(missing=missing))


@dataclass(frozen=True, eq=False)
class Case:
    """One fitted pipeline of the case table.

    Attributes
    ----------
    id : str
    make : callable
        The unfitted pipeline or estimator.
    columns : sequence of str, or one str
        What it is fitted on; a single name is a Series.
    target : str
        A key of ``targets``.
    missing, unseen : bool
        Whether the rows have missing values; whether the rows of ``rows`` have categories that ``train`` has not.
    array : bool
        Whether it is fitted on a NumPy array.
    fit : callable or None
        ``fit(estimator, X, y)`` where it is not ``estimator.fit(X, y)``.
    tolerance : float
        Relative and absolute, of float64 numbers.
    coarse : float
        The same for ``compile(dtype=torch.float32)``.
    softens : float
        The R squared that the warm start of ``translate`` has to keep; 0 where there is nothing to translate.
    one_row : bool
        False where the source predicts a single row in another way than several.
    hosts : sequence of str
        The steps that stay on the host.
    since : str
        The version of scikit-learn from which on it can be fitted, or raises no warning; empty for every version.
    why : str
        The reason of a tolerance above 1e-9, or 1e-5 in float32, or of another R squared than 0.999.
    """

    id: str
    make: Callable[[], Any]
    columns: Sequence[str] | str = MIXED
    target: str = "label"
    missing: bool = False
    unseen: bool = False
    array: bool = False
    fit: Callable[[Any, Any, Any], Any] | None = None
    tolerance: float = 1e-9
    coarse: float = 1e-5
    softens: float = 0.999
    hosts: Sequence[str] = ()
    one_row: bool = True
    since: str = ""
    why: str = ""

    def fitted(self) -> Any:
        """The fitted pipeline; the same object at each call."""
        return _fitted(self)

    def train(self) -> tuple[Any, Any]:
        """The rows that it was fitted on and their targets."""
        frame = table(missing=self.missing)
        return self._select(frame), _targets(self.missing)[self.target].copy()

    def rows(self, rows: int = 200) -> Any:
        """Other rows, in the form that it was fitted on."""
        return self._select(table(rows, seed=1, missing=self.missing, unseen=self.unseen))

    def _select(self, frame: pd.DataFrame) -> Any:
        if "share" in self.columns:
            # A second column without equal values; no other case has it, as every row would have to change for it.
            share = np.random.default_rng(len(frame)).random(len(frame)).astype(np.float32).astype(np.float64)
            frame = frame.assign(share=np.where(frame["age"].shift().isna() & self.missing, np.nan, share))
        if isinstance(self.columns, str):
            return frame[self.columns]
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


def scaled(*steps: Any) -> Pipeline:
    """Steps behind a scaler, by default a logistic regression."""
    return make_pipeline(StandardScaler(), *(steps or (logistic(),)))


def margins() -> Pipeline:
    """A classifier with decisions, and without probabilities."""
    return scaled(LinearSVC(random_state=0))


def on_text(predictor: Any = None) -> Pipeline:
    """A predictor, by default a logistic regression, behind encoders of raw columns, missing values included."""
    numbers = (make_pipeline(SimpleImputer(), StandardScaler()), list(NUMBERS))
    return make_pipeline(columns((one_hot(), ["city"]), numbers), predictor or logistic())


def on_codes(estimator: Any, X: Any, y: Any) -> Any:
    """Fit to labels as XGBoost takes them, 0 to K - 1."""
    return estimator.fit(X, np.unique(y, return_inverse=True)[1])


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


@cache
def _fitted(case: Case) -> Any:
    estimator, (X, y) = case.make(), case.train()
    return case.fit(estimator, X, y) if case.fit else estimator.fit(X, y)
