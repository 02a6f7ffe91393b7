"""Float32 decides as the source does on numbers that an imputer and further steps bring beside a threshold."""

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler

import windtunnel

STEPS = {
    "scaled": MaxAbsScaler(),
    "negated": FunctionTransformer(np.negative),
    "negated, checked": FunctionTransformer(np.negative, validate=True),
    "clipped": FunctionTransformer(np.clip, kw_args={"a_min": -1.0, "a_max": 1.0}),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("columns", ["all imputed", "half imputed"])
def test_float32_decides_as_the_source(step: Any, columns: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4)).astype(np.float32).astype(np.float64)
    X[rng.random(X.shape) < 0.3] = np.nan
    imputer: Any = SimpleImputer()
    if columns == "half imputed":
        imputer = make_column_transformer((imputer, [0, 1]), remainder="passthrough")
        if step is STEPS["negated, checked"]:  # it rejects NaN
            X[:, 2:] = np.nan_to_num(X[:, 2:])
    y = np.where(np.isnan(X[:, 0]), 1, X[:, 0]) + np.nan_to_num(X[:, 1])
    trees = LGBMRegressor(n_estimators=20, verbosity=-1, n_jobs=1)
    source = make_pipeline(imputer, step, StandardScaler(), trees).fit(X, y)
    net = windtunnel.compile(source, dtype="float32")
    np.testing.assert_allclose(net.predict(X), source.predict(X), rtol=1e-5, atol=1e-5)
