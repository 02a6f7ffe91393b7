"""Whether a pipeline takes a sequence of texts or other single values in the place of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags


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
    """The estimators of a pipeline in order; the first takes the raw rows."""
    if isinstance(pipeline, Pipeline):
        for _, step in pipeline.steps:
            yield from leading_steps(step)
    elif isinstance(pipeline, FeatureUnion) and not hasattr(pipeline, "n_features_in_"):
        for _, part in pipeline.transformer_list:
            yield from leading_steps(part)
    elif pipeline is not None and not isinstance(pipeline, str):
        yield pipeline
