"""The limits of each file format. ``docs/export.md`` shows the same table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windtunnel.encode import NONE_CATEGORY, CategoryColumn, Vocabulary
from windtunnel.encode.vocabulary import EXACT_INTEGERS
from windtunnel.errors import UnfaithfulOption
from windtunnel.export.columns import names, raw_columns, text_slots
from windtunnel.program.translated import TranslatedPipeline

GRAPHS = ("onnx", "exported", "aoti")
"""Formats that hold tensor operators alone."""
PROGRAMS = ("torchscript", *GRAPHS, "c")
OUTPUTS = ("scores", "predict_proba", "predict")
MISSING = "<missing>"
"""Marks a missing text in ONNX files."""
Find = Callable[[TranslatedPipeline], list[str]]
"""Finds the steps or columns of a translation that meet a limit; their names for a message."""


@dataclass(frozen=True)
class Limit:
    """One reason why a format cannot hold a translation."""

    what: str  # what is rejected, as the documentation names it
    formats: tuple[str, ...]
    subject: str  # the start of the message; the steps or columns replace ``{}``
    because: str  # the reason
    instead: str  # what to do
    find: Find


def met(net: TranslatedPipeline, format: str) -> Limit | None:
    """The first of ``LIMITS`` that a translation meets; None if the format can hold it."""
    return next((limit for limit in LIMITS if format in limit.formats and limit.find(net)), None)


def check(net: TranslatedPipeline, format: str) -> None:
    """Reject a translation that a format cannot hold: ``UnfaithfulOption`` with the first limit that it meets."""
    if limit := met(net, format):
        subjects = ", ".join(limit.find(net))
        raise UnfaithfulOption(f"{limit.subject.format(subjects)}: {limit.because}. {limit.instead}")


def _columns_with(meets: Callable[[Vocabulary], bool]) -> Find:
    """Finds the columns that have a vocabulary for which a condition holds."""
    return lambda net: _columns(net, lambda category: meets(category.vocabulary))


def _text_columns_with(meets: Callable[[Vocabulary], bool]) -> Find:
    """Finds such columns among those that a file reads as texts."""

    def find(net: TranslatedPipeline) -> list[str]:
        texts = raw_columns(net.encoder)[1]
        return _columns(net, lambda category: category.column in texts and meets(category.vocabulary))

    return find


def _columns(net: TranslatedPipeline, meets: Callable[[CategoryColumn], bool]) -> list[str]:
    columns = [net.encoder.column_name(category.column) for category in net.encoder.categories if meets(category)]
    return list(dict.fromkeys(columns))


def _both(net: TranslatedPipeline) -> list[str]:
    """Columns with a vocabulary of texts that another step reads as numbers."""
    numbers, texts = net.encoder.columns_by_kind()
    return _columns(net, lambda category: category.vocabulary.kind == "text" and category.column in numbers & texts)


def _read_by_hash(net: TranslatedPipeline) -> list[str]:
    """Columns of which a graph knows no category."""

    def meets(category: CategoryColumn) -> bool:
        vocabulary = category.vocabulary
        return category.files_reject_unknown and vocabulary.hashes is not None and not vocabulary.id_by_text

    return _columns(net, meets)


def _none_in_some(net: TranslatedPipeline) -> list[str]:
    """Columns in which None is a category of some vocabularies, and missing in others."""
    texts = [category for _, category in text_slots(net.encoder)]
    tell = {category.column for category in texts if NONE_CATEGORY in category.vocabulary.values}
    others = {category.column for category in texts if NONE_CATEGORY not in category.vocabulary.values}
    return _columns(net, lambda category: category.column in tell & others)


def _named_as_outputs(net: TranslatedPipeline) -> list[str]:
    return [repr(name) for name in _raw_names(net) if name in OUTPUTS or not name or name.startswith("windtunnel/")]


def _raw_names(net: TranslatedPipeline) -> list[str]:
    columns = [column for column in sum(raw_columns(net.encoder), []) if column < net.encoder.width]
    return names(net.encoder, columns)


def _host_steps(net: TranslatedPipeline) -> list[str]:
    """The steps on the host, with those before them."""
    named = [(*map(repr, host.steps_before), f"{host.name!r} ({host.estimator})") for host in net.hosts]
    return [*dict.fromkeys(text for names in named for text in names)]


def _wide_numbers(net: TranslatedPipeline) -> list[str]:
    """Columns of numbers with categories that float64 does not tell apart; hashed ones are known by their texts."""
    numbers = raw_columns(net.encoder)[0]

    def meets(category: CategoryColumn) -> bool:
        vocabulary = category.vocabulary
        hashed = vocabulary.hashes is not None and category.column in numbers
        return vocabulary.wide or (hashed and any(map(_is_wide, vocabulary.id_by_text)))

    return _columns(net, meets)


def _is_wide(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and abs(float(text)) >= EXACT_INTEGERS


def _not_unicode(net: TranslatedPipeline) -> list[str]:
    categories = [text for category in net.encoder.categories for text in category.vocabulary.id_by_text]
    texts = [*_raw_names(net), *net.head.labels_in_order, *categories]
    return [repr(text) for text in dict.fromkeys(texts) if isinstance(text, str) and not _is_unicode(text)]


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True


LIMITS = (
    Limit(
        "steps that stay on the host, text vectorizers among them",
        PROGRAMS,
        "the steps {} stayed on the host",
        "their code cannot go into a file",
        "Leave them out of the pipeline, or translate what comes after them and feed it their outputs.",
        _host_steps,
    ),
    Limit(
        "categories of one column that are texts and numbers",
        PROGRAMS,
        "column {} has texts and numbers among its categories",
        "a file takes a column of numbers or one of texts",
        "Convert the column to text before fitting.",
        _columns_with(lambda vocabulary: vocabulary.kind == "mixed"),
    ),
    Limit(
        "whole numbers of 2^53 and more among the categories",
        PROGRAMS,
        "column {} has whole numbers of 2^53 and more among its categories",
        "a file takes numbers as float64, which does not tell them apart",
        "Convert the column to text before fitting.",
        _wide_numbers,
    ),
    Limit(
        "a column read as text by one step and as numbers by another",
        PROGRAMS,
        "columns {} are read as text in one place and as numbers in another",
        "a file takes a column of numbers or one of texts",
        "Give the pipeline two columns.",
        _both,
    ),
    Limit(
        "None as a category of one step, and as missing in another that reads the same column",
        PROGRAMS,
        "None, or another missing value, in columns {} is a category in one place and missing in another",
        "a file reads the None of a column in one way",
        "Fill missing values with a text before fitting, or give the pipeline two columns.",
        _none_in_some,
    ),
    Limit(
        "CatBoost over categories, with neither rows as `calibrate=` nor a `fit`",
        GRAPHS,
        "columns {} have categories that are known by the hash of their text only",
        "no graph can compute it",
        "Give translate or compile the training rows as calibrate=, so that their texts are known, or choose "
        "format='torchscript'.",
        _read_by_hash,
    ),
    Limit(
        "hashing of raw texts, without rows as `calibrate=`",
        ("onnx",),
        "column {} is hashed",
        "ONNX has no operator for md5",
        "Choose format='torchscript', 'exported' or 'aoti', or encode the column in another way.",
        _text_columns_with(lambda vocabulary: vocabulary.buckets > 0 and not vocabulary.values),
    ),
    Limit(
        "hashed categories: hashing of raw texts, CatBoost over categories",
        ("c",),
        "column {} is hashed",
        "C files hold no hash functions",
        "Choose format='torchscript'.",
        _columns_with(lambda vocabulary: vocabulary.buckets > 0 or vocabulary.hashes is not None),
    ),
    Limit(
        "labels of several targets",
        ("c",),
        "the pipeline predicts {}",
        "a C file has one list of labels",
        "Choose format='torchscript'.",
        lambda net: ["several targets"] if net.head.has_several_targets else [],
    ),
    Limit(
        "texts with a null character among the categories",
        ("c",),
        "column {} has a null character in a category",
        "it ends a text in C",
        "Remove it before fitting.",
        _columns_with(lambda vocabulary: any("\0" in text for text in vocabulary.id_by_text)),
    ),
    Limit(
        "names, labels and categories that are no valid Unicode text",
        ("torchscript", *GRAPHS),
        "the names, labels or categories {} are no valid Unicode text",
        "a file holds UTF-8",
        "Replace them in the rows before fitting, or choose format='c'.",
        _not_unicode,
    ),
    Limit(
        "pipelines that read no column",
        ("onnx",),
        "the translation reads {}",
        "an ONNX file without input columns could not tell the number of rows",
        "Choose format='torchscript'.",
        lambda net: [] if any(raw_columns(net.encoder)) else ["no column"],
    ),
    Limit(
        "columns called `scores`, `predict_proba` or `predict`, or without a name",
        ("onnx",),
        "columns called {}",
        "ONNX has one space of names: inputs need one, and these are those of outputs",
        "Rename the columns before fitting.",
        _named_as_outputs,
    ),
    Limit(
        "the category `<missing>`",
        ("onnx",),
        "column {} has the category '<missing>'",
        "it stands for a missing text in ONNX files",
        "Rename it.",
        _text_columns_with(lambda vocabulary: MISSING in vocabulary.values),
    ),
)
