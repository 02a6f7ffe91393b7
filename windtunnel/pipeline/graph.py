"""Builds the DAG of a fitted pipeline; knows compositions, not operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.prediction_steps import prediction_steps
from windtunnel.pipeline.expressions import Columns, Concatenated, Expression, Raw, Step, Weighted
from windtunnel.translators.not_fitted import NotFitted
from windtunnel.translators.registry import has_converter

LIBRARIES = ("sklearn", "lightgbm", "xgboost", "catboost", "category_encoders", "imblearn", "windtunnel")
"""Libraries whose transformers pass ``check_is_fitted`` once they are fitted."""


def build_graph(pipeline: Any, inputs: Expression | None = None, name: str = "") -> Expression:
    """The DAG of a fitted pipeline, nested at will, or of a bare fitted estimator, over `inputs`."""
    if pipeline is None or isinstance(pipeline, str):
        raise UnsupportedEstimator(
            f"{pipeline!r} is not an estimator; give a fitted scikit-learn pipeline, a fitted estimator or a Booster."
        )
    return _walk(pipeline, inputs or Raw(), name)


def _walk(estimator: Any, inputs: Expression, name: str, width: int | None = None) -> Expression:
    """``width`` is the number of columns of the output, where the steps around tell."""
    if _passes(estimator):
        return inputs
    if isinstance(estimator, type):
        raise NotFitted(f"{estimator.__name__} is a class; give a fitted instance.")
    if isinstance(estimator, Pipeline):
        steps = prediction_steps(estimator)
        following = [getattr(step, "n_features_in_", None) or None for _, step in steps[1:]]
        for (step_name, step), step_width in zip(steps, [*following, width], strict=True):
            inputs = _walk(step, inputs, _path(name, step_name), step_width)
        return inputs
    if isinstance(estimator, ColumnTransformer):
        return _column_transformer(estimator, inputs, name)
    if isinstance(estimator, FeatureUnion):
        return _feature_union(estimator, inputs, name)
    _check_fitted(estimator, name)
    return Step(name or type(estimator).__name__, estimator, inputs, width)


def _column_transformer(fitted: ColumnTransformer, inputs: Expression, name: str) -> Expression:
    _check_fitted(fitted, name)
    weights = fitted.transformer_weights or {}
    parts = []
    for part_name, part, key in fitted.transformers_:
        positions = tuple(int(position) for position in fitted._transformer_to_input_indices[part_name])
        # scikit-learn does not fit a transformer that gets no columns.
        if len(positions) == 0 or (isinstance(part, str) and part == "drop"):
            continue
        path = _path(name, part_name)
        outputs = fitted.output_indices_[part_name]
        columns = Columns(inputs, positions, flat=np.isscalar(key))
        output = _walk(part, columns, path, outputs.stop - outputs.start)
        parts.append(_weighted(output, weights.get(part_name), path))
    return Concatenated(tuple(parts), fitted, inputs)


def _feature_union(fitted: FeatureUnion, inputs: Expression, name: str) -> Expression:
    weights = fitted.transformer_weights or {}
    parts = []
    for part_name, part in fitted.transformer_list:
        if isinstance(part, str) and part == "drop":
            continue
        path = _path(name, part_name)
        parts.append(_weighted(_walk(part, inputs, path), weights.get(part_name), path))
    return Concatenated(tuple(parts), fitted, inputs)


def _weighted(output: Expression, weight: float | None, name: str) -> Expression:
    return output if weight is None else Weighted(f"{name}.weight", output, float(weight))


def _passes(step: Any) -> bool:
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return True
    # What ColumnTransformer puts in the place of "passthrough" when it is fitted.
    return isinstance(step, FunctionTransformer) and step.func is None and not step.validate


def _path(name: str, step: str) -> str:
    return f"{name}.{step}" if name else step


def _check_fitted(estimator: Any, name: str) -> None:
    where = f"step {name!r} ({type(estimator).__name__})" if name else type(estimator).__name__
    if not hasattr(estimator, "fit") and not hasattr(estimator, "predict"):
        raise UnsupportedEstimator(
            f"{where} is not an estimator; give a fitted scikit-learn pipeline, a fitted estimator or a Booster."
        )
    if hasattr(estimator, "get_params"):
        try:
            check_is_fitted(estimator)
        except NotFittedError as error:
            if not (_may_be_stateless(estimator) or _says_fitted(estimator)):
                raise NotFitted(f"{where} is not fitted; call fit on the pipeline, then translate it.") from error


def _says_fitted(estimator: Any) -> bool:
    """Whether a CatBoost model is fitted: a sum of models has none of the attributes that scikit-learn checks."""
    return type(estimator).__module__.startswith("catboost.") and bool(estimator.is_fitted())


def _may_be_stateless(estimator: Any) -> bool:
    """Whether this is a custom transformer, whose ``fit`` may only return self and set no attribute."""
    library = type(estimator).__module__.partition(".")[0]
    return library not in LIBRARIES and hasattr(estimator, "transform") and not has_converter(type(estimator))
