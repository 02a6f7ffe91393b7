"""The head, the columns and the host steps of a translation as data, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import CategoryColumn, RowEncoder, Vocabulary
from windtunnel.errors import BadFile, InvalidOption, UnfaithfulOption
from windtunnel.export.artefact.layout import (
    CategoryData,
    CounterData,
    EncoderData,
    GraphData,
    HeadData,
    HostData,
    Labels,
    VocabularyData,
)
from windtunnel.modules.outputs.links import LINKS
from windtunnel.objectives.losses import LOSSES
from windtunnel.pipeline.graph import Answer, Columns, Expression, Joined, Raw, Step, Weighted, raw_columns, walk
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import METHODS, Head
from windtunnel.translators.registry import Tokens, read
from windtunnel.translators.terms import TermCounter

LABEL_BYTES = 1 << 28
"""The most memory that the array of labels may take."""


def head_data(head: Head) -> HeadData:
    """Write a head as data; ``UnfaithfulOption`` for labels that JSON cannot hold."""
    return HeadData(
        task=head.task,  # type: ignore[arg-type]  # one of the four
        link=head.link,
        loss=head.loss,
        link_options={name: float(value) for name, value in head.link_options.items()},
        loss_options={
            name: [*map(float, value)] if isinstance(value, list) else float(value)
            for name, value in head.loss_options.items()
        },
        classes=_classes_data(head.classes),
        methods=list(head.methods),
        flat=head.flat,
        decision_scale=head.decision_scale,
        dtypes=dict(head.dtypes),
    )


def read_head(data: HeadData) -> Head:
    """Read a head; ``BadFile`` for names that are not known and labels that are not what they say."""
    for what, name, known in (("link", data.link, set(LINKS)), ("loss", data.loss, set(LOSSES))):
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise BadFile(f"unknown {what} {name!r}{f'; the nearest known one is {close[0]!r}' if close else ''}.")
    if unknown := sorted(set(data.methods) - set(METHODS)):
        raise BadFile(f"unknown methods {unknown}; known are {', '.join(METHODS)}.")
    if (data.task in ("binary", "multiclass")) != (data.classes is not None):
        raise BadFile(f"task {data.task!r} {'without' if data.classes is None else 'with'} labels.")
    plain = ("task", "link", "loss", "link_options", "loss_options", "flat", "decision_scale", "dtypes")
    fields = {name: getattr(data, name) for name in plain}
    return Head(**fields, classes=_classes(data.classes), methods=tuple(data.methods))


def _classes(data: Labels | list[Labels] | None) -> NDArray[Any] | list[NDArray[Any]] | None:
    if data is None:
        return None
    return [_labels(one) for one in data] if isinstance(data, list) else _labels(data)


def _classes_data(classes: Any) -> Labels | list[Labels] | None:
    if classes is None:
        return None
    return [*map(_labels_data, classes)] if isinstance(classes, list) else _labels_data(classes)


def _labels_data(labels: NDArray[Any]) -> Labels:
    values = labels.tolist()
    strange = sorted({type(value).__name__ for value in values if type(value) not in (str, int, float, bool)})
    if strange or labels.dtype.kind not in "biufUO" or labels.ndim != 1:
        raise UnfaithfulOption(
            f"labels of dtype {labels.dtype}{' holding ' + ', '.join(strange) if strange else ''} cannot be saved; "
            "text, integers, booleans and floats can. Convert y before fitting."
        )
    return Labels(dtype=labels.dtype.str, values=values)


def _labels(data: Labels) -> NDArray[Any]:
    kinds = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": (str, int, float, bool)}
    letter = data.dtype[1]
    if not data.values or not all(isinstance(value, kinds[letter]) for value in data.values):  # type: ignore[arg-type]
        raise BadFile(f"labels that are not of dtype {data.dtype}, or none at all.")
    try:
        dtype = np.dtype(data.dtype)
        if dtype.itemsize * len(data.values) > LABEL_BYTES:
            raise BadFile(f"labels of more than {LABEL_BYTES} bytes.")
        labels = np.array(data.values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadFile(f"labels that are not of dtype {data.dtype} ({error}).") from error
    if labels.tolist() != data.values:
        raise BadFile(f"labels that dtype {data.dtype} cannot hold.")
    return labels


def encoder_data(encoder: RowEncoder) -> EncoderData:
    """Write which columns are read; the vocabularies go into a member of their own."""
    return EncoderData(
        names=encoder.names,
        width=encoder.width,
        numbers=encoder.numbers,
        categories=[
            CategoryData(
                column=category.column,
                rejects_unknown=bool(category.rejects_unknown),
                rejects_missing=bool(category.rejects_missing),
                rejects_infinite=category.rejects_infinite,
                rejects_fractions=category.rejects_fractions,
            )
            for category in encoder.categories
        ],
        dtype=encoder.dtype,  # type: ignore[arg-type]  # one of the two
        flat=encoder.flat,
        rejects_sparse=encoder.rejects_sparse,
        of_frames=encoder.of_frames,
        rejects_sparse_columns=encoder.rejects_sparse_columns,
    )


def read_encoder(data: EncoderData, vocabularies: list[VocabularyData]) -> RowEncoder:
    """Read which columns are read, with their vocabularies; ``BadFile`` where the two do not fit."""
    if data.names is not None and len(data.names) != data.width:
        raise BadFile(f"{len(data.names)} names for {data.width} columns.")
    if len(vocabularies) != len(data.categories):
        raise BadFile(f"{len(vocabularies)} vocabularies for {len(data.categories)} columns of ids.")
    for vocabulary in vocabularies:
        if len(set(vocabulary.values)) < len(vocabulary.values) or any(v != v for v in vocabulary.values):
            raise BadFile("a vocabulary with a category given twice, or NaN.")
    categories = [
        CategoryColumn(
            one.column,
            Vocabulary(tuple(known.values), known.buckets, None if known.hashes is None else tuple(known.hashes)),
            one.rejects_unknown,
            one.rejects_missing,
            one.rejects_infinite,
            one.rejects_fractions,
        )
        for one, known in zip(data.categories, vocabularies, strict=True)
    ]
    if data.flat and (data.names is not None or data.width != 1):
        raise BadFile(f"a sequence of rows with {data.width} columns.")
    return RowEncoder(
        data.names,
        data.width,
        list(data.numbers),
        categories,
        data.dtype,
        data.flat,
        data.rejects_sparse,
        data.of_frames,
        data.rejects_sparse_columns,
    )


def host_data(host: HostStep) -> HostData:
    """Write a step on the host: where it is in the pipeline and, where data can say it, what it counts."""
    counter = None if host.tokens is None else host.tokens.counter
    column = None
    match host.step.given:
        case Raw():
            column = 0
        case Columns(given=Raw(), positions=(only,), flat=True):
            column = only
    data = None
    if counter is not None and column is not None:
        options: dict[str, Any] = {**asdict(counter), "ngram_range": list(counter.ngram_range)}
        data = CounterData(column=column, **options)
    return HostData(
        name=host.name,
        estimator=host.estimator,
        columns=list(host.columns),
        reason=host.reason,
        counts=host.tokens is not None,
        counter=data,
    )


def _read_host(data: HostData, flat: bool) -> HostStep:
    """A step that counts tokens without the source."""
    assert data.counter is not None
    counter = TermCounter(**data.counter.model_dump(exclude={"column"}))
    given = Raw() if flat else Columns(Raw(), (data.counter.column,), flat=True)
    tokens = Tokens(counter, len(data.columns), counter=counter)
    return HostStep(Step(data.name, None, given), tuple(data.columns), data.reason, tokens, data.estimator)


def check_hosts(graph: GraphData) -> None:
    """Check that every column that is read is a raw one, or answered by a step on the host."""
    columns = [column for host in graph.hosts for column in host.columns]
    width = graph.encoder.width + len(columns)
    if columns != list(range(graph.encoder.width, width)):
        raise BadFile(f"steps on the host answer in columns {columns[:5]}, after {graph.encoder.width} raw ones.")
    for host in graph.hosts:
        if host.counter is not None:
            _check_counter(host.counter, host, graph.encoder.width)
    read = [*graph.encoder.numbers, *(category.column for category in graph.encoder.categories)]
    if read and max(read) >= width:
        raise BadFile(f"column {max(read)} is read; there are {width}.")


def _check_counter(counter: CounterData, host: HostData, width: int) -> None:
    terms = counter.vocabulary
    if counter.column >= width:
        raise BadFile(f"step {host.name!r} reads texts from column {counter.column}; there are {width}.")
    if terms is not None and len(set(terms)) < len(terms):
        raise BadFile(f"step {host.name!r} has a term twice in its vocabulary.")
    if len(host.columns) != (counter.n_features if terms is None else len(terms)):
        raise BadFile(f"step {host.name!r} does not have as many terms as the {len(host.columns)} columns it gives.")


def find_hosts(graph: GraphData, host: Any) -> list[HostStep]:
    """Find the steps that stayed on the host in the fitted pipeline; ``UnfaithfulOption`` where they are not there."""
    if not graph.hosts:
        return []
    without = ", ".join(f"{data.name!r} ({data.estimator})" for data in graph.hosts if data.counter is None)
    if host is None and not without:
        return [_read_host(data, graph.encoder.flat) for data in graph.hosts]
    if host is None:
        raise InvalidOption(
            f"the steps {without} stayed on the host, and no file holds their code; "
            "give the fitted pipeline that was translated: windtunnel.load(path, host=pipeline)."
        )
    needed, encoder = ", ".join(f"{data.name!r} ({data.estimator})" for data in graph.hosts), graph.encoder
    if raw_columns(host) != (encoder.names, encoder.width):
        raise InvalidOption(
            f"host= was fitted on other columns than the pipeline that was translated "
            f"({encoder.width} columns: {', '.join((encoder.names or ['without names'])[:12])}); give that one."
        )
    found = {step.name: step for step in _steps_of(walk(host))}
    answer = []
    for data in graph.hosts:
        step = found.get(data.name)
        if step is None or type(step.estimator).__name__ != data.estimator:
            raise InvalidOption(
                f"host= has no step {data.name!r} of class {data.estimator}; needed are {needed}, it has "
                f"{', '.join(f'{name!r} ({type(one.estimator).__name__})' for name, one in found.items())}. "
                "Give the fitted pipeline that was translated."
            )
        answer.append(HostStep(step, tuple(data.columns), data.reason, _tokens(step) if data.counts else None))
    return answer


def _tokens(step: Step) -> Tokens:
    reading = read(step.estimator)
    if not isinstance(reading, Tokens):
        raise InvalidOption(f"step {step.name!r} of host= counts no tokens; give the pipeline that was translated.")
    return reading


def _steps_of(expression: Expression) -> Iterator[Step]:
    match expression:
        case Raw():
            return
        case Joined(parts=parts):
            for part in parts:
                yield from _steps_of(part)
        case Step(given=given):
            yield from _steps_of(given)
            yield expression
        case Columns(given=given) | Weighted(given=given) | Answer(given=given):
            yield from _steps_of(given)
