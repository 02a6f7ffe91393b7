"""What a fitted encoder is shown when it is probed: a typed column of values for each input column."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from windtunnel.encode import bucket_of
from windtunnel.errors import UnsupportedEstimator
from windtunnel.translators.registry import Encoding

Array = NDArray[Any]

# A float64 column, which missing values need, no longer tells integers beyond this apart.
EXACT_INTEGERS = 2**53


class Unknown:
    """The type of ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
"""Stands in a list of values for a category that is in no vocabulary."""


@dataclass(frozen=True)
class Shown:
    """The values of one input column, as the encoder gets to see them.

    Attributes
    ----------
    values : array [V]
        int64, float64 or object. A value that the source refuses is replaced by ``base``.
    base : scalar
        The value that stands still while other columns are probed.
    refused : list of int
        The rows on which the source raises.
    number : bool
        True for a column passed through, whose values are three arbitrary numbers.
    """

    values: Array
    base: Any
    refused: list[int]
    number: bool = False

    @property
    def accepted(self) -> Array:
        """The rows on which the source does not raise."""
        return np.setdiff1d(np.arange(len(self.values)), self.refused)

    def still(self, rows: int) -> Array:
        """Repeat the base value as a column of so many rows."""
        return np.full(rows, self.base, dtype=self.values.dtype)


def shown_number() -> Shown:
    """Three values by which a column passed through can be told from one that is changed."""
    return Shown(np.array([0.0, 1.0, -2.5]), 0.0, [], number=True)


def shown_categories(fitted: Any, encoding: Encoding, column: int, given: Sequence[Any]) -> Shown:
    """Make a typed column of the given values, followed by one text per bucket where there are buckets."""
    values = [*given, *bucket_texts(encoding.buckets)]
    listed = encoding.categories[column] or ()
    known = [value for value in listed if not is_missing(value)]
    # Where the vocabulary lists a missing value, the encoder may tell None from NaN: show the one that it knows.
    absent = next((value for value in listed if is_missing(value)), math.nan)
    refused = _refused(fitted, encoding, values, known, takes_missing=len(known) < len(listed))
    real = [value for value in values if not is_missing(value) and value is not UNKNOWN]
    unknown = _stranger([*known, *real])
    plain = [unknown if value is UNKNOWN else absent if is_missing(value) else value for value in values]
    base = _base(fitted, column, plain, refused, known)
    shown = [base if row in refused else value for row, value in enumerate(plain)]
    # An encoder fitted on objects looks its numbers up as objects, and a hash is of the text: 1 is not 1.0.
    fitted_on = getattr(fitted, "categories_", [None] * (column + 1))[column]
    as_objects = encoding.buckets > 0 or getattr(fitted_on, "dtype", None) == np.dtype(object)
    return Shown(_typed(shown, as_objects), base, sorted(refused))


def is_missing(value: Any) -> bool:
    """Tell whether a value is None, NaN or pd.NA."""
    return value is None or value is pd.NA or bool(value != value)


def bucket_texts(buckets: int) -> list[str]:
    """One text for each bucket of a hashing encoder, in the order of the buckets."""
    found: dict[int, str] = {}
    for text in map(str, count()):
        if len(found) == buckets:
            break
        found.setdefault(bucket_of(text, buckets), text)
    return [found[bucket] for bucket in range(buckets)]


def _refused(
    fitted: Any, encoding: Encoding, values: Sequence[Any], known: Collection[Any], takes_missing: bool
) -> set[int]:
    """Rows on which the source raises, as its parameters say.

    A missing value is refused by handle_missing="error" (category_encoders), and as an unknown category unless the
    vocabulary lists it.
    """
    refuses_missing = getattr(fitted, "handle_missing", None) == "error"
    refuses_missing = refuses_missing or (encoding.refuses_unknown and not takes_missing)
    vocabulary = set(known)
    return {
        row
        for row, value in enumerate(values)
        if (refuses_missing if is_missing(value) else encoding.refuses_unknown and value not in vocabulary)
    }


def _stranger(known: Sequence[Any]) -> Any:
    """Find a category of the same type as the known ones that is not among them."""
    taken = set(known)
    if known and all(_is_number(value) for value in known):
        return next(number for number in count() if number not in taken)
    return next(text for size in count() if (text := "unknown" + "_" * size) not in taken)


def _base(fitted: Any, column: int, plain: Sequence[Any], refused: set[int], known: Sequence[Any]) -> Any:
    """Pick the first category that is shown and known, or else known, or else accepted."""
    vocabulary = set(known)
    accepted = [value for row, value in enumerate(plain) if row not in refused]
    ranked = [*(value for value in accepted if not is_missing(value) and value in vocabulary), *known, *accepted]
    if not ranked:
        raise UnsupportedEstimator(
            f"{type(fitted).__name__} accepts no value at all in its input column {column}: "
            "its vocabulary is empty and it refuses unknown categories"
        )
    return ranked[0]


def _typed(values: Sequence[Any], as_objects: bool) -> Array:
    """Numbers as int64 or float64 where that loses nothing, everything else as objects."""
    numeric = all(_is_number(value) for value in values) and any(value == value for value in values)
    whole = numeric and all(isinstance(value, numbers.Integral) for value in values)
    exact = not numeric or all(
        abs(int(value)) <= EXACT_INTEGERS for value in values if isinstance(value, numbers.Integral)
    )
    if numeric and exact and not as_objects:
        return np.array(values, dtype=np.int64 if whole else np.float64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
