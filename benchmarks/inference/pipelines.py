"""Whole pipelines over DataFrames with missing numbers, categories as strings, and texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

from benchmarks.inference.model import Model

FITTED_ON = 5_000
PIPELINE_PEERS = ("onnxruntime",)
NUMBERS = [f"number {at}" for at in range(8)]
CATEGORIES = {"kind": 3, "weekday": 7, "airport": 50, "product": 200}
"""How many values each column of strings has."""
WORDS = [f"word{at}" for at in range(500)]
NOTE = 8
"""Words of the column "note"."""


def frame(count: int, seed: int) -> pd.DataFrame:
    """Normal numbers, each missing in one row of 20, strings, and a text."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(count, len(NUMBERS))).astype(np.float32).astype(np.float64)
    numbers[random.random(numbers.shape) < 0.05] = np.nan
    strings = {name: random.choice(_values(name), count) for name in CATEGORIES}
    texts = [" ".join(words) for words in random.choice(WORDS, (count, NOTE))]
    return pd.DataFrame(numbers, columns=NUMBERS).assign(**strings, note=texts)


def fitted(unfitted: Callable[[], Pipeline]) -> Pipeline:
    """The pipeline on generated rows, whose label every column has a share in."""
    X = frame(FITTED_ON, seed=0)
    random = np.random.default_rng(1)
    score = X[NUMBERS].fillna(0).sum(axis=1) + X["note"].str.contains("word1") + random.normal(size=len(X))
    for name in CATEGORIES:
        effects = pd.Series(random.normal(size=CATEGORIES[name]), index=_values(name))
        score += X[name].map(effects).astype(float)
    return unfitted().fit(X, score > score.median())


def one_hot_logistic() -> Pipeline:
    """One-hot strings; numbers imputed and scaled; a logistic regression."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [*CATEGORIES]),
        (make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=1_000))


def target_codes_lightgbm() -> Pipeline:
    """Strings as the mean label of their category, numbers as they are, missing ones among them; boosted trees."""
    columns = make_column_transformer((TargetEncoder(), [*CATEGORIES]), ("passthrough", NUMBERS))
    return make_pipeline(columns, LGBMClassifier(n_estimators=100, num_leaves=31, n_jobs=1, verbosity=-1))


def text_forest() -> Pipeline:
    """One-hot strings and tf-idf of a text, the best 100 columns of them and of the imputed numbers; a forest."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), [*CATEGORIES]),
        (TfidfVectorizer(), "note"),
        (SimpleImputer(), NUMBERS),
    )
    forest = RandomForestClassifier(n_estimators=100, max_leaf_nodes=64, random_state=0)
    return make_pipeline(columns, SelectKBest(k=100), forest)


def _values(name: str) -> list[str]:
    return [f"{name} {at}" for at in range(CATEGORIES[name])]


PIPELINES: dict[str, Model] = {
    name: Model(partial(fitted, unfitted), frame, "predict_proba", PIPELINE_PEERS)
    for name, unfitted in {
        "one-hot, logistic": one_hot_logistic,
        "target codes, lightgbm": target_codes_lightgbm,
        "one-hot, tf-idf, forest": text_forest,
    }.items()
}
