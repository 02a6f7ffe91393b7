"""Boosted trees on real data sets, strings as codes: default sizes of the three libraries, and larger ones."""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier, CatBoostRegressor
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from xgboost import XGBClassifier, XGBRegressor

from benchmarks.inference.model import Model
from benchmarks.inference.peers import PEERS
from benchmarks.inference.trees import QUIET
from benchmarks.sets import load_from

FITTED_ON = 100_000
SETS = {"flights2008": "predict_proba", "census_kdd": "predict_proba", "taxi_duration": "predict"}
"""Data set -> method."""


@cache
def loaded(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Columns as numbers that float32 holds, strings as codes, and the target; in random order.

    The folder of the data sets, with its ``datasets.py``, is in the environment variable ``WINDTUNNEL_DATA``.
    """
    frame, y, _ = load_from(Path(os.environ["WINDTUNNEL_DATA"]), name)
    numbers = frame.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else pd.factorize(column)[0])
    order = np.random.default_rng(0).permutation(len(frame))[:300_000]
    return numbers.to_numpy(np.float32)[order].astype(np.float64), np.asarray(y)[order]


def rows(name: str, count: int, seed: int) -> NDArray[np.float64]:
    """The first rows of a data set, behind those that models are fitted on as far as there are any."""
    return np.roll(loaded(name)[0], -FITTED_ON, axis=0)[:count]


def fitted(name: str, unfitted: dict[str, Any]) -> Any:
    """The model on the first rows of a data set."""
    X, y = loaded(name)
    return unfitted[SETS[name]].fit(X[:FITTED_ON], y[:FITTED_ON])


_LIGHTGBM: dict[str, Any] = {"n_estimators": 300, "num_leaves": 127, "n_jobs": 1, "verbosity": -1}
_XGBOOST: dict[str, Any] = {"n_estimators": 300, "max_depth": 6, "n_jobs": 1}
_CATBOOST: dict[str, Any] = {"iterations": 1000, "depth": 6} | QUIET
_LIBRARIES: dict[str, dict[str, Any]] = {
    "lightgbm": {"predict_proba": LGBMClassifier(**_LIGHTGBM), "predict": LGBMRegressor(**_LIGHTGBM)},
    "xgboost": {"predict_proba": XGBClassifier(**_XGBOOST), "predict": XGBRegressor(**_XGBOOST)},
    "catboost": {"predict_proba": CatBoostClassifier(**_CATBOOST), "predict": CatBoostRegressor(**_CATBOOST)},
}
REAL: dict[str, Model] = {
    f"{library} {name}": Model(partial(fitted, name, unfitted), partial(rows, name), method, PEERS)
    for name, method in SETS.items()
    for library, unfitted in _LIBRARIES.items()
}
