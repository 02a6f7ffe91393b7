"""The steps of a pipeline in a config: estimators by name, with the options of their constructors."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from windtunnel.errors import BadInput, nearest

COMPOSITIONS = {"Pipeline": "make_pipeline", "FeatureUnion": "make_union"}
"""Estimators that a config writes as a list of steps."""
PASSTHROUGH = "passthrough"
INNER = ("estimator", "encoder", "final_estimator", "regressor", "transformer")
"""Options of estimators that take another estimator."""
XGBOOST_OBJECTIVE_OPTIONS = ("huber_slope", "quantile_alpha", "tweedie_variance_power")
"""Options of XGBoost's objectives, which its estimators accept but do not name."""


class Section(BaseModel):
    """A frozen mapping that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StepConfig(Section):
    """One estimator that has a translation, by name, with the options of its constructor.

    Written as ``Name`` or ``Name: {option: value, ...}``. If two libraries use a name, it means scikit-learn's class;
    the other is written with its library, such as ``category_encoders.OneHotEncoder``. An option that takes
    another estimator is a step itself:
    ``LeafEncoder: {estimator: {LGBMClassifier: {num_leaves: 64}}}``. ``Pipeline: [step, ...]`` applies steps one after
    another; ``FeatureUnion: [step, ...]`` concatenates their outputs, and ``passthrough`` in it is the input.
    """

    name: str
    options: dict[str, Any] = {}
    estimators: dict[str, StepConfig] = {}
    steps: tuple[StepConfig, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, step: Any) -> Any:
        if isinstance(step, str):
            return {"name": step}
        if isinstance(step, Mapping) and "name" in step and set(step) <= set(cls.model_fields):
            return step  # the form of summary.json
        if isinstance(step, Mapping) and len(step) == 1 and all(isinstance(name, str) for name in step):
            ((name, options),) = step.items()
            if name in COMPOSITIONS and isinstance(options, Sequence) and not isinstance(options, str):
                return {"name": name, "steps": options}
            if name not in COMPOSITIONS and (options is None or isinstance(options, Mapping)):
                options = options or {}
                inner = {key: value for key, value in options.items() if key in INNER and value is not None}
                plain = {key: value for key, value in options.items() if key not in inner}
                return {"name": name, "options": plain, "estimators": inner}
        raise BadInput(
            f"{step!r} is no step; write Name, or Name: {{option: value}}; {' and '.join(COMPOSITIONS)} take lists of "
            "steps"
        )

    @model_validator(mode="after")
    def _accepted_options(self) -> StepConfig:
        if self.name in COMPOSITIONS and not self.steps:
            raise BadInput(f"{self.name} has no steps; write {self.name}: [step, ...]")
        if self.name not in COMPOSITIONS and self.steps:
            raise BadInput(f"{self.name} takes no list of steps; {' and '.join(COMPOSITIONS)} do")
        if self.name not in (*COMPOSITIONS, PASSTHROUGH):
            estimator, options = estimator_class(self.name), {**self.options, **self.estimators}
            errors = _unknown_options(self.name, estimator, options)
            errors += [
                f"{self.name} needs the option {name!r}, a step such as {name}: LGBMClassifier"
                for name in required_options(estimator)
                if name not in options
            ]
            if errors:
                raise BadInput("; ".join(errors))
        return self

    @model_serializer(mode="wrap")
    def _without_empty_fields(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {key: value for key, value in values.items() if value or key in ("name", "options")}

    @property
    def last(self) -> StepConfig:
        """The step itself, or the last one of a ``Pipeline``."""
        return self.steps[-1].last if self.name == "Pipeline" else self

    def build(self) -> Any:
        """Create the estimator, not fitted."""
        if self.name == PASSTHROUGH:
            return PASSTHROUGH
        if self.name in COMPOSITIONS:
            import sklearn.pipeline

            return getattr(sklearn.pipeline, COMPOSITIONS[self.name])(*(step.build() for step in self.steps))
        inner = {option: step.build() for option, step in self.estimators.items()}
        return estimator_class(self.name)(**self.options, **inner)


@cache
def estimators() -> dict[str, type]:
    """Classes with a translation, by their names in a config; without those whose arguments a config cannot write."""
    from windtunnel.translators import supported

    classes = [
        (entry.library, entry.estimator)
        for entry in supported()
        if hasattr(entry.estimator, "fit") and set(required_options(entry.estimator)) <= set(INNER)
    ]
    names = [estimator.__name__ for _, estimator in classes]
    return {
        (
            estimator.__name__
            if library == "sklearn" or names.count(estimator.__name__) == 1
            else f"{library}.{estimator.__name__}"
        ): estimator
        for library, estimator in classes
    }


def estimator_class(name: str) -> type:
    """The class with this name in a config; ``BadInput`` for other names."""
    classes = estimators()
    if name in classes:
        return classes[name]
    library, _, bare = name.rpartition(".")
    if library == "sklearn" and bare in classes and classes[bare].__module__.startswith("sklearn."):
        return classes[bare]
    if same := [full for full in classes if full.rpartition(".")[2] == name]:
        raise BadInput(f"{name!r} is in more than one library; write {' or '.join(same)}")
    if bare in classes:
        raise BadInput(f"{name!r} is written {bare!r} here")
    raise BadInput(f"no estimator {name!r} with a translation: {nearest(name, classes)}")


def required_options(estimator: type) -> list[str]:
    """Arguments of the constructor without a default."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(estimator).parameters.values()
    return [each.name for each in parameters if each.default is Parameter.empty and each.kind in named]


def _unknown_options(name: str, estimator: type, options: Mapping[str, Any]) -> list[str]:
    parameters = signature(estimator).parameters.values()
    accepted = [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]
    if len(accepted) < len(parameters):  # the boosting libraries take further options by **kwargs
        if not required_options(estimator):
            accepted += [option for option in estimator().get_params() if option not in accepted]
        if estimator.__module__.startswith("xgboost"):
            accepted += XGBOOST_OBJECTIVE_OPTIONS
    unknown = [option for option in options if option not in accepted]
    if estimator.__module__.startswith("lightgbm"):
        unknown = _unknown_to_lightgbm({option: options[option] for option in unknown})
    return [f"{name} has no option {option!r}: {nearest(option, accepted)}" for option in unknown]


def _unknown_to_lightgbm(options: dict[str, Any]) -> list[str]:
    """Names that LightGBM, which has hundreds of aliases, warns about: otherwise it ignores a misspelled option."""
    import lightgbm
    import numpy as np

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        lightgbm.Dataset(np.zeros((1, 1)), params={**options, "verbosity": 1}).construct()
    return [option for option in options if f"Unknown parameter: {option}\n" in printed.getvalue()]
