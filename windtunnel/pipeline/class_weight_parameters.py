"""The parameters of a fitted pipeline that make some classes count more: weights, and samplers of imbalanced-learn.

Rows that a sampler draws anew change the frequencies of the classes as weights do.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier

from windtunnel.estimators.prediction_steps import is_sampler
from windtunnel.pipeline.parameters import all_parameters, unwrapped

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


def class_weight_parameters(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that make some classes count more.

    These are weights and samplers. Those inside of a transformer do not count, as probabilities do not depend on them;
    nor those inside of a calibration or of the members of a stack, whose last step undoes the weights.
    """
    parameters = {"": unwrapped(pipeline)} | all_parameters(pipeline)
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
