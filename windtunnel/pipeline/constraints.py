"""Constraints of the trees of a fitted pipeline, which its predictor does not show."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from windtunnel.errors import warn_caller
from windtunnel.pipeline.parameters import all_parameters

MONOTONE = re.compile(r"(.*__)?(monotone_constraints?|mc|monotonic_cst)")
INTERACTION = re.compile(r"(.*__)?(interaction_constraints|interaction_cst)")


def warn_of_constraints(pipeline: Any) -> None:
    """Warn of constraints of trees, which ``fit`` does not keep."""
    if names := constraints(pipeline):
        warn_caller(
            f"the source has {' and '.join(names)}. translate() and compile() keep them, but fit() does not: it adds "
            "models without constraints. Check its predictions before you use them where a constraint must hold.",
        )


def constraints(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that constrain its trees."""
    return sorted(name for name, value in all_parameters(pipeline).items() if _constrains(name, value))


def _constrains(name: str, value: Any) -> bool:
    if INTERACTION.fullmatch(name):
        return value is not None and len(value) > 0
    if not MONOTONE.fullmatch(name) or value is None:
        return False
    if isinstance(value, str):  # such as "(1,0,-1)"
        return re.search("[1-9]", value) is not None
    return bool(np.any([*value.values()] if isinstance(value, dict) else value))
