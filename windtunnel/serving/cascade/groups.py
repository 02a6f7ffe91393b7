"""Feature groups: the parts of the last concatenation in a fitted pipeline, each computed independently."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import TargetEncoder

from windtunnel.errors import UnsupportedEstimator
from windtunnel.estimators.prediction_steps import prediction_steps


@dataclass(frozen=True)
class GroupedPipeline:
    """A fitted pipeline, split at its last ``ColumnTransformer`` or ``FeatureUnion``."""

    before: list[tuple[str, Any]]  # the steps in front of it, which every group shares
    # name, composite: its parts are the groups
    name: str
    composite: Any
    after: Pipeline  # the steps behind it; the last one predicts

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
        if not places or len(names := _group_names(steps[places[-1]][1])) < 2:
            parts = f"the last has one part, {names[0]!r}" if places and names else "there is none"
            raise UnsupportedEstimator(
                "a cascade computes some parts of a ColumnTransformer or FeatureUnion and leaves others out; "
                f"{parts} in this pipeline. Give costly features separate transformers."
            )
        return cls(steps[: places[-1]], *steps[places[-1]], Pipeline(steps[places[-1] + 1 :]))

    @property
    def names(self) -> list[str]:
        """The names of the groups, in their order; of nested concatenations the paths of their parts."""
        return _group_names(self.composite)

    def inputs(self, rows: Any) -> Any:
        """The input of the composite for raw rows."""
        for _, step in self.before:
            rows = step.transform(rows)
        return rows

    def features(self, inputs: Any, names: Collection[str]) -> Any:
        """The columns of some groups, dense or sparse."""
        return _transformed(self.without_others(names), inputs)

    def without_others(self, names: Collection[str]) -> Any:
        """The composite with all other groups dropped; it shares the fitted transformers."""
        return _without_others(self.composite, names)

    def transformer(self, names: Collection[str]) -> Pipeline:
        """The pipeline from raw rows to the columns of some groups."""
        return Pipeline([*self.before, (self.name, self.without_others(names))])

    def smaller(self, inputs: Any, target: Any, names: Collection[str]) -> Pipeline:
        """A pipeline of the same classes over some groups: what follows the composite is fitted on their columns.

        As in fitting a pipeline, these are cross-fitted where they are target encodings.
        """
        fitting = _without_others(
            self.composite, names, lambda part: CrossFitted(part, target) if _encodes_target(part) else part
        )
        after = clone(self.after).fit(_transformed(fitting, inputs), target)
        composite = self.without_others(names)
        if hasattr(fitting, "sparse_output_"):
            composite.sparse_output_ = fitting.sparse_output_
        return Pipeline([*self.before, (self.name, composite), *after.steps])


@dataclass(frozen=True)
class CrossFitted:
    """A transformer whose ``transform`` gives the features of training rows, as ``fit_transform`` does."""

    part: Any
    target: Any

    def transform(self, rows: Any) -> Any:
        """The features of the training rows."""
        return clone(self.part).fit_transform(rows, self.target)


def _encodes_target(part: Any) -> bool:
    return any(isinstance(step, TargetEncoder) for _, step in _flat_steps(part))


def _flat_steps(pipeline: Any, name: str = "") -> list[tuple[str, Any]]:
    """Path and estimator of the steps of nested pipelines, without those that pass everything through."""
    if not isinstance(pipeline, Pipeline):
        return [(name or "model", pipeline)]
    steps = [(f"{name}.{part}" if name else part, step) for part, step in prediction_steps(pipeline)]
    return [
        inner for path, step in steps if step is not None and step != "passthrough" for inner in _flat_steps(step, path)
    ]


def _group_names(composite: Any) -> list[str]:
    """The parts of a composite that give columns; those of a concatenation that a part ends in. None has none."""
    names = []
    for name, part, width in [] if composite is None else _parts(composite):
        if width != 0:
            path, inner = _final_concatenation(part)
            nested = _group_names(inner)
            names += [f"{name}{path}.{group}" for group in nested] if len(nested) > 1 else [name]
    return names


def _without_others(composite: Any, names: Collection[str], change: Callable[[Any], Any] = lambda part: part) -> Any:
    """A composite with all groups dropped but some; each part that remains may be changed."""
    kept: dict[str, tuple[Any, int | None]] = {}
    for name, part, width in _parts(composite):
        path, inner = _final_concatenation(part)
        groups = {group for group in _group_names(inner) if f"{name}{path}.{group}" in names}
        if groups and name not in names:
            kept[name] = _with_end(part, _without_others(inner, groups, change)), _width(_without_others(inner, groups))
        else:
            kept[name] = (change(part), width) if name in names else ("drop", 0)
    reduced = copy(composite)
    if isinstance(composite, FeatureUnion):
        parts = composite.transformer_list
        reduced.transformer_list = [(name, kept[name][0] if name in kept else part) for name, part in parts]
        return reduced
    reduced.transformers_ = [
        (name, kept[name][0] if name in kept else part, columns) for name, part, columns in composite.transformers_
    ]
    reduced.output_indices_, start = {}, 0
    for name in composite.output_indices_:
        width = kept[name][1] or 0 if name in kept else 0
        reduced.output_indices_[name] = slice(start, start := start + width)
    return reduced


def _transformed(composite: Any, inputs: Any) -> Any:
    """The columns of a composite of our own; it stays sparse only if one of its groups is."""
    try:
        return composite.transform(inputs)
    except ValueError:  # scipy does not concatenate dense blocks of one shape to a sparse matrix
        if not getattr(composite, "sparse_output_", False):
            raise
        composite.sparse_output_ = False
        return composite.transform(inputs)


def _parts(composite: Any) -> list[tuple[str, Any, int | None]]:
    """Name, fitted estimator and number of columns, if known, of the parts that are not dropped."""
    if isinstance(composite, FeatureUnion):
        return [(name, part, None) for name, part in composite.transformer_list if not _dropped(part)]
    outputs = composite.output_indices_
    return [
        (name, part, outputs[name].stop - outputs[name].start)
        for name, part, _ in composite.transformers_
        if not _dropped(part)
    ]


def _final_concatenation(part: Any) -> tuple[str, Any]:
    """The concatenation that a part ends in, and the path to it; None if there is none, or its widths are unknown."""
    path = ""
    while isinstance(part, Pipeline):
        path, part = f"{path}.{part.steps[-1][0]}", part.steps[-1][1]
    return path, part if isinstance(part, ColumnTransformer | FeatureUnion) and _width(part) is not None else None


def _width(part: Any) -> int | None:
    """The number of columns of a fitted transformer, if it tells."""
    if isinstance(part, ColumnTransformer):
        return sum(width or 0 for _, _, width in _parts(part))
    if isinstance(part, FeatureUnion):
        widths = [_width(inner) for _, inner, _ in _parts(part)]
        return None if None in widths else sum(width or 0 for width in widths)
    try:
        return len(part.get_feature_names_out())
    except (AttributeError, ValueError, TypeError):
        return None


def _with_end(part: Any, end: Any) -> Any:
    """A part whose last step is another one."""
    if not isinstance(part, Pipeline):
        return end
    return Pipeline([*part.steps[:-1], (part.steps[-1][0], _with_end(part.steps[-1][1], end))])


def _dropped(part: Any) -> bool:
    return isinstance(part, str) and part == "drop"
