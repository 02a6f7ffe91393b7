"""Rows of two numbers and two categories, whose product an additive model cannot have, and pipelines fitted on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TEXTS, NUMBERS = ["city", "day"], ["age", "fee"]


def frame(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    X = pd.DataFrame({"age": random.normal(40, 12, count).round(), "fee": random.exponential(20, count)})
    X["city"] = random.choice([f"c{i}" for i in range(12)], count)
    X["day"] = random.choice(["mo", "tu", "we", "th", "fr"], count)
    X.loc[random.random(count) < 0.05, "fee"] = np.nan
    return X.fillna({"fee": -1.0}) if seed < 0 else X


def signal(X: pd.DataFrame) -> np.ndarray:
    """Mostly a product of two categories, which an additive model cannot have."""
    city, day = X["city"].str[1:].astype(int), X["day"].map({"mo": 0, "tu": 1, "we": 2, "th": 3, "fr": 4})
    return (2.5 * np.where((city + day) % 2 == 0, 1, -1) + 0.03 * (X["age"] - 40)).to_numpy()


def labelled(X: pd.DataFrame, kind: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed + 1)
    s = signal(X)
    if kind == "value":
        return 1000 + 50 * (s + random.normal(size=len(s)))
    if kind == "count":
        return random.poisson(np.exp(0.4 * s)).astype(float)
    if kind == "grade":
        return np.digitize(s + random.logistic(size=len(s)), [-1.5, 1.5]) * 10
    return np.where(s + random.logistic(size=len(s)) > 0, "yes", "no")


def encoded() -> Any:
    return make_column_transformer((OneHotEncoder(handle_unknown="ignore"), TEXTS), (StandardScaler(), NUMBERS[:1]))


def additive(final: Any, kind: str) -> Any:
    X = frame()
    return make_pipeline(encoded(), final).fit(X, labelled(X, kind))


def trees(model: Any) -> Any:
    return model(n_estimators=5, num_leaves=4, verbosity=-1, random_state=0)


OPTIONS: dict[str, Any] = {"progress": False, "accelerator": "cpu"}
