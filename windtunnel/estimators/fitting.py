"""Fits and clones estimators of other libraries: row weights, and validation rows for early stopping."""

from __future__ import annotations

import warnings
from copy import copy as shallow
from typing import Any

from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from windtunnel.errors import BadInput
from windtunnel.estimators.prediction_steps import is_sampler, prediction_steps

EARLY_STOPPING = {
    "lightgbm": {"early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"},
    "xgboost": {"early_stopping_rounds"},
    "catboost": {"early_stopping_rounds", "od_wait", "od_type", "od_pval", "use_best_model"},
}
"""Early-stopping options by library, which need validation rows in ``fit``."""
LIGHTGBM_ROUNDS = {
    *("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds", "nrounds"),
    *("num_boost_round", "max_iter"),
}
"""LightGBM's other names of ``n_estimators``."""
RANKERS = {"LGBMRanker", "XGBRanker", "CatBoostRanker"}


def fit_estimator(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    weight: NDArray[Any] | None = None,
    *,
    validation: tuple[Any, ...] | None = None,
) -> Any:
    """Fit an estimator; row weights go to it, or to the last step of a pipeline.

    With scikit-learn's metadata routing, they go to the steps that request them.

    ``validation`` are rows ``(X, y)`` or ``(X, y, weight)``, which only a booster with early stopping uses.

    Raises
    ------
    BadInput
        Row weights for a pipeline with a sampler, which gives rows without weights.
    """
    if weight is not None and (name := _sampler_of(estimator)):
        raise BadInput(
            f"step {name!r} draws rows anew, and their weights are not known; leave out the weights, or the sampler."
        )
    if validation is not None and early_stopping_options(last_step(estimator)):
        return _fit_with_early_stopping(estimator, X, y, weight, validation)
    if weight is None:
        return estimator.fit(X, y)
    name, last = "", estimator
    while not get_config()["enable_metadata_routing"] and isinstance(last, Pipeline):
        step, last = last.steps[-1]
        name += f"{step}__"
    return estimator.fit(X, y, **{f"{name}sample_weight": weight})


def _fit_with_early_stopping(
    estimator: Any, X: Any, y: NDArray[Any], weight: NDArray[Any] | None, validation: tuple[Any, ...]
) -> Any:
    """Fit a booster, and the steps of a pipeline before it, which transform the validation rows too."""
    if not isinstance(estimator, Pipeline):
        with warnings.catch_warnings():
            # LightGBM wants eval_X and eval_y, whose labels its classifiers do not encode (LightGBM issue 7400).
            warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
            return estimator.fit(X, y, sample_weight=weight, **_validation_arguments(estimator, *validation))
    if len(estimator.steps) > 1:
        before = estimator[:-1]
        if _sampler_of(estimator):
            X, y = _fit_samplers(before, X, y)
        else:
            X = before.fit_transform(X, y, **_requested_weight(before, weight))
            estimator.steps[:-1] = before.steps  # copies, where the pipeline has a memory
        if steps := prediction_steps(estimator)[:-1]:
            validation = (Pipeline(steps).transform(validation[0]), *validation[1:])
    _fit_with_early_stopping(estimator.steps[-1][1], X, y, weight, validation)
    return estimator


def _sampler_of(estimator: Any) -> str | None:
    """The name of the first sampler of a pipeline, or of the pipeline that it ends in."""
    while isinstance(estimator, Pipeline):
        if names := [name for name, step in estimator.steps[:-1] if is_sampler(step)]:
            return str(names[0])
        estimator = estimator.steps[-1][1]
    return None


def _fit_samplers(pipeline: Pipeline, X: Any, y: Any) -> tuple[Any, Any]:
    """Fit samplers and the transformers between them; returns the rows for the step behind, with their targets."""
    for _, step in pipeline.steps:
        if is_sampler(step):
            X, y = step.fit_resample(X, y)
        elif step is not None and step != "passthrough":
            X = step.fit_transform(X, y)
    return X, y


def _requested_weight(steps: Pipeline, weight: NDArray[Any] | None) -> dict[str, Any]:
    """Row weights as an argument of steps that request them, with scikit-learn's metadata routing."""
    if weight is None or not get_config()["enable_metadata_routing"]:
        return {}
    requested = steps.get_metadata_routing().consumes("fit_transform", ["sample_weight"])
    return {"sample_weight": weight} if requested else {}


def _validation_arguments(booster: Any, X: Any, y: NDArray[Any], weight: NDArray[Any] | None = None) -> dict[str, Any]:
    """The validation rows as arguments of a booster's ``fit``."""
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


def check_needs_no_queries(estimator: Any) -> None:
    """Reject rankers, which need more than rows, targets and weights to be fitted."""
    last = last_step(estimator)
    if RANKERS & {parent.__name__ for parent in type(last).__mro__}:
        raise BadInput(
            f"{type(last).__name__} is fitted on groups of rows (queries), which only its own fit can be given; fit it "
            "yourself, and take windtunnel.translate(fitted) or windtunnel.compile(fitted)"
        )


def last_step(estimator: Any) -> Any:
    """The last step of a pipeline, or the estimator itself."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def early_stopping_options(estimator: Any) -> dict[str, Any]:
    """The early-stopping options of a booster that are set."""
    names = EARLY_STOPPING.get(_library(estimator), ()) if hasattr(estimator, "get_params") else ()
    options = estimator.get_params() if names else {}
    values = {name: options.get(name) for name in sorted(names)}
    return {name: value for name, value in values.items() if isinstance(value, str) or (value or 0) > 0}


def clone_for_refit(estimator: Any) -> Any:
    """Clone an estimator to fit it on other rows; a booster that stopped early gets a fixed number of trees, its own.

    Raises
    ------
    BadInput
        For an unfitted estimator with early stopping.
    """
    copy = clone_unfitted(estimator)
    last = last_step(copy)
    if options := _fixed_size(last_step(estimator)):
        last.set_params(**options)
    elif stopping := early_stopping_options(last):
        raise BadInput(
            f"{type(last).__name__} stops early on validation rows ({_listed(stopping)}), of which members have none. "
            "Fit it with validation rows and give it fitted: members get as many trees as it has. WindTunnelClassifier "
            f"and WindTunnelRegressor with folds= do so. Or set {_listed(dict.fromkeys(stopping))} and a number "
            "of trees."
        )
    return copy


def clone_unfitted(estimator: Any) -> Any:
    """An unfitted clone; ``clone`` of scikit-learn rejects CatBoost, which copies its list of ``cat_features``."""
    if isinstance(estimator, Pipeline):
        copied = shallow(estimator)
        *steps, (name, last) = estimator.steps
        copied.steps = [*((step, clone(before, safe=False)) for step, before in steps), (name, clone_unfitted(last))]
        return copied
    if _library(estimator) != "catboost":
        return clone(estimator, safe=False)
    options = estimator.get_params()
    if estimator.is_fitted() and (columns := estimator.get_cat_feature_indices()):
        options["cat_features"] = columns  # they may have been given to fit alone
    return type(estimator)(**options)


def _fixed_size(fitted: Any) -> dict[str, Any]:
    """Options that give a booster the number of trees at which another one stopped early; empty if it did not."""
    library, options = _library(fitted), fitted.get_params()
    stopping_options = EARLY_STOPPING.get(library, set()) & options.keys()
    if library == "lightgbm" and getattr(fitted, "best_iteration_", None):
        names = {"n_estimators"} | (LIGHTGBM_ROUNDS & options.keys())  # an alias overrides n_estimators
        return {**dict.fromkeys(stopping_options, 0), **dict.fromkeys(names, fitted.best_iteration_)}
    if library == "xgboost" and options.get("early_stopping_rounds") and hasattr(fitted, "best_iteration"):
        return {"n_estimators": fitted.best_iteration + 1, "early_stopping_rounds": None}
    if library == "catboost" and fitted.is_fitted() and fitted.tree_count_:
        name = next(
            (name for name in ("n_estimators", "num_boost_round", "num_trees") if name in options), "iterations"
        )
        return {**dict.fromkeys(stopping_options), name: fitted.tree_count_}
    return {}


def _library(estimator: Any) -> str:
    return type(estimator).__module__.split(".")[0]


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
