"""The JSON of an artefact: wiring and facts. Modules go by names in a table, not by import paths.

Dataclasses of the package stand in it as they are; pydantic checks their fields as strictly as those of ``Strict``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from windtunnel.encode import CategoryColumn
from windtunnel.program.records.origin import Origin
from windtunnel.program.records.records import Records
from windtunnel.program.records.strategy_choice import StrategyChoice
from windtunnel.program.translate_options import SofteningPlan

SCHEMA = 7
"""The number of the layout that this version writes and reads; it grows with every change of a field in this file."""
STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, ser_json_inf_nan="constants")

Count = Annotated[int, Field(ge=0)]
Columns = list[Count]
Label = str | int | float | bool


class Strict(BaseModel):
    """Data from a file: nothing is converted, and unknown fields are errors."""

    model_config = STRICT


class Manifest(BaseModel):
    """The fields that every version of the layout has."""

    format: Literal["windtunnel"]
    schema_number: int


class TakeData(Strict):
    """Columns of one slot of the program."""

    slot: Count
    columns: Columns


class StepData(Strict):
    """One step of the program; its tensors are under ``weights.steps.<position>.module.``.

    The tensors of a method's step are under ``weights.method_steps.<method>.module.``, those of the exact form of a
    soft step under ``exact.<position>.module.``.
    """

    name: str
    origin: Origin
    module: str
    facts: dict[str, Any]
    takes: list[TakeData]
    rejects: list[Literal["nan", "inf", "huge"]]


class Labels(Strict):
    """An array of labels: the NumPy dtype in its short spelling, and the values."""

    dtype: Annotated[str, Field(pattern=r"^([<|>][biuf][0-9]{1,2}|[<|>]U[0-9]{1,5}|\|O)$")]
    values: list[Label]


class HeadData(Strict):
    """The fields of ``Head``."""

    task: Literal["binary", "multiclass", "regression", "transform"]
    link: str
    loss: str
    link_options: dict[str, float]
    loss_options: dict[str, float | list[float]]
    classes: Labels | list[Labels] | None
    methods: list[str]
    flat: bool
    decision_scale: float
    dtypes: dict[str, Annotated[str, Field(pattern=r"^(float|int|uint)[0-9]{1,2}$|^bool$|^<U[0-9]{1,4}$")]]


class EncoderData(Strict):
    """The fields of ``RowEncoder`` but ``categories``, which may be larger than a header and are a tensor of bytes."""

    names: list[str] | None
    width: Count
    numbers: Columns
    unstored: Literal["zero", "missing", "rejected"]
    dtype: Literal["float32", "float64"]
    flat: bool
    needs_names: bool
    rejects_sparse_columns: bool


LONGEST_TERM = 100
"""The most words or characters of a term; the time to count terms grows with it."""
_WORDS = (r"\b\w\w+\b", r"\b\w+\b", r"\w+", r"\S+")
PLAIN_PATTERNS = (None, *_WORDS, *(f"(?u){words}" for words in _WORDS))
"""Patterns of words that take time in proportion to a text; others, such as (a+)+$, may never end."""


class CounterData(Strict):
    """The raw column that a ``TermCounter`` reads, and the counter's fields."""

    column: Count
    analyzer: Literal["word", "char", "char_wb"]
    lowercase: bool
    strip_accents: Literal["ascii", "unicode"] | None
    ngram_range: Annotated[list[Annotated[int, Field(ge=1, le=LONGEST_TERM)]], Field(min_length=2, max_length=2)]
    token_pattern: str | None
    encoding: str
    decode_error: Literal["strict", "ignore", "replace"]
    binary: bool
    stop_words: list[str] | None
    vocabulary: list[str] | None
    n_features: Count
    alternate_sign: bool


class HostData(Strict):
    """A step that stays on the host: its place in the source pipeline, whose code no file can hold.

    ``counts`` says that the step counts tokens. With a ``counter`` it does so without the source pipeline.
    """

    name: str
    estimator: str
    columns: Columns
    reason: str
    counts: bool
    counter: CounterData | None


class ColumnProfileData(Strict):
    """A column of the profile of the training rows: how many counts it has, and of numbers how many edges."""

    column: Count
    counts: Annotated[int, Field(ge=2)]
    edges: Count | None


class ProfileData(Strict):
    """The profile of the training rows; its tensors are under ``profile.``, column after column."""

    rows: Count
    columns: list[ColumnProfileData]


class GraphData(Strict):
    """The JSON text."""

    format: Literal["windtunnel"]
    schema_number: int
    versions: dict[str, str]
    steps: Annotated[list[StepData], Field(min_length=1)]
    method_steps: dict[str, StepData]
    exact: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], StepData]
    softening: SofteningPlan | None = None
    initially_zero: list[str]
    trainable: list[str]
    head: HeadData
    encoder: EncoderData
    hosts: list[HostData]
    untranslated: Literal["cache", "stream", "error"]
    records: Records
    choices: list[StrategyChoice]
    profile: ProfileData | None = None
    native: bool = False


class CategoriesData(Strict):
    """The columns of ids with their vocabularies."""

    categories: list[CategoryColumn]
