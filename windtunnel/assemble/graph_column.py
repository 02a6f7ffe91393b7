"""Columns on their way through the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from windtunnel.assemble.edge_cases.imputed_thresholds import ImputedValue
from windtunnel.errors import UnsupportedEstimator
from windtunnel.modules.base import Module, Rounding

Place = tuple[int, int]
"""A slot of the program and a column of its output."""


@dataclass(frozen=True)
class PlacedModule:
    """A module, the places of its input columns, and the kinds of values that its source rejects there."""

    module: Module
    places: list[Place]
    rejects: tuple[str, ...] = ()


class Rejected(IntEnum):
    """Kinds of values that an encoder rejects; the first two are rows of every probed table of categories, too."""

    UNKNOWN = 0
    MISSING = 1
    INFINITE = 2
    FRACTION = 3  # a number that is not whole


@dataclass(frozen=True)
class GraphColumn:
    """One column on its way through the graph: a number, a category of a raw column, or either."""

    number: Callable[[], Place] | None = None
    """Gives the place of the column as a number; the first call adds the step that computes it."""
    raw: int | None = None  # the raw column that the category comes from
    categories: tuple[Any, ...] = ()
    """Categories of the raw column that earlier groupers and imputers distinguish; a later encoder may add more."""
    vocabulary: tuple[Any, ...] | None = None
    """All categories of the raw column, once an earlier encoder has given each its code."""
    recodings: tuple[Callable[[list[Any]], list[Any]], ...] = ()
    """Functions of the earlier steps, in order; each maps the list [unknown, missing, *vocabulary] to recoded
    values."""
    rejects: frozenset[int] = frozenset()
    """The kinds of values that an earlier encoder rejects, see ``Rejected``."""
    imputed: ImputedValue = ImputedValue()  # what a missing number has become
    rounded: bool = False  # whether numbers may differ from the source's in their last bits
    rounding: Rounding | None = None  # by how much, where this is known


def column_at(place: Place) -> GraphColumn:
    """A number whose step is in the program already."""
    return GraphColumn(number=lambda: place, rounded=True)


def roundings_of(columns: Sequence[GraphColumn]) -> dict[int, Rounding | None]:
    """The positions of the columns whose numbers may differ from the source's, each with how much, if known."""
    return {position: column.rounding for position, column in enumerate(columns) if column.rounded}


def added_on_demand(add: Callable[[], int]) -> Callable[[int], Place]:
    """Place of an output column of a step; the first call adds the step."""
    slot = cache(add)
    return lambda column: (slot(), column)


def check_numbers(name: str, columns: Sequence[GraphColumn]) -> None:
    """Reject columns that are categories only."""
    if any(column.number is None for column in columns):
        raise UnsupportedEstimator(f"step {name!r} reads text where its translation reads numbers.")


def check_not_empty(name: str, columns: Sequence[GraphColumn]) -> None:
    """Reject a step without input columns, whose output would have no number of rows."""
    if not columns:
        raise UnsupportedEstimator(
            f"step {name!r} is given no columns, as the steps before it keep none of theirs; fit the pipeline again so "
            "that they keep some, or leave them out."
        )
