"""The steps of a pipeline that rows pass when it predicts; imbalanced-learn's pipelines have others beside them."""

from __future__ import annotations

from typing import Any

from sklearn.pipeline import Pipeline


def prediction_steps(pipeline: Pipeline) -> list[tuple[str, Any]]:
    """Name and estimator of the steps that rows pass when a pipeline predicts: all but samplers before the last one."""
    steps: list[tuple[str, Any]] = pipeline.steps
    return [each for each in steps[:-1] if not is_sampler(each[1])] + steps[-1:]


def is_sampler(step: Any) -> bool:
    """Whether a step only draws, leaves out or makes up rows that the steps after it are fitted on, such as SMOTE."""
    return hasattr(step, "fit_resample")
