"""Constraints of a fitted pipeline that fine-tuning does not keep."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from windtunnel.errors import warn_caller

MONOTONE = re.compile(r"(.*__)?(monotone_constraints?|mc|monotonic_cst)")
INTERACTION = re.compile(r"(.*__)?(interaction_constraints|interaction_cst)")
"""The parameters of LightGBM, XGBoost, CatBoost and scikit-learn, maybe behind the names of steps."""


def warn_of_constraints(pipeline: Any) -> None:
    """Warn of monotone and interaction constraints of trees, which a residual model and joint training may break."""
    if names := constraints(pipeline):
        warn_caller(
            f"the source has {' and '.join(names)}. translate() and compile() keep them, but fit() does not: it adds "
            "models without constraints. Check its predictions before you use them where a constraint must hold.",
        )


def constraints(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that constrain its trees."""
    pipeline = getattr(pipeline, "best_estimator_", pipeline)
    parameters = pipeline.get_params() if hasattr(pipeline, "get_params") else getattr(pipeline, "params", {})
    if not isinstance(parameters, dict):
        return []
    return sorted(name for name, value in parameters.items() if _constrains(name, value))


def _constrains(name: str, value: Any) -> bool:
    if INTERACTION.fullmatch(name):
        return value is not None and len(value) > 0
    if not MONOTONE.fullmatch(name) or value is None:
        return False
    if isinstance(value, str):  # such as "(1,0,-1)"
        return re.search("[1-9]", value) is not None
    return bool(np.any([*value.values()] if isinstance(value, dict) else value))
