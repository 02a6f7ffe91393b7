"""The names of the columns of CatBoost models inside of estimators that do not know any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingClassifier, VotingClassifier, VotingRegressor
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

import windtunnel
from windtunnel import NotFitted

X = pd.DataFrame(np.random.default_rng(0).random((300, 3)), columns=["a", "b", "c"])
VALUE = X["a"] - X["b"] ** 2
LABEL = (VALUE > 0.2).astype(int)
QUICK: dict[str, Any] = {"iterations": 10, "verbose": 0, "allow_writing_files": False}


def classifier() -> Any:
    return CatBoostClassifier(**QUICK)


WRAPPED = {
    "target": TransformedTargetRegressor(CatBoostRegressor(**QUICK)),
    "votes": VotingRegressor([("a", CatBoostRegressor(**QUICK)), ("b", CatBoostRegressor(**QUICK, depth=3))]),
    "soft votes": VotingClassifier([("a", classifier())], voting="soft"),
    "stack": StackingClassifier([("a", classifier())], LogisticRegression(), cv=2),
    "calibrated": CalibratedClassifierCV(classifier(), cv=2),
    "search": GridSearchCV(classifier(), {"depth": [3]}, cv=2),
    "threshold": FixedThresholdClassifier(classifier(), threshold=0.4),
    "one against the rest": OneVsRestClassifier(classifier()),
    "nested": CalibratedClassifierCV(VotingClassifier([("a", classifier())], voting="soft"), cv=2),
}


@pytest.mark.parametrize("make", [windtunnel.compile, windtunnel.translate])
@pytest.mark.parametrize("name", WRAPPED)
def test_columns_go_by_name(name: str, make: Any) -> None:
    source = WRAPPED[name]
    source.fit(X, LABEL if hasattr(source, "classes_") or "Classifier" in str(source) else VALUE)
    net, rows = make(source), X[["c", "a", "b"]].head(20)
    method = "predict_proba" if hasattr(source, "predict_proba") else "predict"
    np.testing.assert_allclose(getattr(net, method)(rows), getattr(source, method)(rows), atol=1e-9)
    np.testing.assert_allclose(net.predict(rows.assign(more=1)), net.predict(rows))
    assert net.encoder.names == ["a", "b", "c"]


def test_models_of_arrays_go_by_position() -> None:
    source = TransformedTargetRegressor(CatBoostRegressor(**QUICK)).fit(X.to_numpy(), VALUE)
    assert windtunnel.compile(source).encoder.names is None
    selected = make_pipeline(RFE(classifier(), n_features_to_select=2), LogisticRegression()).fit(X.to_numpy(), LABEL)
    np.testing.assert_allclose(
        windtunnel.compile(selected).predict_proba(X.to_numpy()), selected.predict_proba(X.to_numpy()), atol=1e-9
    )
    source = BaggingRegressor(CatBoostRegressor(**QUICK), n_estimators=2, max_features=2).fit(X, VALUE)
    np.testing.assert_allclose(windtunnel.compile(source).predict(X), source.predict(X), atol=1e-9)


def test_a_regressor_whose_fit_failed_is_not_fitted() -> None:
    source = TransformedTargetRegressor(CatBoostRegressor(cat_features=["a"], **QUICK))
    with pytest.raises(RuntimeError, match="Cannot clone"):
        source.fit(X, VALUE)
    with pytest.raises(NotFitted, match="fitted in part: its regressor failed"):
        windtunnel.translate(source)
