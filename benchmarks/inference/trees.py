"""Ensembles of trees over 28 columns of numbers: two sizes from each of four libraries."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor
from xgboost import XGBRegressor

from benchmarks.inference.model import Model
from benchmarks.inference.peers import PEERS

FEATURES = 28
FITTED_ON = 20_000
QUIET = {"thread_count": 1, "verbose": False, "allow_writing_files": False}


def rows(count: int, seed: int) -> NDArray[np.float64]:
    """Rows of independent normal columns."""
    return np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32).astype(np.float64)


def target(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sum in which the columns have unlike shares, with products and noise."""
    smooth = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + X[:, 4:] @ np.linspace(1, 0.2, FEATURES - 4)
    return smooth + np.random.default_rng(1).normal(scale=0.3, size=len(X))  # type: ignore[no-any-return]


def fitted(unfitted: Any) -> Any:
    """The model on generated rows."""
    X = rows(FITTED_ON, seed=0)
    return unfitted.fit(X, target(X))


TREES: dict[str, Model] = {
    name: Model(partial(fitted, unfitted), rows, "predict", PEERS)
    for name, unfitted in {
        "lightgbm 100 x 64": LGBMRegressor(n_estimators=100, num_leaves=64, n_jobs=1, verbosity=-1),
        "lightgbm 500 x depth 8": LGBMRegressor(n_estimators=500, num_leaves=256, max_depth=8, n_jobs=1, verbosity=-1),
        "xgboost 100 x 64": XGBRegressor(
            n_estimators=100, max_leaves=64, max_depth=0, grow_policy="lossguide", n_jobs=1
        ),
        "xgboost 500 x depth 8": XGBRegressor(n_estimators=500, max_depth=8, n_jobs=1),
        "catboost 100 x 64": CatBoostRegressor(iterations=100, depth=6, **QUIET),
        "catboost 500 x depth 8": CatBoostRegressor(iterations=500, depth=8, **QUIET),
        "forest 100 x 64": RandomForestRegressor(n_estimators=100, max_leaf_nodes=64, max_features=0.5),
        "forest 500 x depth 8": RandomForestRegressor(n_estimators=500, max_depth=8, max_features=0.3),
    }.items()
}
