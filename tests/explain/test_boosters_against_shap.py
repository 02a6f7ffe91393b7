"""TreeSHAP of XGBoost and CatBoost against ``shap.TreeExplainer``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from xgboost import XGBClassifier, XGBRegressor

import windtunnel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap calls a deprecated function of matplotlib
    import shap

CATBOOST = {"iterations": 8, "depth": 4, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
MODELS: dict[str, Any] = {
    "xgboost": ((XGBClassifier, XGBRegressor), {"n_estimators": 8, "max_depth": 4, "n_jobs": 1}),
    "catboost": ((CatBoostClassifier, CatBoostRegressor), CATBOOST),
}


def rows() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numbers with gaps, and targets of two classes, of three, and of values."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    signal = X[:, 0] + X[:, 1] * X[:, 2]
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, {"binary": signal > 0, "multiclass": np.digitize(signal, [-0.5, 0.5]), "values": signal}


@pytest.mark.parametrize("target", ["binary", "multiclass", "values"])
@pytest.mark.parametrize("library", ["xgboost", "catboost"])
def test_values_and_base_agree_with_shap(library: str, target: str) -> None:
    X, targets = rows()
    (classifier, regressor), options = MODELS[library]
    if target == "values":
        model = regressor(**options).fit(X, targets[target])
    else:
        model = classifier(**options).fit(X, targets[target].astype(int))
    explanation, oracle = windtunnel.compile(model, dtype="float64").explain(X[:40]), shap.TreeExplainer(model)
    assert explanation.standard_error is None
    expected = np.asarray(oracle.shap_values(X[:40])).reshape(explanation.values.shape)
    # XGBoost adds in float32.
    np.testing.assert_allclose(explanation.values, expected, atol=1e-6 if library == "xgboost" else 1e-9)
    np.testing.assert_allclose(explanation.base, np.ravel(oracle.expected_value), atol=1e-6)
