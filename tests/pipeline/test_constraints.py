"""Constraints of trees and weights of classes, which ``fit`` does not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from imblearn import FunctionSampler
from imblearn.ensemble import BalancedRandomForestClassifier
from imblearn.over_sampling import RandomOverSampler
from imblearn.pipeline import make_pipeline as imblearn_pipeline
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, StackingClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
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


WEIGHTED = {
    "lightgbm": (LGBMClassifier(class_weight="balanced", **LIGHTGBM), "class_weight"),
    "unbalanced": (LGBMClassifier(is_unbalance=True, **LIGHTGBM), "is_unbalance"),
    "xgboost": (xgb.XGBClassifier(n_estimators=3, scale_pos_weight=4.0), "scale_pos_weight"),
    "a pipeline": (
        make_pipeline(StandardScaler(), LogisticRegression(class_weight={0: 1, 1: 3})),
        "logisticregression__class_weight",
    ),
    "a search inside": (
        make_pipeline(StandardScaler(), GridSearchCV(LogisticRegression(), {"class_weight": ["balanced"]}, cv=2)),
        "gridsearchcv__estimator__class_weight",
    ),
    "a sampler": (
        imblearn_pipeline(RandomOverSampler(random_state=0), LogisticRegression()),
        "randomoversampler__sampling_strategy",
    ),
    "a sampler of a user": (
        imblearn_pipeline(FunctionSampler(func=lambda X, y: (X[:100], y[:100])), LogisticRegression()),
        "functionsampler",
    ),
    "a frozen classifier": (
        FixedThresholdClassifier(FrozenEstimator(LogisticRegression(class_weight="balanced").fit([[0], [1]], [0, 1]))),
        "estimator__estimator__class_weight",
    ),
    "an ensemble over samplers": (BalancedRandomForestClassifier(3, random_state=0), "sampling_strategy"),
    "the last model of a stack": (
        StackingClassifier([("a", LogisticRegression())], LogisticRegression(class_weight="balanced"), cv=2),
        "final_estimator__class_weight",
    ),
}


def labels(target: Any) -> Any:
    return (target > 1).astype(int)


@pytest.mark.parametrize("name", WEIGHTED)
def test_class_weights_are_named(name: str) -> None:
    source, parameter = WEIGHTED[name]
    X, target = rows()
    X = X[:, :1] if "frozen" in name else X
    source.fit(X, labels(target))
    for net in (windtunnel.translate(source), windtunnel.compile(source)):
        assert net.records.class_weight_parameters == (parameter,)


def test_xgboost_models_of_a_file_have_their_weights(tmp_path: Path) -> None:
    X, target = rows()
    source = xgb.XGBClassifier(n_estimators=3, scale_pos_weight=4.0).fit(X, labels(target))
    source.save_model(tmp_path / "model.json")
    loaded = xgb.XGBClassifier()
    loaded.load_model(tmp_path / "model.json")
    assert windtunnel.compile(loaded).records.class_weight_parameters == ("scale_pos_weight",)


def test_the_recipe_of_a_classifier_of_ours_weighs_nothing() -> None:
    X, target = rows()
    inner = windtunnel.WindTunnelClassifier(LogisticRegression(), recipe=windtunnel.Recipe(epochs=1))
    source = make_pipeline(StandardScaler(), inner).fit(X, labels(target))
    assert windtunnel.compile(source).records.class_weight_parameters == ()


@pytest.mark.parametrize(
    "source",
    [
        LogisticRegression(class_weight={0: 1, 1: 1}),
        xgb.XGBClassifier(n_estimators=3, scale_pos_weight=1),
        CalibratedClassifierCV(LogisticRegression(class_weight="balanced"), cv=2),
        CalibratedClassifierCV(imblearn_pipeline(RandomOverSampler(random_state=0), LogisticRegression()), cv=2),
        GridSearchCV(CalibratedClassifierCV(LogisticRegression(class_weight="balanced"), cv=2), {"cv": [2]}, cv=2),
        StackingClassifier([("a", LogisticRegression(class_weight="balanced"))], cv=2),
        make_pipeline(SelectFromModel(LogisticRegression(class_weight="balanced")), LogisticRegression()),
        LogisticRegression(class_weight={0: 2, 1: 2}),
    ],
)
def test_weights_that_a_later_step_undoes_do_not_count(source: Any) -> None:
    X, target = rows()
    assert windtunnel.translate(source.fit(X, labels(target))).records.class_weight_parameters == ()


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
