"""What a fitted pipeline was fitted with that its predictor does not show: constraints of trees, weights of classes.

Rows that a sampler of imbalanced-learn draws anew change the frequencies of the classes as weights do.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.frozen import FrozenEstimator

from windtunnel.errors import warn_caller
from windtunnel.estimators.prediction_steps import is_sampler

MONOTONE = re.compile(r"(.*__)?(monotone_constraints?|mc|monotonic_cst)")
INTERACTION = re.compile(r"(.*__)?(interaction_constraints|interaction_cst)")
CLASS_WEIGHTS = re.compile(
    r"(.*__)?(class_weights?|auto_class_weights|scale_pos_weight|is_unbalance|unbalance|unbalanced_sets)"
)
"""The parameters of LightGBM, XGBoost, CatBoost and scikit-learn, maybe behind the names of steps."""
RESAMPLING = re.compile(r"(.*__)?sampling_strategy")
"""The parameter of imbalanced-learn's samplers and ensembles: they change how frequent the classes are."""
RECIPE = "recipe__"
"""The options of ``WindTunnelClassifier`` for fine-tuning, which weigh nothing by themselves."""
CALIBRATING = (CalibratedClassifierCV, StackingClassifier)
"""Fit the probabilities of others again, without weights."""


def warn_of_constraints(pipeline: Any) -> None:
    """Warn of constraints of trees, which ``fit`` does not keep."""
    if names := constraints(pipeline):
        warn_caller(
            f"the source has {' and '.join(names)}. translate() and compile() keep them, but fit() does not: it adds "
            "models without constraints. Check its predictions before you use them where a constraint must hold.",
        )


def constraints(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that constrain its trees."""
    return sorted(name for name, value in _parameters(pipeline).items() if _constrains(name, value))


def class_weights(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that make some classes count more.

    Weights, or samplers. Those inside of a transformer, of a calibration, or of the members of a stack do not count:
    probabilities do not depend on them, or what follows them undoes the weights.
    """
    parameters = {"": _unwrapped(pipeline)} | _parameters(pipeline)
    parameters |= _weights_of_boosters(parameters)
    owners = {f"{name}__".lstrip("_"): value for name, value in parameters.items() if hasattr(value, "get_params")}
    undone = [
        prefix
        for prefix, owner in owners.items()
        if isinstance(owner, CALIBRATING) or not (hasattr(owner, "predict") or is_sampler(owner))
    ]
    samplers = {
        name
        for name, value in parameters.items()
        if is_sampler(value) and not hasattr(value, "predict") and f"{name}__sampling_strategy" not in parameters
    }
    return sorted(
        name
        for name, value in parameters.items()
        if RESAMPLING.fullmatch(name) or name in samplers or (CLASS_WEIGHTS.fullmatch(name) and _weighs(value))
        if RECIPE not in name
        if not any(name.startswith(inside) and not name.startswith(f"{inside}final_estimator") for inside in undone)
    )


def _parameters(pipeline: Any) -> dict[str, Any]:
    """The parameters of an estimator and of those inside, of searches those of the best, frozen ones among them."""
    pipeline = _unwrapped(pipeline)
    parameters = pipeline.get_params() if hasattr(pipeline, "get_params") else getattr(pipeline, "params", {})
    if not isinstance(parameters, dict):
        return {}
    wrapped = {name: _unwrapped(value) for name, value in parameters.items() if _unwrapped(value) is not value}
    for path, estimator in wrapped.items():
        found = {"": estimator} | _parameters(estimator)
        parameters = parameters | {f"{path}__estimator__{name}".rstrip("_"): value for name, value in found.items()}
    return parameters


def _unwrapped(estimator: Any) -> Any:
    """The best estimator of a search, and the one inside of a ``FrozenEstimator``."""
    while True:
        inner = getattr(estimator, "best_estimator_", estimator)
        inner = inner.estimator if isinstance(inner, FrozenEstimator) else inner
        if inner is estimator:
            return inner
        estimator = inner


def _weights_of_boosters(parameters: dict[str, Any]) -> dict[str, Any]:
    """The weights of XGBoost models that come from a file, whose parameters do not have them."""
    weights = {f"{name}__scale_pos_weight".lstrip("_"): _stored_weight(value) for name, value in parameters.items()}
    return {name: weight for name, weight in weights.items() if weight is not None}


def _stored_weight(model: Any) -> float | None:
    """The weight of the positive class that the booster of a fitted XGBoost model stores; None if there is none."""
    is_xgboost = type(model).__module__.startswith("xgboost.") and hasattr(model, "get_booster")
    if not is_xgboost or not model.__sklearn_is_fitted__():
        return None
    objective = json.loads(model.get_booster().save_config())["learner"]["objective"]
    weight = objective.get("reg_loss_param", {}).get("scale_pos_weight")
    return None if weight is None else float(weight)


def _constrains(name: str, value: Any) -> bool:
    if INTERACTION.fullmatch(name):
        return value is not None and len(value) > 0
    if not MONOTONE.fullmatch(name) or value is None:
        return False
    if isinstance(value, str):  # such as "(1,0,-1)"
        return re.search("[1-9]", value) is not None
    return bool(np.any([*value.values()] if isinstance(value, dict) else value))


def _weighs(value: Any) -> bool:
    """Whether class weights, or the weight of the positive class, are other than equal."""
    if isinstance(value, dict):
        weights = [*value.values()]
        return len(set(weights)) > 1 or (len(weights) == 1 and weights[0] != 1)
    if isinstance(value, list | tuple | np.ndarray) and any(isinstance(one, dict) for one in value):
        return any(map(_weighs, value))
    if isinstance(value, list | tuple | np.ndarray):
        return len(np.unique(value)) > 1
    if isinstance(value, str):
        text = value.lower()
        return text not in ("", "none", "false") and not re.fullmatch(r"1(\.0*)?", text)
    return value is not None and bool(value) and (isinstance(value, bool | np.bool_) or value != 1)
