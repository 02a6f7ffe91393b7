"""The head, the columns and the host steps of a translation as data, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from windtunnel.encode import CategoryColumn, RowEncoder
from windtunnel.errors import BadFile, InvalidOption, UnfaithfulOption, nearest
from windtunnel.export.artefact.layout import (
    PLAIN_PATTERNS,
    CounterData,
    EncoderData,
    GraphData,
    HeadData,
    HostData,
    Labels,
)
from windtunnel.modules.outputs.links import LINKS
from windtunnel.objectives.losses import LOSSES, UNKNOWN_LOSS
from windtunnel.pipeline.expressions import Columns, Raw, Step
from windtunnel.pipeline.host_step import HostStep
from windtunnel.program.head import METHODS, Head

if TYPE_CHECKING:
    from windtunnel.translators.conversions import TokenCounts

LABEL_BYTES = 1 << 26
"""The most memory that the labels of all targets may take."""
SPARE_CHARACTERS = 1000
"""How much wider an array of texts may be than its longest label, in characters."""
MOST_BUCKETS = 1 << 31
"""The most columns of scikit-learn's hashing."""


def head_data(head: Head) -> HeadData:
    """Data of a head; ``UnfaithfulOption`` for labels that JSON cannot hold."""
    fields = {name: getattr(head, name) for name in HeadData.model_fields}
    return HeadData(
        **fields
        | {
            "link_options": {name: float(value) for name, value in head.link_options.items()},
            "loss_options": {
                name: [*map(float, value)] if isinstance(value, list) else float(value)
                for name, value in head.loss_options.items()
            },
            "classes": _each(_labels_data, head.classes),
            "methods": list(head.methods),
        }
    )


def read_head(data: HeadData) -> Head:
    """Build a head; ``BadFile`` for unknown names and for labels that do not fit their dtype."""
    for what, name, names in (("link", data.link, set(LINKS)), ("loss", data.loss, {*LOSSES, UNKNOWN_LOSS})):
        if name not in names:
            raise BadFile(f"unknown {what} {name!r}: {nearest(name, sorted(names))}")
    if unknown := sorted(set(data.methods) - set(METHODS)):
        raise BadFile(f"unknown methods {unknown}; accepted are {', '.join(METHODS)}.")
    if (data.task in ("binary", "multiclass")) != (data.classes is not None):
        raise BadFile(f"task {data.task!r} {'without' if data.classes is None else 'with'} labels.")
    if sum(_bytes_of(labels) for labels in _listed(data.classes)) > LABEL_BYTES:
        raise BadFile(f"labels of more than {LABEL_BYTES} bytes.")
    return Head(**dict(data) | {"classes": _each(_labels, data.classes), "methods": tuple(data.methods)})


def _listed(classes: Labels | list[Labels] | None) -> list[Labels]:
    """The labels of each target."""
    if classes is None:
        return []
    return classes if isinstance(classes, list) else [classes]


def _bytes_of(data: Labels) -> int:
    """The size of the array of labels; ``BadFile`` for texts that its dtype makes much wider than they are."""
    if data.dtype[1] == "U" and int(data.dtype[2:]) > _longest(data.values) + SPARE_CHARACTERS:
        raise BadFile(f"labels of dtype {data.dtype}, which have at most {_longest(data.values)} characters.")
    return _dtype(data).itemsize * len(data.values)


def _longest(labels: list[Any]) -> int:
    return max((len(str(label)) for label in labels), default=0)


def _dtype(data: Labels) -> np.dtype[Any]:
    try:
        return np.dtype(data.dtype)
    except TypeError as error:
        raise BadFile(f"labels that are not of dtype {data.dtype} ({error}).") from error


def _each(convert: Callable[[Any], Any], classes: Any) -> Any:
    """Convert the labels of one target or of several; None where there are no labels."""
    if classes is None:
        return None
    return [*map(convert, classes)] if isinstance(classes, list) else convert(classes)


def _labels_data(labels: NDArray[Any]) -> Labels:
    values = labels.tolist()
    strange = sorted({type(value).__name__ for value in values if type(value) not in (str, int, float, bool)})
    if strange or labels.dtype.kind not in "biufUO" or labels.ndim != 1:
        raise UnfaithfulOption(
            f"labels of dtype {labels.dtype}{' holding ' + ', '.join(strange) if strange else ''} cannot be saved; "
            "text, integers, booleans and floats can. Convert y before fitting."
        )
    wide = labels.dtype.kind == "U" and labels.itemsize // 4 > _longest(values) + SPARE_CHARACTERS
    return Labels(dtype=np.array(values).dtype.str if wide else labels.dtype.str, values=values)


def _labels(data: Labels) -> NDArray[Any]:
    kinds = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": (str, int, float, bool)}
    letter = data.dtype[1]
    if not data.values or not all(isinstance(value, kinds[letter]) for value in data.values):  # type: ignore[arg-type]
        raise BadFile(f"labels that are not of dtype {data.dtype}, or none at all.")
    try:
        labels = np.array(data.values, dtype=_dtype(data))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadFile(f"labels that are not of dtype {data.dtype} ({error}).") from error
    if labels.tolist() != data.values:
        raise BadFile(f"labels that dtype {data.dtype} cannot hold.")
    return labels


def encoder_data(encoder: RowEncoder) -> EncoderData:
    """Data of an encoder but its categories."""
    return EncoderData(**{name: getattr(encoder, name) for name in EncoderData.model_fields})


def read_encoder(data: EncoderData, categories: list[CategoryColumn]) -> RowEncoder:
    """Build an encoder; ``BadFile`` where its fields do not fit together."""
    if data.names is not None and len(data.names) != data.width:
        raise BadFile(f"{len(data.names)} names for {data.width} columns.")
    for category in categories:
        values, hashes = category.vocabulary.values, category.vocabulary.hashes or ()
        if len(set(values)) < len(values) or any(value != value for value in values):
            raise BadFile("a vocabulary with a category given twice, or NaN.")
        if min(category.column, category.vocabulary.buckets, *hashes) < 0:
            raise BadFile("a vocabulary with a negative column, number of buckets or hash.")
        if category.vocabulary.texts and len(category.vocabulary.texts) != len(hashes):
            raise BadFile(f"a vocabulary with {len(category.vocabulary.texts)} texts of {len(hashes)} hashes.")
        if category.vocabulary.buckets > MOST_BUCKETS:
            raise BadFile(f"a vocabulary of {category.vocabulary.buckets} buckets; at most {MOST_BUCKETS} can be.")
    if data.flat and (data.names is not None or data.width != 1):
        raise BadFile(f"a sequence of rows with {data.width} columns.")
    return RowEncoder(**dict(data), categories=categories)


def host_data(host: HostStep) -> HostData:
    """Write a step on the host."""
    return HostData.model_validate(host.facts())


def _read_host(data: HostData, flat: bool) -> HostStep:
    """A step that counts tokens without the source pipeline."""
    from windtunnel.translators.conversions import TokenCounts
    from windtunnel.translators.terms import TermCounter

    assert data.counter is not None
    counter = TermCounter(**data.counter.model_dump(exclude={"column"}))
    given = Raw() if flat else Columns(Raw(), (data.counter.column,), flat=True)
    tokens = TokenCounts(counter, len(data.columns), counter=counter)
    return HostStep(Step(data.name, None, given), tuple(data.columns), data.reason, tokens, data.estimator)


def check_hosts(graph: GraphData, categories: list[CategoryColumn]) -> None:
    """Check that every column that is read is a raw one or the output of a step on the host."""
    columns = [column for host in graph.hosts for column in host.columns]
    width = graph.encoder.width + len(columns)
    if columns != list(range(graph.encoder.width, width)):
        raise BadFile(f"steps on the host write columns {columns[:5]}, after {graph.encoder.width} raw columns.")
    for host in graph.hosts:
        if host.counter is not None:
            _check_counter(host.counter, host, graph.encoder.width)
    read = [*graph.encoder.numbers, *(category.column for category in categories)]
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


def find_hosts(graph: GraphData, host: Any, trusted: bool) -> list[HostStep]:
    """Find the steps that stayed on the host in the fitted pipeline; ``InvalidOption`` where they are not there."""
    if not graph.hosts:
        return []
    without = ", ".join(f"{data.name!r} ({data.estimator})" for data in graph.hosts if data.counter is None)
    if host is None and not without:
        _check_patterns(graph, trusted)
        return [_read_host(data, graph.encoder.flat) for data in graph.hosts]
    if host is None:
        raise InvalidOption(
            f"the steps {without} stayed on the host, and no file holds their code; "
            "give the fitted pipeline that was translated: windtunnel.load(path, host=pipeline), or Cascade.load alike."
        )
    from windtunnel.assemble.composites import all_steps
    from windtunnel.pipeline.fitted_columns import fitted_columns

    steps_of_host = {step.name: step for step in all_steps(host)}
    needed, encoder = ", ".join(f"{data.name!r} ({data.estimator})" for data in graph.hosts), graph.encoder
    # A custom transformer as the first step does not tell its columns; then these do.
    no_rows = np.empty((0, encoder.width))
    sample: Any = no_rows if encoder.names is None else {name: no_rows[:, 0] for name in encoder.names}
    if fitted_columns(host, sample) != (encoder.names, encoder.width):
        raise InvalidOption(
            f"host= was fitted on other columns than the pipeline that was translated "
            f"({encoder.width} columns: {', '.join((encoder.names or ['without names'])[:12])}); give that one."
        )
    steps = []
    for data in graph.hosts:
        step = steps_of_host.get(data.name)
        if step is None or type(step.estimator).__name__ != data.estimator:
            raise InvalidOption(
                f"host= has no step {data.name!r} of class {data.estimator}; needed are {needed}, it has "
                f"{', '.join(f'{name!r} ({type(step.estimator).__name__})' for name, step in steps_of_host.items())}. "
                "Give the fitted pipeline that was translated."
            )
        steps.append(HostStep(step, tuple(data.columns), data.reason, _tokens(step) if data.counts else None))
    return steps


def _check_patterns(graph: GraphData, trusted: bool) -> None:
    for data in graph.hosts:
        if data.counter and data.counter.token_pattern not in PLAIN_PATTERNS and not trusted:
            raise BadFile(
                f"step {data.name!r} finds words by another pattern than scikit-learn's, "
                f"{str(data.counter.token_pattern)[:100]!r}, which could take hours on some texts. If you know who "
                "made the file, load it with trusted=True, or with host=pipeline."
            )


def _tokens(step: Step) -> TokenCounts:
    from windtunnel.translators.conversions import TokenCounts
    from windtunnel.translators.registry import convert

    conversion = convert(step.estimator)
    if not isinstance(conversion, TokenCounts):
        raise InvalidOption(f"step {step.name!r} of host= counts no tokens; give the pipeline that was translated.")
    return conversion
