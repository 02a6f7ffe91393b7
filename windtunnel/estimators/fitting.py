"""Estimators of other libraries fitted on other rows: clones, weights, and rows for boosters to stop by."""

from __future__ import annotations

import warnings
from copy import copy as shallow
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from windtunnel.errors import BadInput

STOPS = {
    "lightgbm": {"early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"},
    "xgboost": {"early_stopping_rounds"},
    "catboost": {"early_stopping_rounds", "od_wait", "od_type", "od_pval", "use_best_model"},
}
"""The options by which a booster asks for rows of its own to stop by."""
RANKERS = {"LGBMRanker", "XGBRanker", "CatBoostRanker"}


def fitted(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    weight: NDArray[Any] | None = None,
    *,
    held: tuple[Any, ...] | None = None,
) -> Any:
    """Fit an estimator; row weights go to it, or to the last step of a pipeline.

    ``held`` are rows ``(X, y)`` or ``(X, y, weight)`` for a booster to stop by that asks for some.
    """
    if held is not None and asked_stops(last_step(estimator)):
        return _stopping(estimator, X, y, weight, held)
    if weight is None:
        return estimator.fit(X, y)
    name, last = "", estimator
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name += f"{step}__"
    return estimator.fit(X, y, **{f"{name}sample_weight": weight})


def _stopping(estimator: Any, X: Any, y: NDArray[Any], weight: NDArray[Any] | None, held: tuple[Any, ...]) -> Any:
    """Fit a booster, and the steps of a pipeline before it, which the rows to stop by go through too."""
    if not isinstance(estimator, Pipeline):
        with warnings.catch_warnings():
            # LightGBM wants eval_X and eval_y, whose labels its classifiers do not encode (LightGBM issue 7400).
            warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
            return estimator.fit(X, y, sample_weight=weight, **_to_stop_by(estimator, *held))
    if len(estimator.steps) > 1:
        before = estimator[:-1]
        X = before.fit_transform(X, y)
        held = (before.transform(held[0]), *held[1:])
        estimator.steps[:-1] = before.steps  # copies, where the pipeline has a memory
    _stopping(estimator.steps[-1][1], X, y, weight, held)
    return estimator


def _to_stop_by(booster: Any, X: Any, y: NDArray[Any], weight: NDArray[Any] | None = None) -> dict[str, Any]:
    """What ``fit`` of a booster calls the rows to stop by."""
    weights = None if weight is None else [weight]
    match _library(booster):
        case "lightgbm":
            return {"eval_set": [(X, y)], "eval_sample_weight": weights}
        case "xgboost":
            return {"eval_set": [(X, y)], "sample_weight_eval_set": weights, "verbose": False}
    if weight is None:
        return {"eval_set": (X, y)}
    from catboost import Pool

    kinds = {name: booster.get_param(name) for name in ("cat_features", "text_features", "embedding_features")}
    return {"eval_set": Pool(X, y, weight=weight, **kinds)}


def check_fits(estimator: Any) -> None:
    """Reject what more is needed to fit than rows, targets and weights."""
    last = last_step(estimator)
    if RANKERS & {one.__name__ for one in type(last).__mro__}:
        raise BadInput(
            f"{type(last).__name__} is fitted on groups of rows (queries), which only its own fit can be given; fit it "
            "yourself, and take windtunnel.translate(fitted) or windtunnel.compile(fitted)"
        )


def last_step(estimator: Any) -> Any:
    """What predicts."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def asked_stops(estimator: Any) -> dict[str, Any]:
    """The options by which a booster asks for rows to stop by, as they are set."""
    names = STOPS.get(_library(estimator), ()) if hasattr(estimator, "get_params") else ()
    options = estimator.get_params() if names else {}
    given = {name: options.get(name) for name in sorted(names)}
    return {name: one for name, one in given.items() if isinstance(one, str) or (one or 0) > 0}


def settled(estimator: Any) -> Any:
    """A clone to fit on other rows; one that was stopped early by rows of its own gets as many trees as it has.

    Raises
    ------
    BadInput
        Where it would stop early, and is not fitted.
    """
    copy = unfitted(estimator)
    last = last_step(copy)
    if options := _stopped(last_step(estimator)):
        last.set_params(**options)
    elif asked := asked_stops(last):
        raise BadInput(
            f"{type(last).__name__} asks for rows to stop by ({_told(asked)}), of which members have none. Fit it with "
            "rows to stop by and give it fitted: members get as many trees as it has. WindTunnelClassifier and "
            f"WindTunnelRegressor with folds= do so. Or set {_told(dict.fromkeys(asked))} and a number of trees."
        )
    return copy


def unfitted(estimator: Any) -> Any:
    """A clone, where CatBoost copies its list of ``cat_features`` too, which scikit-learn's ``clone`` takes amiss."""
    if isinstance(estimator, Pipeline):
        same = shallow(estimator)
        *steps, (name, last) = estimator.steps
        same.steps = [*((step, clone(one, safe=False)) for step, one in steps), (name, unfitted(last))]
        return same
    if _library(estimator) != "catboost":
        return clone(estimator, safe=False)
    options = estimator.get_params()
    if estimator.is_fitted() and (columns := estimator.get_cat_feature_indices()):
        options["cat_features"] = columns  # which only fit may have been told of
    return type(estimator)(**options)


def _stopped(fitted: Any) -> dict[str, Any]:
    """The options of a booster that stopped early which give as many trees without rows to stop by."""
    library, options = _library(fitted), fitted.get_params()
    own = STOPS.get(library, set()) & options.keys()
    if library == "lightgbm" and getattr(fitted, "best_iteration_", None):
        return {**dict.fromkeys(own, 0), "n_estimators": fitted.best_iteration_}
    if library == "xgboost" and options.get("early_stopping_rounds") and hasattr(fitted, "best_iteration"):
        return {"n_estimators": fitted.best_iteration + 1, "early_stopping_rounds": None}
    if library == "catboost" and fitted.is_fitted() and fitted.tree_count_:
        name = next(
            (name for name in ("n_estimators", "num_boost_round", "num_trees") if name in options), "iterations"
        )
        return {**dict.fromkeys(own), name: fitted.tree_count_}
    return {}


def _library(estimator: Any) -> str:
    return type(estimator).__module__.split(".")[0]


def _told(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
