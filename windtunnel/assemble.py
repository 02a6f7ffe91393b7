"""From the DAG of a fitted pipeline to a program of exact modules, the row encoder in front, and the head behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from windtunnel.encode import CategoryColumn, RowEncoder, Rows, Vocabulary
from windtunnel.errors import UnsupportedEstimator
from windtunnel.graph import Columns, Expression, Joined, Raw, Step, Weighted, raw_columns, walk
from windtunnel.head import METHODS, Head
from windtunnel.host import HostStep, dense_frame, evaluate
from windtunnel.modules.affine import Affine
from windtunnel.modules.base import Module
from windtunnel.modules.program import IDS, NUMBERS, Program, ProgramStep, Take
from windtunnel.modules.tables import CategoryTable, Identity, SumGroups
from windtunnel.translators.probe import UNKNOWN, probe
from windtunnel.translators.registry import Encoding, Predictor, Recoding, read

Place = tuple[int, int]
"""A slot of the program and a column of its answer."""


@dataclass(frozen=True)
class Wire:
    """One column on its way through the graph: as a number, as a category of a raw column, or still as either.

    Attributes
    ----------
    number : callable or None
        Gives the place where the column stands as a number; the step that computes it is added when first asked for.
    raw : int or None
        The raw column that the category comes from.
    vocabulary : tuple or None
        Categories of the raw column, where an encoder or grouper on the way has said them.
    chain : tuple of callables
        What earlier steps make of a list of values, in order.
    """

    number: Callable[[], Place] | None = None
    raw: int | None = None
    vocabulary: tuple[Any, ...] | None = None
    chain: tuple[Callable[[list[Any]], list[Any]], ...] = ()


@dataclass(frozen=True)
class Origin:
    """Which source step a program step comes from."""

    name: str
    estimator: str


@dataclass
class Assembly:
    """The parts of a translation, filled step by step."""

    pipeline: Any
    untranslated: str = "cache"
    sample: Rows | None = None
    steps: list[ProgramStep] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    hosts: list[HostStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = walk(self.pipeline)
        self.encoder = RowEncoder(*raw_columns(self.pipeline))
        self._wires: dict[Expression, list[Wire]] = {}
        reading = self._read(graph) if isinstance(graph, Step) and hasattr(graph.estimator, "predict") else None
        if isinstance(graph, Step) and isinstance(reading, Predictor):
            self.head = self._predictor(graph, reading)
        else:
            self._add("columns", "", Identity(), self._places(graph, self.wires(graph)))
            self.head = Head("transform")
        self.program = Program(self.steps)

    def wires(self, expression: Expression) -> list[Wire]:
        """The columns that an expression gives; each expression is worked out once."""
        if expression not in self._wires:
            self._wires[expression] = self._work_out(expression)
        return self._wires[expression]

    def _work_out(self, expression: Expression) -> list[Wire]:
        match expression:
            case Raw():
                return [self._raw(column) for column in range(self.encoder.width)]
            case Columns(given=given, positions=positions):
                wires = self.wires(given)
                return [wires[position] for position in positions]
            case Joined(parts=parts):
                return [wire for part in parts for wire in self.wires(part)]
            case Weighted(name=name, given=given, weight=weight):
                wires = self.wires(given)
                zero = torch.zeros(len(wires))
                affine = Affine(scale=zero + weight, shift=zero, center=zero)
                return self._module(name, "", affine, self._places(given, wires))
            case Step():
                return self._step(expression)

    def _step(self, step: Step) -> list[Wire]:
        try:
            match self._read(step):
                case Encoding() as encoding:
                    return self._encoding(step, encoding)
                case Recoding() as recoding:
                    return self._recoding(step, recoding)
                case Module() as module:
                    places = self._places(step, self.wires(step.given))
                    return self._module(step.name, type(step.estimator).__name__, module, places)
                case Predictor():
                    raise UnsupportedEstimator(f"step {step.name!r}: a predictor in the middle of a pipeline.")
        except UnsupportedEstimator as error:
            if self.untranslated == "error" or not hasattr(step.estimator, "transform"):
                raise
            return self._host(step, str(error))

    def _read(self, step: Step) -> Any:
        try:
            return read(step.estimator)
        except UnsupportedEstimator as error:
            raise UnsupportedEstimator(f"step {step.name!r}: {error}") from error

    # Numbers

    def _raw(self, column: int) -> Wire:
        return Wire(number=lambda: (NUMBERS, self.encoder.number(column)), raw=column)

    def _places(self, expression: Expression, wires: Sequence[Wire]) -> list[Place]:
        if any(wire.number is None for wire in wires):
            name = getattr(expression, "name", "the end of the pipeline")
            raise UnsupportedEstimator(f"step {name!r} reads text where its translation reads numbers.")
        return [wire.number() for wire in wires if wire.number is not None]

    def _module(self, name: str, estimator: str, module: Module, places: Sequence[Place]) -> list[Wire]:
        slot = self._add(name, estimator, module, places)
        with torch.no_grad():
            width = module(torch.zeros(2, len(places))).shape[1]
        return [_at(slot, column) for column in range(width)]

    def _add(self, name: str, estimator: str, module: Module, places: Sequence[Place]) -> int:
        self.steps.append(ProgramStep(module, self._takes(places), name))
        self.origins.append(Origin(name, estimator))
        return len(self.steps) + 1

    def _takes(self, places: Sequence[Place]) -> list[Take]:
        """Neighbours from the same slot share one take, which covers the whole answer where it can."""
        takes: list[tuple[int, list[int]]] = []
        for slot, column in places:
            if takes and takes[-1][0] == slot:
                takes[-1][1].append(column)
            else:
                takes.append((slot, [column]))
        return [Take(slot, columns) for slot, columns in takes]

    # Categories

    def _recoding(self, step: Step, recoding: Recoding) -> list[Wire]:
        wires = self.wires(step.given)
        number = recoding.number
        if number is not None:
            with torch.no_grad():
                columnwise = number(torch.zeros(2, len(wires))).shape[1] == len(wires)
            if not columnwise or all(wire.raw is None for wire in wires):
                return self._module(step.name, type(step.estimator).__name__, number, self._places(step, wires))

        slots: list[int] = []

        def place_in_module(column: int) -> Place:
            if not slots:
                assert number is not None
                slots.append(self._add(step.name, type(step.estimator).__name__, number, self._places(step, wires)))
            return slots[0], column

        answer = []
        for column, (wire, known) in enumerate(zip(wires, recoding.categories, strict=True)):
            passes = known is None and number is None
            answer.append(
                Wire(
                    number=(lambda c=column: place_in_module(c)) if number else wire.number if passes else None,
                    raw=wire.raw,
                    vocabulary=wire.vocabulary or _vocabulary(known),
                    chain=(*wire.chain, lambda values, c=column: recoding.recode(c, values)),
                )
            )
        if any(wire.raw is None and known is not None for wire, known in zip(wires, recoding.categories, strict=True)):
            raise UnsupportedEstimator(f"step {step.name!r} groups categories that earlier steps computed as numbers.")
        return answer

    def _encoding(self, step: Step, encoding: Encoding) -> list[Wire]:
        wires = self.wires(step.given)
        vocabularies = [
            None if known is None else self._vocabulary_of(step, wire, known, encoding.buckets)
            for wire, known in zip(wires, encoding.categories, strict=True)
        ]
        shown = [
            None if vocabulary is None else _through(wire.chain, [UNKNOWN, None, *vocabulary.values])
            for wire, vocabulary in zip(wires, vocabularies, strict=True)
        ]
        probed = probe(step.estimator, encoding, shown)
        name, estimator = step.name, type(step.estimator).__name__
        answer: list[Wire | None] = [None] * probed.width
        summed: list[Place] = []
        for column, (wire, vocabulary) in enumerate(zip(wires, vocabularies, strict=True)):
            table, positions = probed.tables[column], probed.positions[column]
            if vocabulary is None:
                for position in positions:
                    answer[position] = wire
                continue
            if not positions:
                continue
            assert wire.raw is not None and table is not None
            refuses = probed.refused[column]
            ids = self.encoder.category(
                CategoryColumn(wire.raw, vocabulary, refuses_unknown=0 in refuses, refuses_missing=1 in refuses)
            )
            slot = self._add(name, estimator, CategoryTable(table, encoding.trainable), [(IDS, ids)])
            if probed.additive:
                summed += [(slot, index) for index in range(probed.width)]
                continue
            for index, position in enumerate(positions):
                answer[position] = _at(slot, index)
            if len(positions) == 1 and not vocabulary.buckets:
                values = table[:, 0].tolist()
                answer[positions[0]] = Wire(
                    _at(slot, 0).number, wire.raw, vocabulary.values, (lambda _, values=values: list(values),)
                )
        if probed.additive:
            sums = self._module(name, estimator, SumGroups(len(summed) // probed.width), summed)
            answer = [passed or total for passed, total in zip(answer, sums, strict=True)]
        return [wire for wire in answer if wire is not None]

    def _vocabulary_of(self, step: Step, wire: Wire, known: Sequence[Any], buckets: int) -> Vocabulary:
        if wire.raw is None:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) encodes a column that earlier steps computed "
                "as a number, which has no vocabulary of raw categories."
            )
        values = wire.vocabulary or _vocabulary(known) or ()
        if not values and self.sample is not None and wire.raw < self.encoder.width:
            column = self.encoder.select(self.sample, every=True)[wire.raw]
            values = _vocabulary(sorted(column.dropna().unique().tolist(), key=str)) or ()
        return Vocabulary(values, buckets)

    # Host

    def _host(self, step: Step, reason: str) -> list[Wire]:
        first = self.encoder.width + sum(len(host.columns) for host in self.hosts)
        host = HostStep(step, tuple(range(first, first + self._host_width(step))), reason)
        self.hosts.append(host)
        return [self._raw(column) for column in host.columns]

    def _host_width(self, step: Step) -> int:
        if self.sample is not None:
            return int(dense_frame(evaluate(step, self.sample[:8])).shape[1])
        try:
            return len(step.estimator.get_feature_names_out())
        except Exception as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) stays on the host and does not tell how many "
                "columns it gives (get_feature_names_out); give translate a few raw rows as calibrate=."
            ) from error

    # The end

    def _predictor(self, step: Step, predictor: Predictor) -> Head:
        fitted, wires = step.estimator, list(self.wires(step.given))
        for column, categories in predictor.codes.items():
            wires[column] = self._codes(step, wires[column], categories)
        self._add(step.name, type(fitted).__name__, predictor.scores, self._places(step, wires))
        classes = getattr(fitted, "classes_", None)
        task = "regression" if classes is None else "binary" if len(classes) <= 2 else "multiclass"
        return Head(
            task=task,
            link=predictor.link,
            loss=predictor.loss,
            link_options=predictor.link_options,
            loss_options=predictor.loss_options,
            classes=None if classes is None else np.asarray(classes),
            methods=tuple(method for method in METHODS if hasattr(self.pipeline, method)),
            flat=predictor.flat,
        )

    def _codes(self, step: Step, wire: Wire, categories: Sequence[Any]) -> Wire:
        """Categories as the codes that a tree compares; unknown and missing ones are NaN."""
        if wire.raw is None or wire.chain:
            raise UnsupportedEstimator(f"step {step.name!r} reads pandas categories that earlier steps computed.")
        column = CategoryColumn(wire.raw, Vocabulary(tuple(_plain(value) for value in categories)))
        rows = torch.tensor([math.nan, math.nan, *range(len(categories))]).unsqueeze(1)
        slot = self._add(step.name, type(step.estimator).__name__, CategoryTable(rows, False),
                         [(IDS, self.encoder.category(column))])  # fmt: skip
        return _at(slot, 0)


def _at(slot: int, column: int) -> Wire:
    return Wire(number=lambda: (slot, column))


def _through(chain: Sequence[Callable[[list[Any]], list[Any]]], values: list[Any]) -> list[Any]:
    for recode in chain:
        values = recode(values)
    return values


def _vocabulary(known: Sequence[Any] | None) -> tuple[Any, ...] | None:
    if known is None:
        return None
    plain = [_plain(value) for value in known]
    return tuple(value for value in plain if value is not None and value == value) or None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
