"""Constraints of a fitted pipeline that fine-tuning does not keep."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

CONSTRAINTS = re.compile(r"(.*__)?((monotone|interaction)_constraints|(monotonic|interaction)_cst)")
"""The parameters of LightGBM, XGBoost, CatBoost and scikit-learn, maybe behind the names of steps."""


def warn_of_constraints(pipeline: Any, stacklevel: int) -> None:
    """Warn of monotone and interaction constraints of trees, which a residual model and joint training may break."""
    if names := constraints(pipeline):
        warnings.warn(
            f"the source has {' and '.join(names)}. translate() and compile() keep them, but fit() does not: it adds "
            "models without constraints. Check its predictions before you use them where a constraint must hold.",
            UserWarning,
            stacklevel=stacklevel,
        )


def constraints(pipeline: Any) -> list[str]:
    """The parameters of a fitted pipeline, or of a LightGBM ``Booster``, that constrain its trees."""
    parameters = pipeline.get_params() if hasattr(pipeline, "get_params") else getattr(pipeline, "params", {})
    given = {name: np.array(value, dtype=object) for name, value in parameters.items() if CONSTRAINTS.fullmatch(name)}
    return sorted(name for name, value in given.items() if np.any(value))
