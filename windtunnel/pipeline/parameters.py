"""The parameters of a fitted pipeline, with those inside of searches and frozen estimators."""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator


def all_parameters(pipeline: Any) -> dict[str, Any]:
    """The parameters of an estimator and of those inside, of searches those of the best, frozen ones among them."""
    pipeline = unwrapped(pipeline)
    parameters = pipeline.get_params() if hasattr(pipeline, "get_params") else getattr(pipeline, "params", {})
    if not isinstance(parameters, dict):
        return {}
    wrapped = {name: unwrapped(value) for name, value in parameters.items() if unwrapped(value) is not value}
    for path, estimator in wrapped.items():
        found = {"": estimator} | all_parameters(estimator)
        parameters = parameters | {f"{path}__estimator__{name}".rstrip("_"): value for name, value in found.items()}
    return parameters


def unwrapped(estimator: Any) -> Any:
    """The best estimator of a search, and the one inside of a ``FrozenEstimator``."""
    while True:
        inner = getattr(estimator, "best_estimator_", estimator)
        inner = inner.estimator if isinstance(inner, FrozenEstimator) else inner
        if inner is estimator:
            return inner
        estimator = inner
