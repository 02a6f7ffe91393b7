"""From the DAG of a fitted pipeline to a program of exact modules, the row encoder in front, and the head behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from windtunnel.cityhash import hash_of, signed
from windtunnel.encode import NONE, CategoryColumn, RowEncoder, Rows, Vocabulary, text_of
from windtunnel.errors import UnsupportedEstimator
from windtunnel.filled import Filled, follow, rows_of, settle
from windtunnel.graph import (
    Answer,
    Columns,
    Expression,
    Joined,
    Raw,
    Step,
    Weighted,
    one_dimensional,
    raw_columns,
    walk,
)
from windtunnel.head import METHODS, Head
from windtunnel.host import HostStep, dense_frame, evaluate
from windtunnel.modules.absent import ZeroAsMissing
from windtunnel.modules.affine import Affine
from windtunnel.modules.answers import AsColumns, Linked, Positions
from windtunnel.modules.at_least import AtLeast
from windtunnel.modules.base import Module
from windtunnel.modules.program import IDS, NUMBERS, Program, ProgramStep, Take
from windtunnel.modules.tables import CategoryTable, Identity, OneColumn, SumGroups
from windtunnel.modules.target_statistics import CategoryHashes
from windtunnel.modules.trees.hard import TreeWalk
from windtunnel.modules.votes import Chosen, LabelValues, Logarithm
from windtunnel.refusals import refusals
from windtunnel.sparsity import gives_sparse
from windtunnel.translators.probe import UNKNOWN, probe
from windtunnel.translators.registry import (
    Composite,
    Encoding,
    Hashed,
    Part,
    Predictor,
    Recoding,
    Selection,
    Tokens,
    Transformer,
    entry,
    read,
)
from windtunnel.translators.shown import is_missing

NO_HASH = 2**40
"""Stands for the hash of a text where there is none; hashes have 32 bits."""
WIDEST = 2**18
"""The most columns that a step on the host may give: every row of them is dense."""
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
    known : tuple
        Categories of the raw column that groupers and imputers on the way tell apart; a later encoder may know more.
    vocabulary : tuple or None
        All categories of the raw column, once an encoder on the way has given each its code.
    chain : tuple of callables
        What earlier steps make of a list of values, in order: unknown, missing, and the vocabulary.
    refuses : frozenset of int
        0 where an encoder on the way refuses unknown categories, 1 where missing ones, 2 where infinite numbers, 3
        where those that are not whole.
    filled : Filled
        What a missing number has become.
    """

    number: Callable[[], Place] | None = None
    raw: int | None = None
    known: tuple[Any, ...] = ()
    vocabulary: tuple[Any, ...] | None = None
    chain: tuple[Callable[[list[Any]], list[Any]], ...] = ()
    refuses: frozenset[int] = frozenset()
    filled: Filled = Filled()


@dataclass(frozen=True)
class Origin:
    """Which source step a program step comes from."""

    name: str
    estimator: str


@dataclass(frozen=True)
class Scored:
    """A predictor whose raw scores are an answer of the program.

    Attributes
    ----------
    slot : int
        Where the scores stand.
    columns : int
        How many there are.
    given : list of Place
        The columns that the scores are made of.
    predictor : Predictor
    classes : array, list of arrays or None
    step : Step
    own : dict
        Methods that composites around the predictor answer themselves: name -> the composite's step, and how.
    """

    slot: int
    columns: int
    given: list[Place]
    predictor: Predictor
    classes: Any
    step: Step
    own: Mapping[str, tuple[Step, Composite]] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """Where the scores stand, column by column."""
        return [(self.slot, column) for column in range(self.columns)]


@dataclass
class Assembly:
    """The parts of a translation, filled step by step.

    Parameters
    ----------
    pipeline : fitted pipeline or estimator
    untranslated : str
        "cache", "stream" or "error"; see ``translate``.
    sample : rows, optional
        Raw rows, for steps on the host and encoders without a vocabulary.
    dtype : torch.dtype
        What the modules compute in.
    exact : bool
        True for ``compile``, where steps that end the gradient are translated as well.
    """

    pipeline: Any
    untranslated: str = "cache"
    sample: Rows | None = None
    dtype: torch.dtype = torch.float32
    exact: bool = False
    steps: list[ProgramStep] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    hosts: list[HostStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = walk(self.pipeline)
        self._readings: dict[Step, Any] = {}
        self._refused: dict[tuple[int, int], tuple[str, ...]] = {}
        self._inner: dict[Any, Expression] = {}
        self.encoder = RowEncoder(
            *self._raw_columns(graph),
            dtype=str(self.dtype).removeprefix("torch."),
            flat=one_dimensional(self.pipeline),
        )
        self._wires: dict[Expression, list[Wire]] = {}
        self._answered: dict[tuple[Expression, str], list[Wire]] = {}
        self._scores: dict[Step, Scored] = {}
        self._flat: set[Expression] = set()
        answers: dict[str, ProgramStep] = {}
        scored = self._final(graph)
        if scored is None:
            places = self._places("the end of the pipeline", self.wires(graph))
            answers = self._beside(graph)
            self._add("columns", "", OneColumn() if graph in self._flat else Identity(), places)
            self.head = Head("transform", methods=("transform", *answers), dtypes=self._dtypes(graph))
        else:
            answers, scored = self._answers(scored)
            self.head = self._head(scored, answers)
        self.program = Program(self.steps, answers)

    def _raw_columns(self, graph: Expression) -> tuple[list[str] | None, int]:
        try:
            return raw_columns(self.pipeline)
        except UnsupportedEstimator:
            if isinstance(graph, Step):
                self._check_readable(graph)  # which may know better why, such as a search that was not refitted
            raise

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
                zero = torch.zeros(len(wires), dtype=self.dtype)
                affine = Affine(scale=zero + weight, shift=zero, center=zero, unit=zero + 1)
                return self._module(name, "", affine, wires, lambda rows: rows * weight)
            case Answer(given=given, method=method, take=take):
                if (given, method) not in self._answered:
                    self._answered[given, method] = self._answer(given, method)
                wires = self._answered[given, method]
                if take is not None and max(take, default=0) >= len(wires):
                    raise UnsupportedEstimator(f"column {max(take)} of {method} is read, and there are {len(wires)}.")
                return wires if take is None else [wires[position] for position in take]
            case Step():
                return self._step(expression)

    def _step(self, step: Step) -> list[Wire]:
        try:
            reading = self._read(step)
            self._check_readable(step)
        except UnsupportedEstimator as error:
            return self._host(step, error)
        if isinstance(reading, Tokens):
            return self._tokens(step, reading)
        wires = self.wires(step.given)
        try:
            match reading:
                case Encoding():
                    return self._encoding(step, reading, wires)
                case Recoding():
                    return self._recoding(step, reading, wires)
                case Selection(columns=columns):
                    return self._selection(step, columns, wires)
                case Composite(then=Module() as module):
                    wires = self.wires(self._parts(step, reading))
                    return self._module(step.name, type(step.estimator).__name__, module, wires)
                case Composite() if not _predicts(reading):
                    return self.wires(self._then(step, reading))
                case Predictor() | Composite():
                    return self._answer(step, "transform")
                case Module() | Transformer():
                    asked, estimator = step.estimator, type(step.estimator).__name__
                    if isinstance(reading, Transformer):
                        asked = None if reading.codes or reading.hashed else asked
                        reading, wires = self._as_read(step, reading, reading.module, step.given)
                    return self._module(step.name, estimator, reading, wires, rows_of(step.estimator), asked)
            raise UnsupportedEstimator(f"step {step.name!r}: its reader gave {type(reading).__name__}, no translation.")
        except UnsupportedEstimator as error:
            return self._host(step, error)

    def _read(self, step: Step) -> Any:
        """What the reader makes of a step, its modules cast to the type that is computed in; read once."""
        if step not in self._readings:
            try:
                reading = read(step.estimator)
                data = isinstance(reading, Encoding | Recoding | Selection | Tokens)
                smooth = entry(step.estimator).differentiable and getattr(reading, "differentiable", True)
                if not (self.exact or data or smooth):
                    raise UnsupportedEstimator(
                        f"{type(step.estimator).__name__} has no differentiable form; windtunnel.compile gives its "
                        "exact answers"
                    )
                for module in _modules(reading):
                    module.cast(self.dtype)
                    module.laid_out()
            except UnsupportedEstimator as error:
                raise UnsupportedEstimator(f"step {step.name!r}: {error}") from error
            self._readings[step] = reading
        return self._readings[step]

    # Numbers

    def _raw(self, column: int) -> Wire:
        return Wire(number=partial(self._number, column), raw=column)

    def _number(self, column: int) -> Place:
        return NUMBERS, self.encoder.number(column)

    def _places(self, name: str, wires: Sequence[Wire]) -> list[Place]:
        _check_numbers(name, wires)
        return [wire.number() for wire in wires if wire.number is not None]

    def _module(
        self,
        name: str,
        estimator: str,
        module: Module,
        wires: Sequence[Wire],
        transform: Callable[[NDArray[np.float64]], Any] | None = None,
        asked: Any = None,
    ) -> list[Wire]:
        """The columns of a module over numbers; ``asked`` is the estimator that tells which numbers it refuses."""
        _check_numbers(name, wires)
        with torch.no_grad():
            width = module(torch.zeros(2, len(wires), dtype=self.dtype)).shape[1]
        # A module that knows what its source refuses is not second-guessed.
        asks = asked is not None and type(module).outside is Module.outside
        refuses = self._refusals(asked, len(wires)) if asks else ()
        place = _once(lambda: self._add(name, estimator, module, self._places(name, wires), refuses))
        filled = follow(transform, module, [wire.filled for wire in wires]) if transform else [Filled()] * width
        return [Wire(number=partial(place, column), filled=one) for column, one in enumerate(filled)]

    def _add(
        self, name: str, estimator: str, module: Module, places: Sequence[Place], refuses: Sequence[str] = ()
    ) -> int:
        """Add a program step; steps whose answer nothing asks for are never added."""
        self.steps.append(ProgramStep(module, self._takes(places), name, refuses))
        self.origins.append(Origin(name, estimator))
        return len(self.steps) + 1

    def _refusals(self, estimator: Any, width: int) -> tuple[str, ...]:
        """What a fitted step refuses; it is asked once, as its answers may take long."""
        key = (id(estimator), width)
        if key not in self._refused:
            self._refused[key] = refusals(estimator, width)
        return self._refused[key]

    def _takes(self, places: Sequence[Place]) -> list[Take]:
        """Neighbours from the same slot share one take, which covers the whole answer where it can."""
        takes: list[tuple[int, list[int]]] = []
        for slot, column in places:
            if takes and takes[-1][0] == slot:
                takes[-1][1].append(column)
            else:
                takes.append((slot, [column]))
        return [Take(slot, columns) for slot, columns in takes]

    def _selection(self, step: Step, columns: Sequence[int], wires: list[Wire]) -> list[Wire]:
        """The kept columns; what the source refuses is refused in the others as well."""
        refuses = self._refusals(step.estimator, len(wires))
        if refuses and all(wire.number is not None for wire in wires):
            name, estimator = step.name, type(step.estimator).__name__
            given = wires
            place = _once(lambda: self._add(name, estimator, Identity(), self._places(name, given), refuses))
            missing = {code for kind, code in (("nan", 1), ("inf", 2)) if kind in refuses}
            wires = [
                replace(wire, number=partial(place, column), refuses=wire.refuses.union(missing))
                for column, wire in enumerate(wires)
            ]
        return [wires[column] for column in columns]

    # Categories

    def _recoding(self, step: Step, recoding: Recoding, wires: Sequence[Wire]) -> list[Wire]:
        name, estimator, number = step.name, type(step.estimator).__name__, recoding.number
        if number is not None:
            with torch.no_grad():
                columnwise = number(torch.zeros(2, len(wires), dtype=self.dtype)).shape[1] == len(wires)
            if not columnwise or all(wire.raw is None for wire in wires):
                return self._module(name, estimator, number, wires, rows_of(step.estimator), step.estimator)
        elif any(wire.raw is None for wire, known in zip(wires, recoding.categories, strict=True) if known is not None):
            raise UnsupportedEstimator(f"step {name!r} groups categories that earlier steps computed as numbers.")
        refuses = self._refusals(step.estimator, len(wires)) if number is not None else ()
        place = _once(lambda: self._add(name, estimator, number, self._places(name, wires), refuses))  # type: ignore[arg-type]
        filled = [wire.filled for wire in wires]
        if number is not None:
            filled = follow(rows_of(step.estimator), number, filled)
        answer = []
        for column, (wire, known) in enumerate(zip(wires, recoding.categories, strict=True)):
            passes = wire.number if known is None else None
            answer.append(
                replace(
                    wire,
                    number=passes if number is None else partial(place, column),
                    known=(*wire.known, *_present(known or ())),
                    chain=(*wire.chain, partial(recoding.recode, column)),
                    filled=filled[column],
                    refuses=wire.refuses.union(_finite(step)),
                )
            )
        return answer

    def _encoding(self, step: Step, encoding: Encoding, wires: Sequence[Wire]) -> list[Wire]:
        looked = [
            None if known is None else self._look_up(step, wire, known, encoding.buckets, encoding.tells_none)
            for wire, known in zip(wires, encoding.categories, strict=True)
        ]
        probed = probe(step.estimator, encoding, [one and one[1] for one in looked])
        if probed.flat:
            self._flat.add(step)
        answer: list[Wire | None] = [None] * probed.width
        summed: list[Wire] = []
        for column, (wire, one) in enumerate(zip(wires, looked, strict=True)):
            positions = probed.positions[column]
            if one is None:
                for position in positions:
                    answer[position] = wire
            elif positions:
                vocabulary, refused = one[0], probed.refused[column]
                if len(vocabulary) - 1 in refused and vocabulary.values[-1] == NONE:
                    vocabulary = replace(vocabulary, values=vocabulary.values[:-1])
                # Where unknown categories are recoded, the rows of the buckets are out of reach.
                table: Tensor = probed.tables[column][: len(vocabulary)]  # type: ignore[index]
                module = CategoryTable(table.to(self.dtype), encoding.trainable)
                refuses = wire.refuses.union(refused, _finite(step), {3} if encoding.refuses_fractions else ())
                encoded = self._table(step, module, wire, vocabulary, refuses)
                if probed.additive:
                    summed += encoded
                    continue
                for index, position in enumerate(positions):
                    answer[position] = encoded[index]
        if probed.additive:
            groups = SumGroups(len(summed) // probed.width)
            sums = self._module(step.name, type(step.estimator).__name__, groups, summed)
            answer = [passed or total for passed, total in zip(answer, sums, strict=True)]
        return [wire for wire in answer if wire is not None]

    def _table(
        self, step: Step, table: CategoryTable, wire: Wire, vocabulary: Vocabulary, refuses: frozenset[int]
    ) -> list[Wire]:
        """The columns of a table over a raw column; a single one can be encoded again."""
        assert wire.raw is not None
        column = CategoryColumn(wire.raw, vocabulary, *(kind in refuses for kind in (0, 1, 2, 3)))
        place = _once(
            lambda: self._add(step.name, type(step.estimator).__name__, table, [(IDS, self.encoder.category(column))])
        )
        width = table.rows.shape[1]
        if width > 1 or vocabulary.buckets:
            return [Wire(number=partial(place, index)) for index in range(width)]
        codes = table.rows[:, 0].tolist()
        # What is refused has no code: it stays what it is.
        values = [UNKNOWN if 0 in refuses else codes[0], None if 1 in refuses else codes[1], *codes[2:]]
        return [Wire(partial(place, 0), wire.raw, (), vocabulary.values, (lambda _: list(values),), refuses)]

    def _look_up(
        self, step: Step, wire: Wire, known: Sequence[Any], buckets: int, tells_none: bool = False
    ) -> tuple[Vocabulary, list[Any]]:
        """The vocabulary of a raw column, and what of it an encoder gets to see."""
        if wire.raw is None:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) encodes a column that earlier steps computed "
                "as a number, which has no vocabulary of raw categories."
            )
        values = wire.vocabulary
        if values is None:
            values = tuple(dict.fromkeys((*wire.known, *_present(known)))) or self._sampled(wire.raw)
            none, nan = _through(wire.chain, [None, math.nan])
            # Among numbers None becomes NaN before anything looks at it.
            text = not values or any(isinstance(value, str) for value in values)
            if text and (is_missing(none) != is_missing(nan) or (tells_none and none is None)):
                values = (*values, NONE)
        shown = _through(wire.chain, [UNKNOWN, math.nan, *(None if value == NONE else value for value in values)])
        return Vocabulary(values, buckets if shown[0] is UNKNOWN else 0), shown

    def _sampled(self, raw: int) -> tuple[Any, ...]:
        """Categories of a raw column in the sample, for an encoder that has no vocabulary."""
        if self.sample is None or raw >= self.encoder.width:
            return ()
        column = self.encoder.select(self.sample, every=True)[raw]
        return tuple(sorted(_present(column.unique()), key=str))

    # Host

    def _host(self, step: Step, error: UnsupportedEstimator) -> list[Wire]:
        if self.untranslated == "error" or not hasattr(step.estimator, "transform"):
            raise error
        return [self._raw(column) for column in self._keep(step, self._host_width(step, error), str(error)).columns]

    def _keep(self, step: Step, width: int, reason: str, tokens: Tokens | None = None) -> HostStep:
        """Keep a step on the host, whose answer takes the next ``width`` columns."""
        if width > WIDEST:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) gives {width:,} columns; they become dense, and "
                f"at most {WIDEST:,} are taken. Fit it with fewer (n_features, max_features, min_df)."
            )
        first = self.encoder.width + sum(len(host.columns) for host in self.hosts)
        self.hosts.append(HostStep(step, tuple(range(first, first + width)), reason, tokens))
        return self.hosts[-1]

    def _tokens(self, step: Step, tokens: Tokens) -> list[Wire]:
        """Tokens are counted on the host, and the counts, which are no categories, weighted here."""
        estimator, reason = type(step.estimator).__name__, "its tokens are found and counted by the source's own code."
        if self.untranslated == "error":
            raise UnsupportedEstimator(f"step {step.name!r} ({estimator}) needs the host: {reason}")
        host = self._keep(step, tokens.width, reason, tokens)
        wires = [Wire(number=partial(self._number, column)) for column in host.columns]
        return wires if tokens.then is None else self._module(step.name, estimator, tokens.then, wires)

    def _host_width(self, step: Step, reason: UnsupportedEstimator) -> int:
        if self.sample is not None:
            answer = evaluate(step, self.encoder.as_fitted(self.sample)[:8])
            if np.ndim(answer) == 1:  # a sequence, which no columns of the host's can be
                raise reason
            return int(dense_frame(answer).shape[1])
        try:
            return len(step.estimator.get_feature_names_out())
        except Exception:  # it may be missing, want names, or raise whatever a custom transformer raises
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) stays on the host and does not tell how many "
                "columns it gives (get_feature_names_out); give a few raw rows as calibrate=."
            ) from reason

    # Predictors

    def _final(self, expression: Expression) -> Scored | None:
        """The predictor that a pipeline ends in; None where it ends in a transformer."""
        if not isinstance(expression, Step):
            return None
        if not hasattr(expression.estimator, "predict"):
            # A step without methods of its own is refused here, not kept on the host.
            reading = self._read(expression) if not hasattr(expression.estimator, "transform") else None
            return self._scored(expression) if isinstance(reading, Predictor | Composite) else None
        reading = self._read(expression)
        if isinstance(reading, Predictor) or (isinstance(reading, Composite) and not isinstance(reading.then, Module)):
            return self._scored(expression)
        if isinstance(reading, Selection) and reading.then is not None:
            return self._scored(expression)
        return None

    def _scored(self, step: Step) -> Scored:
        """The raw scores of a predictor, worked out once."""
        if step not in self._scores:
            self._check_readable(step)
            self._scores[step] = self._score(step)
        return self._scores[step]

    def _score(self, step: Step) -> Scored:
        reading, given = self._read(step), step.given
        if isinstance(reading, Selection) and reading.then is not None:
            # What predicts reads the answer of the step, which is the selection.
            behind = Step(step.name, step.estimator, step)
            own = {"transform": (behind, Composite((), Identity()))}
            return self._score_then(behind, Composite((), reading.then), own)
        if isinstance(reading, Composite):
            self._guard(step, reading)
            own = {method: (step, answer) for method, answer in reading.answers.items()}
            if not isinstance(reading.then, Predictor | Module):
                return self._score_then(step, reading, own)
            given, reading = self._parts(step, reading), reading.then
        else:
            own = {}
        if not isinstance(reading, Predictor):
            raise UnsupportedEstimator(f"step {step.name!r} ({type(step.estimator).__name__}) is no predictor.")
        scores, wires = self._as_read(step, reading, reading.scores, given)
        places = self._places(step.name, wires)
        asks = given is step.given and not (reading.codes or reading.hashed)
        refuses = self._refusals(step.estimator, len(wires)) if asks else ()
        slot = self._add(step.name, type(step.estimator).__name__, scores, places, refuses)
        columns = self._width(scores, len(wires))
        return Scored(slot, columns, places, reading, _classes(step.estimator, reading.classes, None), step, own)

    def _as_read(
        self, step: Step, reading: Predictor | Transformer, module: Module, given: Expression
    ) -> tuple[Module, list[Wire]]:
        """The columns as a step reads them, and a module of trees that decides on them as the source does."""
        wires = list(self.wires(given))
        if not reading.sparse_zeros:
            wires = self._zeros_missing(step, given, wires)
        for column, categories in reading.codes.items():
            wires[column] = self._codes(step, wires[column], categories)
        if reading.hashed is not None:
            wires = self._statistics(step, reading.hashed, wires)
        if isinstance(module, TreeWalk):
            module = settle(module, [wire.filled for wire in wires])
        return module, wires

    def _zeros_missing(self, step: Step, given: Expression, wires: list[Wire]) -> list[Wire]:
        """Make zeros missing where the source's own rows are sparse; refuse sparse rows where they are raw."""
        if any(wire.raw is not None for wire in wires):
            self.encoder.refuses_sparse = True
        if not gives_sparse(given, len(wires)):
            return wires
        return self._module(step.name, "", ZeroAsMissing(), wires)

    def _score_then(self, step: Step, composite: Composite, own: Mapping[str, tuple[Step, Composite]]) -> Scored:
        """The scores of the estimator behind the parts; one that is only wrapped keeps its own classes."""
        inner = self._then(step, composite)
        if not isinstance(inner, Step):
            raise UnsupportedEstimator(f"step {step.name!r} ends in {type(composite.then).__name__}, no predictor.")
        scored = self._scored(inner)
        classes = _classes(step.estimator, None, scored.classes) if composite.parts else scored.classes
        return replace(scored, classes=classes, step=step, own={**scored.own, **own})

    # Composites

    def _guard(self, step: Step, composite: Composite) -> None:
        """Refuse numbers that the composite refuses, whatever its parts take."""
        wires = self.wires(step.given)
        if any(wire.number is None for wire in wires):
            return
        if refuses := composite.refuses or self._refusals(step.estimator, len(wires)):
            places = self._places(step.name, wires)
            self._add(step.name, type(step.estimator).__name__, Identity(), places, refuses)

    def _then(self, step: Step, composite: Composite) -> Expression:
        """The estimator that reads the answers of the parts."""
        name = f"{step.name}.{composite.name or type(composite.then).__name__}"
        return self._walk(composite.then, self._parts(step, composite), name)

    def _parts(self, step: Step, composite: Composite) -> Expression:
        """What the parts of a composite answer, side by side."""
        if not composite.parts:
            return step.given
        parts = tuple(self._part(step, part) for part in composite.parts)
        return Joined((*parts, step.given) if composite.passthrough else parts, None, step.given)

    def _part(self, step: Step, part: Part) -> Answer:
        columns, given = part.columns, step.given
        if columns is not None:
            positions = tuple(map(int, columns))
            given = self._inner.setdefault((given, positions), Columns(given, positions))
        if part.after:
            # The same parts come after the same columns whenever this estimator is named.
            key = (given, id(part.estimator), len(part.after))
            if key not in self._inner:
                self._inner[key] = Joined((given, *(self._part(step, one) for one in part.after)), None, given)
            given = self._inner[key]
        inner = self._walk(part.estimator, given, f"{step.name}.{part.name}")
        return Answer(inner, part.method, None if part.take is None else tuple(map(int, part.take)))

    def _walk(self, estimator: Any, given: Expression, name: str) -> Expression:
        """The DAG of an estimator inside a composite; of one that is named again, the same."""
        key = (given, id(estimator))
        if key not in self._inner:
            self._inner[key] = walk(estimator, given, name)
        return self._inner[key]

    def _check_readable(self, step: Step) -> None:
        """Raise where something inside a composite has no translation, before anything of it is put together."""
        reading = self._read(step)
        if not isinstance(reading, Composite):
            return
        inner = [self._part(step, part).given for part in reading.parts if part.method != "transform"]
        if not isinstance(reading.then, Predictor | Module):
            inner.append(self._then(step, reading))
        try:
            for one in inner:
                if isinstance(one, Step):
                    self._check_readable(one)
        except UnsupportedEstimator as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) is made of others, and needs them all: {error}"
            ) from error

    def _answer(self, expression: Expression, method: str) -> list[Wire]:
        """What a method of an inner estimator gives, as columns."""
        reading = self._read(expression) if isinstance(expression, Step) else None
        if method == "transform" and not _predicts(reading):
            return self.wires(expression)
        if not isinstance(expression, Step):
            raise UnsupportedEstimator(f"a part that gives {method} has to end in a predictor.")
        if isinstance(reading, Composite) and method in reading.answers:
            places = self._own(expression, reading.answers[method])
        elif isinstance(reading, Predictor) and method in reading.others and not reading.codes and method != "predict":
            places = self._other(expression, reading.others[method])
        elif method in ("predict", "position", "votes") and self._scored(expression).classes is not None:
            places = self._label(self._scored(expression), method)
        else:
            places = self._method(self._scored(expression), method)
        return [Wire(number=partial(_itself, place)) for place in places]

    def _own(self, step: Step, answer: Composite) -> list[Place]:
        """What a composite answers by itself."""
        places = self._places(step.name, self.wires(self._parts(step, answer)))
        return self._run(step, [answer.then, self._as_columns()], places)

    def _other(self, step: Step, module: Module) -> list[Place]:
        """What a method gives that reads the rows and no scores: these are left out of the program."""
        wires = self.wires(step.given)
        places, refuses = self._places(step.name, wires), self._refusals(step.estimator, len(wires))
        slot = self._add(step.name, type(step.estimator).__name__, module, places, refuses)
        places = [(slot, column) for column in range(self._width(module, len(wires)))]
        return self._run(step, [self._as_columns()], places)

    def _method(self, scored: Scored, method: str) -> list[Place]:
        """What a method gives that is no label."""
        predictor, step = scored.predictor, scored.step
        if method == "scores":
            return scored.places
        if method in scored.own:
            return self._own(*scored.own[method])
        if method in predictor.answers:
            return self._run(step, [predictor.answers[method], self._as_columns()], scored.places)
        if method in predictor.others:
            return self._run(step, [predictor.others[method], self._as_columns()], scored.given)
        if method == "decision_function":
            return self._run(step, [Linked("identity", predictor.decision_scale)], scored.places)
        if method in ("predict", "predict_proba"):
            return self._run(step, [Linked(predictor.link, **predictor.link_options)], scored.places)
        if method == "predict_log_proba":
            return self._run(step, [Logarithm()], self._method(scored, "predict_proba"))
        raise UnsupportedEstimator(f"step {step.name!r} ({type(step.estimator).__name__}) gives no {method}.")

    def _label(self, scored: Scored, method: str) -> list[Place]:
        """The label of a classifier: as a number, its position, or a column per class."""
        step, predictor, classes = scored.step, scored.predictor, scored.classes
        if isinstance(classes, list):
            raise UnsupportedEstimator(f"step {step.name!r} gives labels of several targets, and one is read.")
        if method == "predict" and classes.dtype.kind not in "biuf":
            raise UnsupportedEstimator(
                f"step {step.name!r} reads the labels of a classifier as numbers; they are {classes!r}."
            )
        if "predict" in scored.own:
            position = self._own(*scored.own["predict"])
        elif "predict" in predictor.others:
            position = self._run(step, [predictor.others["predict"], self._as_columns()], scored.given)
        else:
            # Of one class there is nothing to choose: no score is at least NaN.
            alone = AtLeast(torch.tensor(math.nan, dtype=torch.float64))
            positions = predictor.answers.get("predict", alone if len(classes) == 1 else Positions())
            position = self._run(step, [positions, self._as_columns()], scored.places)
        if method == "position" and self.exact:
            return position
        votes = self._run(step, [Chosen(len(classes))], [*position, *scored.places])
        if method == "votes":
            return votes
        values = np.arange(len(classes)) if method == "position" else classes
        return self._run(step, [LabelValues(torch.from_numpy(values.astype(np.float64)))], votes)

    def _run(self, step: Step, modules: Sequence[Module], places: list[Place]) -> list[Place]:
        """The columns of modules, one after the other."""
        for module in modules:
            module.cast(self.dtype)
            slot = self._add(step.name, type(step.estimator).__name__, module, places)
            places = [(slot, column) for column in range(self._width(module, len(places)))]
        return places

    def _as_columns(self) -> Module:
        return AsColumns(torch.zeros((), dtype=torch.float64))

    def _width(self, module: Module, columns: int) -> int:
        """How many columns a module gives for so many."""
        with torch.no_grad():
            return module(torch.zeros(2, columns, dtype=self.dtype)).reshape(2, -1).shape[1]  # type: ignore[no-any-return]

    def _answers(self, scored: Scored) -> tuple[dict[str, ProgramStep], Scored]:
        """A step for each method of the source that link and scores do not give; the scores stay the last answer."""
        wanted: dict[str, tuple[Module, list[Place]]] = {}
        for method, (step, answer) in scored.own.items():
            if hasattr(self.pipeline, method):
                wanted[method] = (answer.then, self._places(step.name, self.wires(self._parts(step, answer))))
        if scored.slot != len(self.steps) + 1:
            slot = self._add(scored.step.name, type(scored.step.estimator).__name__, Identity(), scored.places)
            scored = replace(scored, slot=slot)
        trained = {id(one) for step in self.steps for one in step.parameters()}
        for modules, places in ((scored.predictor.answers, scored.places), (scored.predictor.others, scored.given)):
            for method, module in modules.items():
                if hasattr(self.pipeline, method):
                    # What the scores do not pass through gets no gradient from a loss of the scores.
                    for one in module.parameters():
                        one.requires_grad_(id(one) in trained)
                    wanted.setdefault(method, (module, places))
        name, refuses = scored.step.name, self._refused_rows(scored)
        answers = {
            method: ProgramStep(module, self._takes(at), name, refuses if at is scored.given else ())
            for method, (module, at) in wanted.items()
        }
        return answers, scored

    def _refused_rows(self, scored: Scored) -> tuple[str, ...]:
        """What a predictor refuses in the columns that some of its methods read past the scores."""
        if not scored.predictor.others or scored.predictor.codes:
            return ()
        return self._refusals(scored.step.estimator, len(scored.given))

    def _beside(self, expression: Expression) -> dict[str, ProgramStep]:
        """A step for each method that the final transformer has beside ``transform``."""
        reading = self._readings.get(expression) if isinstance(expression, Step) else None
        if not isinstance(expression, Step) or not isinstance(reading, Transformer) or not reading.others:
            return {}
        name, places = expression.name, self._places(expression.name, self.wires(expression.given))
        takes, refuses = self._takes(places), self._refusals(expression.estimator, len(places))
        for module in reading.others.values():
            module.requires_grad_(False)
        return {method: ProgramStep(module, takes, name, refuses) for method, module in reading.others.items()}

    def _dtypes(self, expression: Expression) -> dict[str, str]:
        """The type of what the final transformer gives; where its tables may be trained, they are no whole numbers."""
        reading = self._readings.get(expression) if isinstance(expression, Step) else None
        if self.exact and isinstance(reading, Encoding | Tokens | Transformer) and reading.dtype != "float64":
            return {"transform": reading.dtype}
        return {}

    def _head(self, scored: Scored, answers: Mapping[str, ProgramStep]) -> Head:
        predictor, classes = scored.predictor, scored.classes
        several = isinstance(classes, list)
        task = "regression" if classes is None else "binary" if not several and len(classes) <= 2 else "multiclass"
        plain = {"predict", "decision_function", "predict_proba", "predict_log_proba"}
        if several and predictor.link == "identity":
            # A chain says that it has methods which raise where a target has more than two classes.
            own = answers.keys() | ({"predict_log_proba"} if "predict_proba" in answers else set())
            plain = {"predict"} | plain & own
        return Head(
            task=task,
            link=predictor.link,
            loss=predictor.loss,
            link_options=predictor.link_options,
            loss_options=predictor.loss_options,
            classes=classes,
            methods=tuple(
                method
                for method in METHODS
                if hasattr(self.pipeline, method) and (method in plain or method in answers)
            ),
            flat=predictor.flat,
            decision_scale=predictor.decision_scale,
            dtypes=dict(predictor.dtypes),
        )

    def _codes(self, step: Step, wire: Wire, categories: Sequence[Any]) -> Wire:
        """Categories as the codes that a tree compares; unknown and missing ones are NaN."""
        vocabulary, shown = self._look_up(step, wire, categories, 0)
        code = {category: index for index, category in enumerate(categories)}
        rows = torch.tensor([code.get(value, math.nan) for value in shown], dtype=self.dtype).unsqueeze(1)
        return self._table(step, CategoryTable(rows, False), wire, vocabulary, wire.refuses)[0]

    def _statistics(self, step: Step, hashed: Hashed, wires: Sequence[Wire]) -> list[Wire]:
        """Columns that are no categories, then the numbers that are read in the place of those that are."""
        name, estimator = step.name, type(step.estimator).__name__
        plain = [wire for column, wire in enumerate(wires) if column not in hashed.categories]
        coded = [
            self._by_hash(step, wires[column], known, column in hashed.told)
            for column, known in hashed.categories.items()
        ]
        places = [(IDS, self.encoder.category(column)) for column, _ in coded]
        if hashed.statistics is None:
            return plain
        hashes = torch.cat([of for _, of in coded])
        slot = self._add(name, estimator, CategoryHashes(hashes, torch.tensor([len(of) for _, of in coded])), places)
        places = [(slot, column) for column in range(len(coded))]
        if hashed.numbers:
            read = self._places(name, [wires[column] for column in hashed.numbers])
            slot = self._add(name, estimator, hashed.borders, read)
            places += [(slot, column) for column in range(len(read))]
        slot = self._add(name, estimator, hashed.statistics, places)
        width = len(hashed.statistics(torch.zeros(1, len(places), dtype=torch.int64))[0])
        return [*plain, *(Wire(number=partial(_itself, (slot, column))) for column in range(width))]

    def _by_hash(self, step: Step, wire: Wire, told: Sequence[int], all_told: bool) -> tuple[CategoryColumn, Tensor]:
        """A raw column whose categories are told by their hash, and the hash of each id that has a category."""
        vocabulary, shown = self._look_up(step, wire, (), 0)
        values = vocabulary.values
        if NONE in values and is_missing(shown[-1]):
            values, shown = values[:-1], shown[:-1]
        try:
            unknown, missing, *known = [
                None if value is UNKNOWN or is_missing(value) else signed(hash_of(text_of(value))) for value in shown
            ]
        except TypeError as error:
            raise UnsupportedEstimator(
                f"step {step.name!r} ({type(step.estimator).__name__}) reads column {self.encoder.name(wire.raw)} as "  # type: ignore[arg-type]
                f"a category, and there {error}; convert the column to text before fitting."
            ) from error
        refuses, further = wire.refuses | ({1} if missing is None else set()), None
        if shown[0] is UNKNOWN:
            further = tuple(sorted({*told} - {one % 2**32 for one in known if one is not None}))
            # Formats that cannot hash a text have an id for what is unknown, which may be no category of the source.
            refuses |= {0} if further or not all_told else set()
        hashes = [unknown, missing, *known, *map(signed, further or ())]
        assert wire.raw is not None
        vocabulary = Vocabulary(values, hashes=further)
        column = CategoryColumn(wire.raw, vocabulary, 0 in refuses, 1 in refuses, refuses_fractions=True)
        return column, torch.tensor([NO_HASH if one is None else one for one in hashes])


def _itself(place: Place) -> Place:
    return place


def _modules(reading: Any) -> Iterator[Module]:
    """Every module of a reading."""
    match reading:
        case Module():
            yield reading
        case Predictor():
            yield from (reading.scores, *reading.answers.values(), *reading.others.values())
            yield from _statistics_of(reading.hashed)
        case Recoding(number=Module() as number):
            yield number
        case Tokens(then=Module() as then):
            yield then
        case Transformer(module=module, others=others):
            yield from (module, *others.values())
            yield from _statistics_of(reading.hashed)
        case Composite(then=then, answers=answers):
            yield from _modules(then)
            for answer in answers.values():
                yield from _modules(answer)


def _statistics_of(hashed: Hashed | None) -> list[Module]:
    return [] if hashed is None or hashed.statistics is None else [hashed.borders, hashed.statistics]


def _predicts(reading: Any) -> bool:
    """Whether a reading is that of a predictor."""
    if isinstance(reading, Composite):
        return isinstance(reading.then, Predictor) or hasattr(reading.then, "predict")
    return isinstance(reading, Predictor)


def _classes(estimator: Any, given: Any, otherwise: Any) -> Any:
    """The labels of a predictor: an array, a list of arrays for several targets, or None."""
    classes = getattr(estimator, "classes_", None) if given is None else given
    if classes is None or len(classes) == 0:  # CatBoost's regressors have an empty list
        return otherwise
    return [np.asarray(one) for one in classes] if isinstance(classes, list | tuple) else np.asarray(classes)


def _finite(step: Step) -> set[int]:
    """scikit-learn takes no infinite numbers for categories; other libraries do."""
    return {2} if type(step.estimator).__module__.startswith("sklearn.") else set()


def _once(add: Callable[[], int]) -> Callable[[int], Place]:
    """Place of a column of the answer of a step that is added when first asked for."""
    slot = cache(add)
    return lambda column: (slot(), column)


def _check_numbers(name: str, wires: Sequence[Wire]) -> None:
    if any(wire.number is None for wire in wires):
        raise UnsupportedEstimator(f"step {name!r} reads text where its translation reads numbers.")


def _through(chain: Sequence[Callable[[list[Any]], list[Any]]], values: list[Any]) -> list[Any]:
    """What steps make of values, one after the other."""
    for recode in chain:
        values = recode(values)
    return values


def _present(values: Iterable[Any]) -> list[Any]:
    return [_plain(value) for value in values if not is_missing(value)]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
