"""The steps that requests of a served model wait for: one of a plain net, one for each stage of a cascade.

``step.task`` encodes rows. ``step.run`` computes the tasks of a batch, which are for the same methods: each gives the
outputs of its request, or a task of the next step. ``outputs`` of a first step goes through all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.encode import Batch, Rows
from windtunnel.errors import InvalidOption
from windtunnel.program.program import Program
from windtunnel.program.translated import TranslatedPipeline
from windtunnel.serving.cascade.cascade import Cascade
from windtunnel.serving.cascade.stage import StageOutput, UnsureRows
from windtunnel.serving.cascade.take_rows import take_rows

Outputs = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Task:
    """Rows of a request that wait for a step."""

    step: NetStep | SmallModelStep | FullModelStep
    methods: tuple[str, ...]  # the methods of the model that the request gets the outputs of
    rows: Rows
    count: int  # the number of rows
    batch: Batch | None  # the encoded rows; None if the step encodes the rows of all its tasks at once
    row_kind: Hashable  # rows of equal kinds can be encoded and scored at once
    unsure: UnsureRows | None = None  # what the step before has computed; None for the first step

    def joins(self, other: Task) -> bool:
        """Whether one batch can hold both."""
        return self.step is other.step and self.methods == other.methods and self.row_kind == other.row_kind


@dataclass(frozen=True)
class Entry:
    """Where requests for a model enter."""

    net: TranslatedPipeline  # whose rows and outputs are those of the model: of a cascade, the full model
    step: NetStep | SmallModelStep  # the first step; of a cascade whose small model predicts no rows, the full model

    @classmethod
    def of(cls, model: TranslatedPipeline | Cascade) -> Entry:
        """The entry of a model.

        Raises
        ------
        InvalidOption
            Anything but a translation, a compiled model or a cascade.
        """
        match model:
            case TranslatedPipeline():
                return cls(model, NetStep(model))
            case Cascade(uses_small_model=True):
                return cls(model.full, SmallModelStep(model))
            case Cascade():
                return cls(model.full, NetStep(model.full))
        raise InvalidOption(
            f"Server got a {type(model).__name__}; give a model: windtunnel.load(path), or windtunnel.compile(pipeline)"
        )


class RowKinds:
    """The kinds of the rows that a program scores, which tell what one batch can hold."""

    def __init__(self, program: Program) -> None:
        self._depends_on_call = program.depends_on_call()

    def of(self, rows: Rows, batch: Batch | None) -> Hashable:
        """The kind of a request's rows; None, which equals others, of encoded ones that can be scored with others."""
        if self._depends_on_call:
            return object()  # equals no other
        return kind_of(rows) if batch is None else None


class NetStep:
    """The only step of a plain net."""

    def __init__(self, net: TranslatedPipeline) -> None:
        self._net, self._row_kinds, self.methods = net, RowKinds(net.program), net.head.methods

    def task(self, methods: tuple[str, ...], rows: Rows) -> Task:
        """Encode the rows of a request, unless parts of the pipeline that run on the host take long for it."""
        batch = None if self._net.hosts else self._net.encode(rows)
        count = self._net.encoder.count_rows(rows) if batch is None else len(batch.ids)
        return Task(self, methods, rows, count, batch, self._row_kinds.of(rows, batch))

    def outputs(self, methods: Sequence[str], rows: Rows | Batch) -> Outputs:
        """The outputs of each method."""
        return self._net.outputs(methods, rows)

    def run(self, tasks: Sequence[Task]) -> Sequence[Outputs]:
        """The outputs of each task."""
        outputs = self.outputs(tasks[0].methods, _joined(tasks, self._net.encode))
        return [*zip(*(_split(values, tasks) for values in outputs), strict=True)]


class SmallModelStep:
    """The first step of a cascade: the small model."""

    methods = ("predict", "predict_proba")

    def __init__(self, cascade: Cascade) -> None:
        self._cascade, self._stage = cascade, cascade.stages[0]
        self._row_kinds, self._next = RowKinds(self._stage.net.program), FullModelStep(cascade)

    def task(self, methods: tuple[str, ...], rows: Rows) -> Task:
        """Encode what the small model reads, unless parts of it that run on the host take long for it."""
        self._cascade.check_columns(rows)
        batch = None if self._stage.encodes_slowly else self._stage.encode(rows)
        count = self._stage.net.encoder.count_rows(rows) if batch is None else len(batch.ids)
        return Task(self, methods, rows, count, batch, self._row_kinds.of(rows, batch))

    def outputs(self, methods: Sequence[str], rows: Rows) -> Outputs:
        """The outputs of each method, through both steps."""
        return self._next.of_probabilities(methods, self._cascade.predict_proba(rows))

    def run(self, tasks: Sequence[Task]) -> Sequence[Outputs | Task]:
        """Outputs of requests whose rows the small model predicts alone, tasks for the full model of the others."""
        output = self._stage.run(_joined(tasks, self._stage.encode))
        parts = zip(_split(output.predictions, tasks), _split(output.shared, tasks), strict=True)
        return [self._next.task(task, StageOutput(*part)) for task, part in zip(tasks, parts, strict=True)]


class FullModelStep:
    """The second step of a cascade: the full model predicts the rows that are left."""

    def __init__(self, cascade: Cascade) -> None:
        self._cascade, self._stage = cascade, cascade.stages[1]
        self._row_kinds = RowKinds(self._stage.net.program)

    def task(self, task: Task, output: StageOutput) -> Outputs | Task:
        """The rows of a task that the full model has to predict; the outputs if there are none."""
        unsure = self._cascade.unsure_rows(output)
        if not len(unsure):
            return self.of_probabilities(task.methods, output.predictions)
        rows = take_rows(task.rows, unsure.positions)
        batch = None if self._stage.encodes_slowly else self._stage.encode(rows, unsure.shared)
        return Task(self, task.methods, rows, len(unsure), batch, self._row_kinds.of(rows, batch), unsure)

    def run(self, tasks: Sequence[Task]) -> Sequence[Outputs]:
        """The outputs of each task, with the rows that the small model predicted."""
        parts = _split(self._stage.run(_joined(tasks, self._stage.encode)).predictions, tasks)
        outputs = []
        for task, part in zip(tasks, parts, strict=True):
            assert task.unsure is not None  # ``task`` has made it
            outputs.append(self.of_probabilities(task.methods, task.unsure.filled(part)))
        return outputs

    def of_probabilities(self, methods: Sequence[str], probabilities: Any) -> Outputs:
        """The output of each of ``SmallModelStep.methods``, from probabilities ``[B, classes]``."""
        labels = np.asarray(self._cascade.classes_)
        return tuple(
            labels[probabilities.argmax(axis=1)] if method == "predict" else probabilities for method in methods
        )


def kind_of(rows: Rows) -> Hashable:
    """Rows of equal kinds can be joined without changing how any of them is read.

    Their columns are lists of values of one type, as pandas reads 1 otherwise beside 2.5 or a text. Other rows are of a
    kind that equals no other.
    """
    if not isinstance(rows, dict) or not all(type(column) is list for column in rows.values()):
        return object()
    types = {name: {*map(type, column)} for name, column in rows.items()}
    single = all(len(of_column) == 1 for of_column in types.values())
    return tuple((name, *of_column) for name, of_column in types.items()) if single else object()


def _joined(tasks: Sequence[Task], encode: Callable[..., Batch]) -> Batch:
    """The rows of all tasks, encoded."""
    batches = [task.batch for task in tasks if task.batch is not None]
    if batches:
        return batches[0] if len(batches) == 1 else Batch.concatenate(batches)
    rows: Any = tasks[0].rows
    if len(tasks) > 1:
        rows = {name: [value for task in tasks for value in task.rows[name]] for name in rows}
    shared = [task.unsure.shared for task in tasks if task.unsure is not None]
    return encode(rows, np.concatenate(shared)) if shared else encode(rows)


def _split(values: Any, tasks: Sequence[Task]) -> list[Any]:
    """The rows of each task; several targets are a list of arrays."""
    if isinstance(values, list):
        return [[*parts] for parts in zip(*(_split(target, tasks) for target in values), strict=True)]
    return np.split(values, np.cumsum([task.count for task in tasks])[:-1])
