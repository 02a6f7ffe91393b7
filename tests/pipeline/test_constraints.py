"""Constraints of trees, which ``fit`` does not keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import windtunnel

LIGHTGBM: dict[str, Any] = {"n_estimators": 3, "verbosity": -1, "n_jobs": 1}
CONSTRAINED = {
    "lightgbm": (LGBMRegressor(monotone_constraints=[1, 0], **LIGHTGBM), "monotone_constraints"),
    "a pipeline": (
        make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=3, monotonic_cst=[0, -1])),
        "histgradientboostingregressor__monotonic_cst",
    ),
    "interactions": (HistGradientBoostingRegressor(max_iter=3, interaction_cst="no_interactions"), "interaction_cst"),
    "xgboost": (xgb.XGBRegressor(n_estimators=3, monotone_constraints=(1, 0)), "monotone_constraints"),
    "catboost": (
        CatBoostRegressor(iterations=3, verbose=0, monotone_constraints=[1, 0], allow_writing_files=False),
        "monotone_constraints",
    ),
}


def rows() -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(200, 2))
    return X, X[:, 0] - X[:, 1]


@pytest.mark.parametrize("name", CONSTRAINED)
def test_translate_warns_of_constraints(name: str) -> None:
    source, parameter = CONSTRAINED[name]
    source.fit(*rows())
    with pytest.warns(UserWarning, match=f"the source has {parameter}. translate") as caught:
        windtunnel.translate(source)
    assert caught[0].filename == __file__
    windtunnel.compile(source)  # without a warning


def test_boosters_are_looked_into() -> None:
    source = LGBMRegressor(monotone_constraints=[1, 0], **LIGHTGBM).fit(*rows())
    with pytest.warns(UserWarning, match="monotone_constraints"):
        windtunnel.translate(source.booster_)


@pytest.mark.parametrize(
    "source",
    [
        LGBMRegressor(monotone_constraints=[0, 0], **LIGHTGBM),
        LGBMRegressor(**LIGHTGBM),
        xgb.XGBRegressor(n_estimators=3),
        RandomForestRegressor(3),
    ],
)
def test_other_sources_cause_no_warning(source: Any) -> None:
    windtunnel.translate(source.fit(*rows()))
