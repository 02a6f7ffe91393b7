"""Feature groups: the parts of the last concatenation in a fitted pipeline, each computed independently."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from windtunnel.errors import UnsupportedEstimator


@dataclass(frozen=True)
class GroupedPipeline:
    """A fitted pipeline, split at its last ``ColumnTransformer`` or ``FeatureUnion``.

    Attributes
    ----------
    before : list of (name, estimator)
        The steps in front of it, which every group shares.
    name, composite : str, ColumnTransformer or FeatureUnion
        Its parts are the groups.
    after : Pipeline
        The steps behind it; the last one predicts.
    """

    before: list[tuple[str, Any]]
    name: str
    composite: Any
    after: Pipeline

    @classmethod
    def of(cls, pipeline: Any) -> GroupedPipeline:
        """Split a fitted pipeline.

        Raises
        ------
        UnsupportedEstimator
            It has no concatenation of two parts or more in front of its last step.
        """
        steps = _flat_steps(pipeline)
        places = [
            place for place, (_, step) in enumerate(steps[:-1]) if isinstance(step, ColumnTransformer | FeatureUnion)
        ]
        if not places or len(names := _names(steps[places[-1]][1])) < 2:
            parts = f"the last has one part, {names[0]!r}" if places and names else "there is none"
            raise UnsupportedEstimator(
                "a cascade computes some parts of a ColumnTransformer or FeatureUnion and leaves others out; "
                f"{parts} in this pipeline. Give costly features separate transformers."
            )
        return cls(steps[: places[-1]], *steps[places[-1]], Pipeline(steps[places[-1] + 1 :]))

    @property
    def names(self) -> list[str]:
        """The names of the groups, in their order."""
        return _names(self.composite)

    def inputs(self, rows: Any) -> Any:
        """What the composite takes for raw rows."""
        for _, step in self.before:
            rows = step.transform(rows)
        return rows

    def features(self, inputs: Any, names: Collection[str]) -> Any:
        """The columns of some groups, dense or sparse."""
        return self.only(names).transform(inputs)

    def only(self, names: Collection[str]) -> Any:
        """The composite with all other groups dropped; it shares the fitted transformers."""
        composite = copy(self.composite)
        if isinstance(composite, FeatureUnion):
            parts = [(name, part if name in names else "drop") for name, part in composite.transformer_list]
            composite.transformer_list = parts
            return composite
        composite.transformers_ = [
            (name, part if name in names else "drop", columns) for name, part, columns in composite.transformers_
        ]
        composite.output_indices_, start = {}, 0
        for name, columns in self.composite.output_indices_.items():
            width = (columns.stop - columns.start) if name in names else 0
            composite.output_indices_[name] = slice(start, start := start + width)
        return composite

    def smaller(self, inputs: Any, target: Any, names: Collection[str]) -> Pipeline:
        """A pipeline of the same classes over some groups: what follows the composite is fitted on their columns."""
        composite = self.only(names)
        after = clone(self.after).fit(composite.transform(inputs), target)
        return Pipeline([*self.before, (self.name, composite), *after.steps])


def _flat_steps(pipeline: Any, name: str = "") -> list[tuple[str, Any]]:
    """Path and estimator of the steps of nested pipelines, without those that pass everything through."""
    if not isinstance(pipeline, Pipeline):
        return [(name or "model", pipeline)]
    steps = [(f"{name}.{part}" if name else part, step) for part, step in pipeline.steps]
    return [
        inner for path, step in steps if step is not None and step != "passthrough" for inner in _flat_steps(step, path)
    ]


def _names(composite: Any) -> list[str]:
    """The parts of a composite that give columns."""
    if isinstance(composite, FeatureUnion):
        return [name for name, part in composite.transformer_list if not _dropped(part)]
    outputs = composite.output_indices_
    return [
        name
        for name, part, _ in composite.transformers_
        if not _dropped(part) and outputs[name].start < outputs[name].stop
    ]


def _dropped(part: Any) -> bool:
    return isinstance(part, str) and part == "drop"
