"""Walks a fitted pipeline into a small DAG of expressions; knows compositions, not operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

from windtunnel.encode.one_dimensional import leading_steps, one_dimensional
from windtunnel.errors import NotFitted, UnsupportedEstimator
from windtunnel.translators.registry import has_converter

LIBRARIES = ("sklearn", "lightgbm", "xgboost", "catboost", "category_encoders", "windtunnel")
"""Whose transformers say whether they are fitted."""


@dataclass(frozen=True, eq=False)
class Raw:
    """The rows as they are given to the pipeline."""


@dataclass(frozen=True, eq=False)
class Step:
    """The answer of one fitted estimator; ``name`` is its path in the pipeline, such as ``"columns.city.encoder"``."""

    name: str
    estimator: Any
    given: Expression


@dataclass(frozen=True, eq=False)
class Columns:
    """Some columns, by position; ``flat`` where the source asks for one column without a second dimension."""

    given: Expression
    positions: tuple[int, ...]
    flat: bool = False


@dataclass(frozen=True, eq=False)
class Weighted:
    """All columns multiplied by one number (``transformer_weights``)."""

    name: str
    given: Expression
    weight: float


@dataclass(frozen=True, eq=False)
class Joined:
    """Columns side by side; ``composite`` is the fitted estimator, if any, that makes all of them from ``given``."""

    parts: tuple[Expression, ...]
    composite: Any
    given: Expression


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method of a fitted estimator inside another one gives; ``take`` picks columns of it.

    ``method`` is that of ``windtunnel.translators.registry.Part``.
    """

    given: Expression
    method: str
    take: tuple[int, ...] | None = None


Expression = Raw | Step | Columns | Weighted | Joined | Answer


def walk(pipeline: Any, given: Expression | None = None, name: str = "") -> Expression:
    """The DAG of a fitted pipeline, nested at will, or of a bare fitted estimator, over what it is given."""
    if pipeline is None or isinstance(pipeline, str):
        raise UnsupportedEstimator(
            f"{pipeline!r} is not an estimator; give a fitted scikit-learn pipeline, a fitted estimator or a Booster."
        )
    return _walk(pipeline, given or Raw(), name)


def raw_columns(pipeline: Any) -> tuple[list[str] | None, int]:
    """Names (None where it was fitted on an array) and number of the columns that a pipeline was fitted on."""
    if one_dimensional(pipeline):
        return None, 1
    first: Any = next(leading_steps(pipeline), None)
    if hasattr(first, "feature_name") and hasattr(first, "num_feature"):  # a raw booster
        names: Any = first.feature_name()
    else:
        names = getattr(first, "feature_names_in_", None)
    width = getattr(first, "n_features_in_", len(names) if names is not None else None)
    if hasattr(first, "tree_count_"):  # CatBoost, whose n_features_in_ is 0 once it comes from a file
        names = first.feature_names_
        width = len(names)
    if width is None:
        raise UnsupportedEstimator(
            f"{type(pipeline).__name__} does not tell how many columns it was fitted on (n_features_in_); "
            "fit it, or put a step that does in front, such as a ColumnTransformer."
        )
    # LightGBM and CatBoost invent names for arrays; such rows are taken by position.
    invented = names is None or all(str(name) in (f"Column_{i}", str(i)) for i, name in enumerate(names))
    return (None if invented else [str(name) for name in names]), int(width)


def _walk(estimator: Any, given: Expression, name: str) -> Expression:
    if _passes(estimator):
        return given
    if isinstance(estimator, type):
        raise NotFitted(f"{estimator.__name__} is a class; give a fitted instance.")
    if isinstance(estimator, Pipeline):
        for step_name, step in estimator.steps:
            given = _walk(step, given, _path(name, step_name))
        return given
    if isinstance(estimator, ColumnTransformer):
        return _column_transformer(estimator, given, name)
    if isinstance(estimator, FeatureUnion):
        return _feature_union(estimator, given, name)
    _check_fitted(estimator, name)
    return Step(name or type(estimator).__name__, estimator, given)


def _column_transformer(fitted: ColumnTransformer, given: Expression, name: str) -> Expression:
    _check_fitted(fitted, name)
    weights = fitted.transformer_weights or {}
    parts = []
    for part_name, part, key in fitted.transformers_:
        positions = tuple(int(position) for position in fitted._transformer_to_input_indices[part_name])
        # scikit-learn does not fit a transformer that gets no columns.
        if len(positions) == 0 or (isinstance(part, str) and part == "drop"):
            continue
        path = _path(name, part_name)
        answer = _walk(part, Columns(given, positions, flat=isinstance(key, str | int)), path)
        parts.append(_weighted(answer, weights.get(part_name), path))
    return Joined(tuple(parts), fitted, given)


def _feature_union(fitted: FeatureUnion, given: Expression, name: str) -> Expression:
    weights = fitted.transformer_weights or {}
    parts = []
    for part_name, part in fitted.transformer_list:
        if isinstance(part, str) and part == "drop":
            continue
        path = _path(name, part_name)
        parts.append(_weighted(_walk(part, given, path), weights.get(part_name), path))
    return Joined(tuple(parts), fitted, given)


def _weighted(answer: Expression, weight: float | None, name: str) -> Expression:
    return answer if weight is None else Weighted(f"{name}.weight", answer, float(weight))


def _passes(step: Any) -> bool:
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return True
    # What ColumnTransformer puts in the place of "passthrough" when it is fitted.
    return isinstance(step, FunctionTransformer) and step.func is None


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
    """Whether CatBoost says so: a sum of its models has none of the attributes that scikit-learn looks for."""
    return type(estimator).__module__.startswith("catboost.") and bool(estimator.is_fitted())


def _may_be_stateless(estimator: Any) -> bool:
    """Whether it is a transformer of one's own: where ``fit`` only returns self, it looks as if it were not fitted."""
    library = type(estimator).__module__.partition(".")[0]
    return library not in LIBRARIES and hasattr(estimator, "transform") and not has_converter(type(estimator))
