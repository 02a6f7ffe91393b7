"""Whether a pipeline takes a sequence of texts or other single values in the place of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from windtunnel.estimators.prediction_steps import prediction_steps


def takes_sequence(pipeline: Any) -> bool:
    """Whether a pipeline takes a sequence with one text, label, dict or list of tokens per row, and no table."""
    for step in leading_steps(pipeline):
        # A function that was fitted on a table has the number of its columns.
        if isinstance(step, FunctionTransformer) and not hasattr(step, "n_features_in_"):
            continue
        table = hasattr(step, "n_features_in_") or not hasattr(step, "__sklearn_tags__")
        return not (table or get_tags(step).input_tags.two_d_array)
    return False


def leading_steps(pipeline: Any) -> Iterator[Any]:
    """The estimators of a pipeline in order; the first takes the raw rows.

    An estimator made of others that does not know its columns, as these take texts, stands for the first of them.
    """
    if isinstance(pipeline, Pipeline):
        for _, step in prediction_steps(pipeline):
            yield from leading_steps(step)
    elif isinstance(pipeline, FeatureUnion) and not hasattr(pipeline, "n_features_in_"):
        for _, part in pipeline.transformer_list:
            yield from leading_steps(part)
    elif not hasattr(pipeline, "n_features_in_") and (inner := _inner_estimator(pipeline)) is not None:
        yield from leading_steps(inner)
    elif pipeline is not None and not isinstance(pipeline, str):
        yield pipeline


def _inner_estimator(composite: Any) -> Any:
    """The first estimator of scikit-learn's calibrations, searches, votes and the like; None for other estimators."""
    if not type(composite).__module__.startswith("sklearn."):
        return None
    if isinstance(members := getattr(composite, "estimators", None), list):
        return next((member for _, member in members if not isinstance(member, str)), None)
    return getattr(composite, "estimator", getattr(composite, "regressor", None))
