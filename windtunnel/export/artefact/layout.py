"""What the JSON members of an artefact hold: wiring and facts; modules go by names in a table, not by import paths."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from windtunnel.compiler.strategies import Choice
from windtunnel.export.artefact.container import Strict
from windtunnel.program.history import Epoch, History

Count = Annotated[int, Field(ge=0)]
Columns = list[Count]
Label = str | int | float | bool


class TakeData(Strict):
    """Columns of one slot of the program."""

    slot: Count
    columns: Columns


class OriginData(Strict):
    """The source step behind a program step."""

    name: str
    estimator: str


class StepData(Strict):
    """One step of the program; its tensors are in the weights under ``steps.<position>.module.``.

    A step that answers a method has its tensors under ``answers.<method>.module.``; the exact form of a soft one has
    them in a file of their own, under ``<position>.module.``.
    """

    name: str
    origin: OriginData
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
    dtypes: dict[str, Annotated[str, Field(pattern=r"^(float|int|uint)[0-9]{1,2}$|^bool$|^<U[0-9]{1,6}$")]]


class CategoryData(Strict):
    """One column of ids, under the vocabulary of the same position."""

    column: Count
    rejects_unknown: bool
    rejects_missing: bool
    rejects_infinite: bool
    rejects_fractions: bool


class EncoderData(Strict):
    """The fields of ``RowEncoder``."""

    names: list[str] | None
    width: Count
    numbers: Columns
    categories: list[CategoryData]
    rejects_sparse: bool
    dtype: Literal["float32", "float64"]
    flat: bool
    of_frames: bool = False
    rejects_sparse_columns: bool = False


class CounterData(Strict):
    """The fields of ``TermCounter``, and which raw column it reads."""

    column: Count
    analyzer: Literal["word", "char", "char_wb"]
    lowercase: bool
    strip_accents: Literal["ascii", "unicode"] | None
    ngram_range: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)]
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

    ``counts`` says that it counts tokens; with ``counter`` it does so without the source.
    """

    name: str
    estimator: str
    columns: Columns
    reason: str
    counts: bool
    counter: CounterData | None


class EpochData(Strict):
    """The fields of ``Epoch``."""

    epoch: Count
    train_loss: float | None
    val_loss: float
    metric: float
    learning_rate: float
    seconds: float


class HistoryData(Strict):
    """The fields of ``History``."""

    epochs: list[EpochData]
    metric: str
    greater_is_better: bool
    start: float
    best: float
    best_epoch: Count
    validated_on: str
    seconds: float

    def history(self) -> History:
        """The record itself."""
        facts = self.model_dump()
        return History(**{**facts, "epochs": [Epoch(**epoch) for epoch in facts["epochs"]]})


class ChoiceData(Strict):
    """The fields of ``Choice``."""

    step: str
    strategy: str
    rows: Count | None
    expected: dict[str, float]
    measured: dict[str, float]
    backend: str = "torch"

    def choice(self) -> Choice:
        """The choice itself, the fastest strategy first."""
        expected, measured = (
            dict(sorted(one.items(), key=lambda taken: taken[1])) for one in (self.expected, self.measured)
        )
        return Choice(self.step, self.strategy, self.rows, expected, measured, self.backend)


class GraphData(Strict):
    """``graph.json``."""

    steps: Annotated[list[StepData], Field(min_length=1)]
    answers: dict[str, StepData]
    exact: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], StepData] = Field(default_factory=dict)
    trainable: list[str]
    head: HeadData
    encoder: EncoderData
    hosts: list[HostData]
    untranslated: Literal["cache", "stream", "error"]
    faithful: dict[str, float]
    history: HistoryData | None
    choices: list[ChoiceData]


class VocabularyData(Strict):
    """The fields of ``Vocabulary``."""

    values: list[Label]
    buckets: Count
    hashes: list[Count] | None = None


class VocabulariesData(Strict):
    """``vocabularies.json``: one entry per column of ids."""

    vocabularies: list[VocabularyData]
