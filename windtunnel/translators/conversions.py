"""The conversion of a fitted estimator, which its converter returns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from windtunnel.modules.base import Module
from windtunnel.translators.terms import TermCounter


@dataclass(frozen=True)
class HashedColumns:
    """Columns whose categories the source identifies by the hash of their text, and the statistics that replace them.

    These columns hold texts and whole numbers; the source rejects all other values. The module gets the remaining
    columns, followed by those of ``statistics``.
    """

    categories: Mapping[int, Sequence[int]]
    """Column -> the hashes that the fitted source reveals, from 0 to 2^32 - 1
    (``windtunnel.encode.cityhash.city_hash``)."""
    complete: frozenset[int]  # the columns for which these are all hashes of the source
    numbers: Sequence[int]  # further input columns, those of ``borders``
    borders: Module  # [B, numbers] -> int64 [B, k]
    statistics: Module | None
    """int64 ``[B, categories + k] -> [B, K]``, from the hashes as signed numbers of 32 bits and the output of
    ``borders``; None if no statistics replace the categories."""


@dataclass(frozen=True)
class InputColumns:
    """How a predictor reads input columns that are not plain numbers."""

    codes: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    """Columns of categories, with the categories in the order of their codes (LightGBM over pandas' category dtype);
    unknown and missing ones become NaN."""
    closed_codes: Collection[int] = ()  # those of these columns that reject unknown categories (XGBoost, texts)
    needs_names: bool = False
    """Whether the source reads numbers in an array as category codes (LightGBM, XGBoost), so that rows with numeric
    categories must be tables."""
    hashed: HashedColumns | None = None
    """Columns that statistics replace, looked up by the hash of their text (CatBoost)."""
    sparse_zeros: bool = True  # false if the source takes the zeros of a sparse matrix for missing values (XGBoost)

    @property
    def has_categories(self) -> bool:
        """Whether some columns are categories."""
        return bool(self.codes) or self.hashed is not None


@dataclass(frozen=True)
class Predictor:
    """The conversion of a classifier, regressor, clusterer or detector: raw scores, and the outputs made of them."""

    scores: Module
    """``[B, width] -> [B, K]`` raw scores, which fine-tuning trains: log-odds for probability models, margins for SVMs,
    log-densities for mixtures, values otherwise."""
    link: str = "identity"
    """From raw scores to the output of ``predict_proba`` or ``predict``; a name in
    ``windtunnel.modules.outputs.links.LINKS``."""
    loss: str = "squared"
    """The default loss of fine-tuning; a name in ``windtunnel.objectives.losses.LOSSES``, or "unknown": then
    ``fit`` requires a custom loss, because the target alone does not determine the error."""
    # link_options, loss_options: JSON arguments of the two, such as ``{"alpha": 0.9}`` for the quantile loss; a list is
    # one for each score
    link_options: dict[str, float] = field(default_factory=dict)
    loss_options: Mapping[str, float | list[float]] = field(default_factory=dict)
    flat: bool = True  # whether predictions of a regressor are [B] and not [B, K]
    decision_scale: float = 1.0
    """Factor: ``decision_function`` = factor x raw score (LightGBM's random forests: the number of trees)."""
    reads: InputColumns = InputColumns()  # its input columns that are not plain numbers
    classes: Any = None
    """The labels in the order of the scores; None takes the estimator's ``classes_``, if it has them. Outlier detectors
    (-1 and 1) and clusterers (0..k-1) need it. Several arrays are several targets with concatenated scores: ``predict``
    gives ``[B, targets]``, ``predict_proba`` a list."""
    methods: Mapping[str, Module] = field(default_factory=dict)
    """Methods that differ from link and scores: name -> a Module over the raw scores ``[B, K]``. It returns the output
    of the source's method, in the same shape, as floating-point numbers; for ``predict`` of an estimator with classes
    the position of the label, int64 ``[B]`` or ``[B, targets]``."""
    column_methods: Mapping[str, Module] = field(default_factory=dict)
    """The same for methods that do not follow from raw scores (``transform`` and ``apply`` of a predictor): Modules
    over the same ``[B, width]`` columns as ``scores``."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """The NumPy dtype of a method's output if it is not float64 (labels have the dtype of ``classes``)."""
    failing: Collection[str] = ()  # methods of this fitted source that raise for all rows, which are left out

    @classmethod
    def of_classes(cls, scores: Module, *, several: bool, **options: Any) -> Predictor:
        """A classifier: its one score is the log-odds of two classes, or ``several`` scores go into a softmax."""
        link, loss = ("softmax", "softmax") if several else ("sigmoid", "logistic")
        return cls(scores, link=link, loss=loss, **options)


@dataclass(frozen=True)
class Part:
    """One fitted estimator inside another, and the method whose output the other reads."""

    name: str  # its name inside the composite, such as ``"estimators_.3"``
    estimator: Any
    method: str = "scores"
    """One of "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform", or
    "scores" for the raw scores. ``predict`` of a classifier gives its labels, which have to be numbers; "position"
    gives the position of the label among its classes instead, and "votes" a column per class, 1 at that position. For
    `predict`, `position` and `votes`, which have no gradient, ``translate`` uses the gradient of the probabilities."""
    columns: Sequence[int] | None = None  # the composite's input columns that it reads; None for all
    output_columns: Sequence[int] | None = None  # the columns of its output that are read; None for all
    after: Sequence[Part] = ()  # parts whose outputs are appended to these columns, in order (links of a chain)


def member_names(fitted: Any) -> list[str]:
    """The names of the estimators of a vote or a stack that are not dropped, in the order of ``estimators_``."""
    # The members of fit; an ensemble whose attributes were set by hand has none by name.
    members = getattr(fitted, "named_estimators_", dict(fitted.estimators))
    return [name for name, estimator in members.items() if not isinstance(estimator, str)]


def member_parts(fitted: Any, method: str) -> list[Part]:
    """The outputs of a method of each estimator in ``fitted.estimators_``."""
    return [Part(f"estimators_.{index}", member, method) for index, member in enumerate(fitted.estimators_)]


@dataclass(frozen=True)
class Composite:
    """The conversion of an estimator made of others (stacking, voting, calibration, chains, wrappers).

    The converter of its own class converts each part, so composites nest at will. An estimator that is named several
    times, for several of its methods, is computed once.
    """

    parts: Sequence[Part]
    then: Any
    """The consumer of the concatenated outputs of the parts: a Predictor or Module over these columns, or one more
    fitted estimator (the final one of a stack), whose classes the composite's own replace."""
    passthrough: bool = False  # whether the composite's own input columns are appended to the outputs of the parts
    name: str = ""  # the name of ``then`` in paths if it is an estimator, such as ``"final_estimator_"``
    methods: Mapping[str, Composite] = field(default_factory=dict)
    """Methods of the composite that differ from those of ``then``: name -> a Composite whose ``then`` is a Module that
    returns the output of the method, as those of ``Predictor.methods`` do."""
    rejects: Sequence[str] = ()
    """The values that the composite rejects in any of its columns, whatever its parts accept: "nan", "inf"."""
    shared_loss: Literal["", "loss", "quantiles"] = ""
    """Whether the loss that all parts share replaces that of ``then``, a Predictor. "loss": the composite's output has
    the parts' unit (a mean or median). "quantiles": its output is an increasing function of one part, which preserves
    quantile losses. "": no."""
    then_of_squares: Predictor | None = None
    """Takes the place of ``then`` where all parts were fitted by squared errors, on a transformed target."""


@dataclass(frozen=True)
class Selection:
    """The conversion of a step that selects some of its columns, numbers or categories."""

    columns: Sequence[int]  # positions of the selected input columns, in the order of the output
    then: Any = None
    """The predictor over the selected columns at the end of a pipeline (recursive elimination); inside a pipeline it
    has no effect."""


@dataclass(frozen=True)
class CategoryEncoding:
    """The conversion of a per-column categorical encoder: the vocabulary of each input column.

    The tables come from the fitted encoder itself, which transforms every category (see ``probe.py``).
    """

    categories: Sequence[Sequence[Any] | None]
    """One entry per input column: the encoder's categories (str, int, float, bool; missing values may be listed as None
    or NaN), or None for a column that passes through as a number."""
    # rejects_unknown, rejects_missing: true if the source raises on a category that it has not seen, on a missing
    # value that is not listed. If False, the encoder is probed
    rejects_unknown: bool = False
    rejects_missing: bool = False
    rejects_fractions: bool = False  # true if the source raises on numbers that are not whole
    buckets: int = 0
    """Above 0: the number of rows to which the md5 of their text maps unknown categories, as in a hashing encoder."""
    trainable: bool = True  # false if the rows are codes, which a tree compares, and not an embedding
    tells_none: bool = False  # true if None and NaN in a column of objects are encoded differently
    flat: bool = False  # true if the source takes a sequence, such as labels, not a table
    dtype: str = "float64"  # the NumPy dtype of its output


@dataclass(frozen=True)
class CategoryRecoding:
    """The conversion of a step from categories to categories (rare-category groupers, imputers of text)."""

    recode: Callable[[int, list[Any]], list[Any]]
    """``recode(column, values) -> values``: the output of the fitted step for a list of categories in one column; None
    and NaN are two kinds of missing values, as in the source."""
    categories: Sequence[Sequence[Any] | None]
    """The vocabulary of each input column; None if the step has none or passes the column through."""
    number: Module | None = None
    """The same step over numbers, used if the next step reads numbers; None for a step over categories only."""
    number_columns: Sequence[int] | None = None  # the columns that ``number`` takes; None for all


@dataclass(frozen=True)
class TokenCounts:
    """The conversion of a step that counts terms of texts, or reads dicts: host code, and a module after it."""

    counts: Callable[[Any], Any]
    """``counts(rows)``: the counts of the fitted step, sparse or dense ``[B, width]``, before the weighting by
    ``then``."""
    width: int  # the number of columns
    then: Module | None = None  # from the counts to the columns of the step; None if these are the counts
    counter: TermCounter | None = None
    """The same counts from plain options, which a file can store; None if they need code."""
    dtype: str = "float64"  # the NumPy dtype of the step's output
    finite: bool = True  # whether counts are finite for all rows


@dataclass(frozen=True)
class Transformer:
    """The conversion of a transformer that needs more than a module: further methods, how its columns are read."""

    module: Module  # [B, width] -> [B, K], the output of ``transform``
    column_methods: Mapping[str, Module] = field(default_factory=dict)
    """Name (such as "score_samples") -> a Module over the same columns that returns the output of the method."""
    reads: InputColumns = InputColumns()  # as that of ``Predictor``, which reads the columns
    differentiable: bool = True  # false if this fitted instance is a step function, which ``translate`` rejects
    dtypes: Mapping[str, str] = field(default_factory=dict)  # as those of ``Predictor``


Conversion = (
    Module | Predictor | CategoryEncoding | CategoryRecoding | Composite | Selection | TokenCounts | Transformer
)
