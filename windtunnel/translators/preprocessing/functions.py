"""scikit-learn's FunctionTransformer over functions of NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from scipy import special
from sklearn.preprocessing import FunctionTransformer

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.columns.elementwise import Elementwise
from windtunnel.modules.tables.category_table import Identity
from windtunnel.translators.arrays import tensor
from windtunnel.translators.registry import translates

KNOWN: dict[Callable[..., Any], str] = {
    function: function.__name__
    for function in (
        np.log1p, np.log, np.log2, np.log10, np.exp, np.exp2, np.expm1, np.sqrt, np.cbrt, np.square, np.abs, np.sign,
        np.sin, np.cos, np.tanh, np.arctan, np.sinh, np.arcsinh, np.negative, np.clip, np.nan_to_num, special.expit,
        special.logit, special.log1p, special.expm1, special.exp2, special.cbrt,
    )
}  # fmt: skip
"""Functions of single numbers -> their names in ``windtunnel.modules.columns.elementwise``."""

OPTIONS: dict[str, dict[str, tuple[int, float]]] = {
    "clip": {"a_min": (0, -math.inf), "a_max": (1, math.inf), "min": (0, -math.inf), "max": (1, math.inf)},
    "nan_to_num": {
        "nan": (0, 0.0),
        "posinf": (1, float(np.finfo(np.float64).max)),
        "neginf": (2, float(np.finfo(np.float64).min)),
    },
}
"""The arguments that a function takes: name -> position among the options, and what None stands for."""


@translates(
    FunctionTransformer,
    notes="functions of NumPy and SciPy by value: logarithms, exponentials, roots, clip, ...; others stay on the host",
)
def function_transformer(fitted: FunctionTransformer) -> Elementwise | Identity:
    """f(x) for each number. Reads func and kw_args."""
    if fitted.func is None:
        return Identity()
    name = known_name(fitted.func)
    if name is None:
        raise UnsupportedEstimator(
            f"FunctionTransformer calls {getattr(fitted.func, '__name__', fitted.func)!r}, which has no translation; "
            f"accepted are {len(KNOWN)} functions of NumPy and SciPy, such as np.log1p, np.sqrt and np.clip"
            + (". np.reciprocal gives other results for whole numbers" if fitted.func is np.reciprocal else "")
        )
    return Elementwise(tensor(options_of(name, fitted.kw_args or {})), name)


def known_name(function: Any) -> str | None:
    """The name of a function of ``KNOWN``; None for any other."""
    try:
        return KNOWN.get(function)
    except TypeError:  # it cannot be hashed
        return None


def options_of(name: str, arguments: dict[str, Any]) -> list[float]:
    """The three options of a function, from its keyword arguments."""
    accepted = OPTIONS.get(name, {})
    options = [0.0, 0.0, 0.0]
    for position, default in accepted.values():
        options[position] = default
    # ``copy`` does not change the output.
    wanted = {key: value for key, value in arguments.items() if key != "copy"}
    wrong = [f"{key}={value!r}" for key, value in wanted.items() if key not in accepted or not _is_number(value)]
    if wrong:
        raise UnsupportedEstimator(
            f"FunctionTransformer calls {name} with kw_args {', '.join(wrong)}; accepted are numbers or None for "
            f"{', '.join(accepted) or 'no argument at all'}"
        )
    for key, value in wanted.items():
        position, default = accepted[key]
        options[position] = default if value is None else float(value)
    return options


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value))
