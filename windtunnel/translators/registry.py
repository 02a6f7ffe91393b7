"""The one table of translations: estimator class -> the function that reads a fitted instance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module
from windtunnel.translators.terms import TermCounter
from windtunnel.translators.untranslated import REASONS, public_name


@dataclass(frozen=True)
class HashedColumns:
    """Columns that a source tells apart by the hash of their text, and the numbers that it reads in their place.

    These columns are texts and whole numbers; the source rejects all others, and missing values. What reads the others
    gets, after them, the columns of ``statistics``.

    Parameters
    ----------
    categories : dict
        Column -> the hashes that the fitted source tells, from 0 to 2^32 - 1 (``windtunnel.encode.cityhash.city_hash``).
    complete : set of int
        The columns of which these are all hashes that it knows.
    numbers : sequence of int
        Further columns, which ``borders`` reads.
    borders : Module
        ``[B, numbers] -> int64 [B, k]``.
    statistics : Module or None
        int64 ``[B, categories + k] -> [B, K]``, from the hashes as signed numbers of 32 bits, and what ``borders``
        gives; None where nothing is read in the place of the categories.
    """

    categories: Mapping[int, Sequence[int]]
    complete: frozenset[int]
    numbers: Sequence[int]
    borders: Module
    statistics: Module | None


@dataclass(frozen=True)
class Predictor:
    """What a reader returns for a classifier, regressor, clusterer or detector: raw scores, and what is made of them.

    Parameters
    ----------
    scores : Module
        ``[B, width] -> [B, K]`` raw scores, which fine-tuning works on: log-odds for probability models, margins for
        SVMs, log-densities for mixtures, values otherwise.
    link : str
        From raw scores to what ``predict_proba`` or ``predict`` gives; a name in ``windtunnel.modules.outputs.links.LINKS``.
    loss : str
        What fine-tuning minimises unless told otherwise; a name in ``windtunnel.objectives.losses.LOSSES``. "unknown"
        where the target alone does not tell how wrong an answer is, so that ``fit`` asks for a loss of one's own.
    loss_options, link_options : dict
        JSON arguments of the two, such as ``{"alpha": 0.9}`` for the quantile loss; a list is one for each score.
    flat : bool
        True where the source predicts ``[B]`` and not ``[B, 1]``.
    decision_scale : float
        What ``decision_function`` gives over the raw score (LightGBM's random forests: the number of trees).
    codes : dict
        Input columns that are read as categories, not numbers, with the categories in the order of their codes
        (LightGBM over pandas' category dtype); unknown and missing ones become NaN.
    closed_codes : collection of int
        Those of these columns in which an unknown category is rejected (XGBoost, of texts).
    needs_names : bool
        Whether the source takes numbers in an array for codes, and not for categories (LightGBM, XGBoost), so that
        rows have to be tables where categories are numbers.
    hashed : Hashed or None
        Input columns in whose place ``scores`` reads numbers found by the hash of their text (CatBoost).
    classes : array, or sequence of arrays, or None
        The labels in the order of the scores; None takes the estimator's ``classes_``, where it has them, so that
        only estimators without (outlier detectors: -1 and 1; clusterers: 0..k-1) say it. Several arrays are several
        targets, whose scores stand side by side: ``predict`` gives ``[B, targets]``, ``predict_proba`` a list.
    methods : dict
        Methods that are not what link and scores give anyway: name -> a Module that reads the raw scores ``[B, K]``.
        It returns what the source's method returns, in the same shape, as floating-point numbers; for ``predict`` of
        an estimator with classes the position of the label, int64 ``[B]`` or ``[B, targets]``.
    column_methods : dict
        The same for methods that raw scores cannot give (``transform`` and ``apply`` of a predictor): Modules that
        read the same ``[B, width]`` columns as ``scores``.
    sparse_zeros : bool
        False where the source takes the zeros of a sparse matrix for missing values (XGBoost).
    dtypes : dict
        The NumPy dtype of what a method returns, where it is not float64 (labels have the dtype of ``classes``).
    """

    scores: Module
    link: str = "identity"
    loss: str = "squared"
    link_options: dict[str, float] = field(default_factory=dict)
    loss_options: Mapping[str, float | list[float]] = field(default_factory=dict)
    flat: bool = True
    decision_scale: float = 1.0
    codes: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    closed_codes: Collection[int] = ()
    needs_names: bool = False
    hashed: HashedColumns | None = None
    classes: Any = None
    methods: Mapping[str, Module] = field(default_factory=dict)
    column_methods: Mapping[str, Module] = field(default_factory=dict)
    sparse_zeros: bool = True
    dtypes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One fitted estimator inside another, and which of its answers the other reads.

    Parameters
    ----------
    name : str
        Its name inside the composite, such as ``"estimators_.3"``.
    estimator : fitted estimator or Pipeline
    method : str
        "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform", or "scores"
        for the raw scores. ``predict`` of a classifier gives its labels, which have to be numbers; "position" gives
        the position of the label among its classes instead, and "votes" a column per class, 1 at that position. Through
        these three ``translate`` passes the gradient of the probabilities that the scores stand for.
    columns : sequence of int, optional
        Which of the composite's input columns it reads; None for all.
    output_columns : sequence of int, optional
        Which columns of its answer are read; None for all.
    after : sequence of Part
        Parts whose answers follow these columns, side by side in order (links of a chain).
    """

    name: str
    estimator: Any
    method: str = "scores"
    columns: Sequence[int] | None = None
    output_columns: Sequence[int] | None = None
    after: Sequence[Part] = ()


@dataclass(frozen=True)
class Composite:
    """What a reader returns for an estimator made of others (stacking, voting, calibration, chains, wrappers).

    Every part is translated by the reader of its own class, so composites nest at will. An estimator that is named
    several times, for several of its answers, is computed once.

    Parameters
    ----------
    parts : sequence of Part
    then : Predictor, Module or fitted estimator
        What reads the answers of the parts, side by side in order: a Predictor or Module over these columns, or one
        more fitted estimator (the final one of a stack), whose classes the composite's own replace.
    passthrough : bool
        Whether the composite's own input columns follow the answers of the parts.
    name : str
        What ``then`` is called in paths where it is an estimator, such as ``"final_estimator_"``.
    methods : dict
        Methods that ``then`` does not give as the composite does: name -> a Composite whose ``then`` is a Module that
        returns what the method returns, as those of ``Predictor.methods`` do.
    rejects : sequence of str
        What the composite raises on in any of its columns, whatever its parts take: "nan", "inf".
    shared_loss : str
        What fine-tuning keeps of the loss that all parts share, in the place of that of a ``then`` that is a Predictor:
        "loss" where the composite answers in the parts' unit (a mean or median of values from 0 up where theirs are),
        "quantiles" where it answers an increasing function of one part, which turns the quantiles of one into those of
        the other, "" for nothing.
    """

    parts: Sequence[Part]
    then: Any
    passthrough: bool = False
    name: str = ""
    methods: Mapping[str, Composite] = field(default_factory=dict)
    rejects: Sequence[str] = ()
    shared_loss: Literal["", "loss", "quantiles"] = ""


@dataclass(frozen=True)
class Selection:
    """What a reader returns for a step that keeps some of its columns, numbers or categories, as they are.

    Parameters
    ----------
    columns : sequence of int
        Positions of the input columns that are kept, in the order of the output.
    then : fitted estimator or None
        What predicts from the kept columns at the end of a pipeline (recursive elimination); inside one the step is a
        selection all the same.
    """

    columns: Sequence[int]
    then: Any = None


@dataclass(frozen=True)
class CategoryEncoding:
    """What a reader returns for a per-column categorical encoder: the vocabulary of each input column.

    The tables come from the fitted encoder itself, which is asked to transform every category (see ``probe.py``).

    Parameters
    ----------
    categories : sequence of (list or None)
        One entry per input column: the categories that the encoder knows (str, int, float, bool; missing values may be
        listed as None or NaN), or None for a column that the encoder passes through as a number.
    rejects_unknown, rejects_missing : bool
        True where the source raises on a category that it has not seen, on a missing value that is not listed. Where
        they are False the encoder is asked.
    rejects_fractions : bool
        True where the source raises on numbers that are not whole.
    buckets : int
        Above 0: unknown categories go to one of so many rows by the md5 of their text, as a hashing encoder does.
    trainable : bool
        False where the rows are codes, facts that a tree looks up, and not an embedding.
    tells_none : bool
        True where None and NaN in a column of objects are encoded differently.
    flat : bool
        True where the source takes a sequence, such as labels, and no table.
    dtype : str
        The NumPy dtype of what it gives.
    """

    categories: Sequence[Sequence[Any] | None]
    rejects_unknown: bool = False
    rejects_missing: bool = False
    rejects_fractions: bool = False
    buckets: int = 0
    trainable: bool = True
    tells_none: bool = False
    flat: bool = False
    dtype: str = "float64"


@dataclass(frozen=True)
class CategoryRecoding:
    """What a reader returns for a step that gives categories for categories (rare-category groupers, imputers of text).

    Parameters
    ----------
    recode : callable
        ``recode(column, values) -> values``: what column ``column`` of the fitted step makes of a list of categories,
        where None and NaN are two kinds of a missing value, as the source takes them.
    categories : sequence of (list or None)
        The vocabulary of each input column, or None where the step has none of its own or passes the column through.
    number : Module or None
        The same step over numbers, used where what follows reads numbers; None where it is for categories only.
    """

    recode: Callable[[int, list[Any]], list[Any]]
    categories: Sequence[Sequence[Any] | None]
    number: Module | None = None


@dataclass(frozen=True)
class TokenCounts:
    """What a reader returns for a step that counts terms of texts, or reads dicts: host code, and a module after it.

    Parameters
    ----------
    counts : callable
        ``counts(rows)``: what the fitted step makes of the rows that it is given, sparse or dense ``[B, width]``,
        before the weighting that ``then`` does.
    width : int
        How many columns there are.
    then : Module or None
        From the counts to the columns of the step; None where these are the counts.
    counter : TermCounter or None
        The same counts from plain options, which a file can hold; None where that takes code.
    dtype : str
        The NumPy dtype of what the step gives.
    finite : bool
        Whether counts are finite whatever the rows are.
    """

    counts: Callable[[Any], Any]
    width: int
    then: Module | None = None
    counter: TermCounter | None = None
    dtype: str = "float64"
    finite: bool = True


@dataclass(frozen=True)
class Transformer:
    """What a reader returns for a transformer of which more is to be said than its module.

    Parameters
    ----------
    module : Module
        ``[B, width] -> [B, K]``, what ``transform`` gives.
    column_methods : dict
        Name (such as "score_samples") -> a Module that reads the same columns and returns what the method returns.
    codes, closed_codes, needs_names, hashed, sparse_zeros
        As those of ``Predictor``, where trees read the columns.
    differentiable : bool
        False where this fitted instance is a step function, which ``translate`` does not take.
    dtypes : dict
        As those of ``Predictor``.
    """

    module: Module
    column_methods: Mapping[str, Module] = field(default_factory=dict)
    codes: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    closed_codes: Collection[int] = ()
    needs_names: bool = False
    hashed: HashedColumns | None = None
    sparse_zeros: bool = True
    differentiable: bool = True
    dtypes: Mapping[str, str] = field(default_factory=dict)


Conversion = (
    Module | Predictor | CategoryEncoding | CategoryRecoding | Composite | Selection | TokenCounts | Transformer
)


@dataclass(frozen=True)
class SupportedEstimator:
    """One row of ``windtunnel.supported()``.

    Attributes
    ----------
    estimator : type
        The class that is translated, and no subclass of it.
    convert : callable
        Its reader.
    trainable : str
        What fine-tuning can move; empty where nothing.
    notes : str
        Limits and choices.
    exact : bool
        Whether the translation gives the source's own answers (to float32) before it is softened or trained.
    differentiable : bool
        Whether a gradient comes out of the step, to its own parameters or to what stands before it.
    """

    estimator: type
    convert: Callable[[Any], Conversion]
    trainable: str = ""
    notes: str = ""
    exact: bool = True
    differentiable: bool = True

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.estimator.__name__

    @property
    def library(self) -> str:
        """The top-level package that the estimator comes from."""
        return self.estimator.__module__.split(".")[0]


class SupportedEstimators(list[SupportedEstimator]):
    """Rows of ``windtunnel.supported()``; ``str`` gives a table."""

    def __str__(self) -> str:
        titles = ("class", "library", "exact", "differentiable", "trainable")
        rows = [titles, *((e.name, e.library, _word(e.exact), _word(e.differentiable), e.trainable) for e in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _word(holds: bool) -> str:
    return "yes" if holds else "no"


_TABLE: dict[type, SupportedEstimator] = {}


def translates(
    *classes: type, trainable: str = "", notes: str = "", exact: bool = True, differentiable: bool = True
) -> Callable[..., Any]:
    """Register the decorated function as the reader of fitted instances of exactly these classes.

    The function takes one fitted estimator, leaves it untouched, and returns a ``Module`` (numbers to numbers), a
    ``Transformer``, a ``Predictor``, an ``CategoryEncoding``, a ``CategoryRecoding``, a ``Composite``, a ``Selection`` or ``TokenCounts``.
    Its tensors are float64; the assembly casts them (``Module.cast``). It raises ``UnsupportedEstimator`` for a fitted
    state that it cannot give exactly.

    Parameters
    ----------
    *classes : type
        Estimator classes; subclasses are not included, as they may override what they compute.
    trainable, notes, exact, differentiable
        For the table of supported estimators; see ``SupportedEstimator``.
    """

    def register(read: Callable[[Any], Conversion]) -> Callable[[Any], Conversion]:
        for cls in classes:
            if cls in _TABLE:
                raise TypeError(f"{cls.__qualname__} has two translations: {_TABLE[cls].convert} and {read}; keep one")
            _TABLE[cls] = SupportedEstimator(cls, read, trainable, notes, exact, differentiable)
        return read

    return register


def convert(fitted: Any) -> Conversion:
    """What the registered reader makes of a fitted estimator; ``UnsupportedEstimator`` if there is none."""
    found = _TABLE.get(type(fitted))
    if found is None and hasattr(fitted, "translation_"):
        raise UnsupportedEstimator(f"{type(fitted).__name__} holds a translation already: take its translation_")
    if found is None:
        raise UnsupportedEstimator(_unsupported(type(fitted)))
    return found.convert(fitted)


def is_differentiable(fitted: Any) -> bool:
    """Whether a gradient passes through the conversion of a fitted estimator that has a converter."""
    return _TABLE[type(fitted)].differentiable


def has_converter(cls: type) -> bool:
    """Whether a class has a translation."""
    return cls in _TABLE


def supported() -> SupportedEstimators:
    """Every estimator class with a translation, sorted by library and name; ``print`` shows a table."""
    return SupportedEstimators(sorted(_TABLE.values(), key=lambda entry: (entry.library, entry.name)))


def _unsupported(cls: type) -> str:
    if reason := REASONS.get(public_name(cls)):
        return f"no translation for {cls.__module__}.{cls.__qualname__}, as {reason}."
    parents = [base for base in cls.__mro__[1:] if base in _TABLE]
    names = {entry.__name__: entry for entry in _TABLE}
    if parents:
        hint = f"its parent {parents[0].__qualname__} has one, but a subclass may compute something else"
    elif close := get_close_matches(cls.__name__, names, n=1):
        hint = f"the nearest class with one is {names[close[0]].__module__.split('.')[0]}.{close[0]}"
    else:
        hint = "windtunnel.supported() lists the classes with one"
    return (
        f"no translation for {cls.__module__}.{cls.__qualname__}; {hint}. "
        f"Register a reader with @windtunnel.translates({cls.__name__})."
    )
