"""Columns on their way through the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from windtunnel.assemble.imputed_thresholds import Filled
from windtunnel.errors import UnsupportedEstimator

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
    rejects : frozenset of int
        0 where an encoder on the way rejects unknown categories, 1 where missing ones, 2 where infinite numbers, 3
        where those that are not whole.
    filled : Filled
        What a missing number has become.
    """

    number: Callable[[], Place] | None = None
    raw: int | None = None
    known: tuple[Any, ...] = ()
    vocabulary: tuple[Any, ...] | None = None
    chain: tuple[Callable[[list[Any]], list[Any]], ...] = ()
    rejects: frozenset[int] = frozenset()
    filled: Filled = Filled()


def itself(place: Place) -> Place:
    """A place that is there already."""
    return place


def once(add: Callable[[], int]) -> Callable[[int], Place]:
    """Place of a column of the answer of a step that is added when first asked for."""
    slot = cache(add)
    return lambda column: (slot(), column)


def check_numbers(name: str, wires: Sequence[Wire]) -> None:
    """Reject columns that are categories only."""
    if any(wire.number is None for wire in wires):
        raise UnsupportedEstimator(f"step {name!r} reads text where its translation reads numbers.")


def check_some(name: str, wires: Sequence[Wire]) -> None:
    """Reject a step that is given no columns: there would be nothing that tells how many rows it answers."""
    if not wires:
        raise UnsupportedEstimator(
            f"step {name!r} is given no columns, as the steps before it keep none of theirs; fit the pipeline again so "
            "that they keep some, or leave them out."
        )
